"""Captures cut into files anywhere, dissected file by file and joined: what comes out is what one capture gives.

``ZMTPSNIFF_SEEDS=1000:9000`` makes the adversary run with other seeds, and as many of them.
"""

import os
import pickle
import zlib
from collections import Counter
from pathlib import Path
from random import Random

import pytest
from adversary import capture, places
from cutting import Joined, cut, joined, merged, whole
from made_up import binary_body, frame, publications, pushes, request_reply
from streams import CLIENT, SERVER, START_NS, Conversation, Packets, Sent, folders, packets, segments

from zmtpsniff.capture.files import open_captures
from zmtpsniff.capture.source import CaptureError, Packet
from zmtpsniff.decode_as import parse
from zmtpsniff.packets import UNIX
from zmtpsniff.segment import ACK, RST, SYN
from zmtpsniff.spark import states
from zmtpsniff.spark.join import Join
from zmtpsniff.spark.pieces import Piece, file_of, marked, marks, numbers_and_offsets, place, placed
from zmtpsniff.spark.scan import Scan

_FIRST, _LAST = (int(seed) for seed in os.environ.get("ZMTPSNIFF_SEEDS", "0:48").split(":"))
_GROUPS = 8


def _check(files: list[list[Packet]]) -> Joined:
    out = joined(files)
    expected, found = Counter(whole(merged(files)[0])), Counter(out.rows)
    assert not expected - found, "rows are missing"
    assert not found - expected, "rows that are not those of the whole"
    return out


@pytest.mark.parametrize("group", range(_GROUPS))
def test_nothing_that_is_not_flagged_is_wrong(group: int) -> None:
    fates: Counter[str] = Counter()
    for seed in range(_FIRST + group, _LAST, _GROUPS):
        given = capture(seed)
        if len(given) > 1:
            try:
                fates += _check(cut(given, places(seed, len(given)))).fates
            except AssertionError as error:
                raise AssertionError(f"seed {seed}: {error}") from error
    assert fates["joined"], "nothing was joined, so nothing was tested"


def _captures() -> list[Path]:
    found = {path.name: path for folder in reversed(folders()) for path in sorted(folder.glob("*.pcap*"))}
    return sorted(found.values())


@pytest.mark.parametrize("path", _captures(), ids=lambda path: path.name)
def test_every_capture_cut_anywhere_gives_the_same(path: Path) -> None:
    try:
        given = [packet for batch in open_captures([str(path)]).batches() for packet in batch]
    except CaptureError as error:
        pytest.skip(str(error))
    if len(given) < 2:
        pytest.skip("a capture of one packet cannot be cut")
    random = Random(path.name)
    for number in (1, 4):
        _check(cut(given, [random.randrange(1, len(given)) for _ in range(number)]))


_TALKS = [
    request_reply(3, Random(1), 400),
    request_reply(2, Random(2), 400),
    pushes(3, Random(3), 4000, batch=1448),
    pushes(3, Random(4), 2000, binary_body, 120, batch=1448),
    publications(3, Random(5), 800),
]


@pytest.mark.parametrize("talk", _TALKS, ids=lambda talk: talk.name)
def test_what_behaves_well_is_joined_and_not_redone(talk: Conversation) -> None:
    given = packets(segments(talk))
    random = Random(talk.name)
    middle = [random.randrange(30, len(given) - 60) for _ in range(2)]
    out = _check(cut(given, middle))
    assert not out.why
    assert out.fates["joined"]


def test_files_that_begin_inside_long_messages_give_the_same() -> None:
    """Frames are found late in them, by where long ones lead, or not at all."""
    random = Random(21)
    for most, count in ((600_000, 12), (3_000_000, 6)):
        given = packets(segments(pushes(3, random, count, binary_body, most, batch=60_000)))
        for number in (2, 5):
            ends = sorted(random.sample(range(1, len(given)), number - 1))
            _check([given[begin:end] for begin, end in zip([0, *ends], [*ends, len(given)], strict=True)])


def test_a_piece_does_not_grow_with_its_connection() -> None:
    def sizes(count: int) -> list[int]:
        given = packets(segments(request_reply(3, Random(7), count)))
        return joined(cut(given, [len(given) // 3, len(given) * 2 // 3])).sizes

    assert max(sizes(3000)) < max(sizes(300)) * 1.2


def test_two_files_that_overlap_are_merged_as_read_merges_them() -> None:
    given = packets(segments(request_reply(3, Random(8))))
    out = _check([given[::2], given[1::2]])
    assert out.why["entangled"]


def test_unix_domain_sockets_are_numbered_on_from_file_to_file() -> None:
    random = Random(11)
    given: list[Packet] = []
    for talk in (request_reply(3, random), pushes(3, random, batch=500), publications(3, random)):
        ends = [random.randbytes(7) + bytes([side]) for side in range(2)]
        for piece in talk.pieces:
            data = ends[1 - piece.side] + ends[piece.side] + piece.data
            given.append((START_NS + len(given) * 1000, UNIX, data, len(data), None))
    for count in (1, 4):
        out = _check(cut(given, [random.randrange(1, len(given)) for _ in range(count)]))
        assert out.why["unix"]


def test_a_rule_that_says_what_it_is_holds_in_every_file() -> None:
    given = packets(segments(request_reply(1, Random(12))))[20:]
    rules = [parse("tcp.port==5555,zmtp1")]
    files = cut(given, [len(given) // 2])
    out = joined(files, rules)
    assert Counter(out.rows) == Counter(whole(given, rules))
    assert any("Message" in one for one in out.rows)


def test_a_state_goes_on_in_another_run() -> None:
    given = packets(segments(pushes(3, Random(9))))
    first, second = cut(given, [len(given) // 2])
    pieces = []
    for number, some in enumerate((first, second)):
        scan = Scan(Packets(some), number)
        list(scan.batches())
        pieces += [Piece.decode(piece.encode()) for piece in scan.pieces]
    join = Join()
    assert [outcome.verdict.fate for outcome in join.take(pieces[:1])] == ["alone"]
    later = Join(join.state())
    assert [outcome.verdict.fate for outcome in later.take(pieces[1:])] == ["joined"]


def test_a_file_that_comes_late_is_not_joined() -> None:
    given = packets(segments(pushes(3, Random(9))))
    first, second = cut(given, [len(given) // 2])
    found = []
    for number, some in enumerate((second, first)):
        scan = Scan(Packets(some), number)
        list(scan.batches())
        found += scan.pieces
    join = Join()
    assert [outcome.verdict.fate for outcome in join.take(found[:1])] == ["alone"]
    (late,) = join.take(found[1:])
    assert (late.verdict.fate, late.verdict.anew) == ("redo", True)


def test_a_connection_behind_a_reset_of_whose_sender_nothing_is_known_in_the_file() -> None:
    """That its octets are far from those before, so that another connection has begun, only the whole tells."""
    before = [Sent(CLIENT, -1, b"", -1, SYN), Sent(SERVER, -1, b"", 0, SYN | ACK), Sent(CLIENT, 0, b"no zmtp", 0, ACK)]
    after = [Sent(CLIENT, 7, b"more", 0, ACK), Sent(SERVER, 0, b"", 11, RST | ACK)]
    after += [Sent(SERVER, 1 << 29, b"\1\0", 11, ACK), Sent(SERVER, (1 << 29) + 2, b"", 11, ACK)]
    given = packets([*before, *after], step_ns=1_000_000)
    later = Sent(SERVER, (1 << 29) + 2, frame(b"later"), 11, ACK)
    given += packets([after[3], later], start_ns=given[-1][0] + 700_000_000_000)
    assert _check(cut(given, [3])).why["unnumbered"] == 1


def test_a_reset_that_does_not_count_where_a_file_begins() -> None:
    """Its sender has said nothing there that shows that it is not at the number expected next."""
    sent = segments(pushes(3, Random(10), 200, batch=100))
    place = next(at for at, one in enumerate(sent) if at > 40 and one.payload)
    one = sent[place]
    sent.insert(place, Sent(one.side, one.offset - 500, b"", one.ack, RST | ACK))
    given = packets(sent)
    assert _check(cut(given, [place - 1])).why["no order"] == 1


def test_a_place_holds_the_file_the_number_and_the_offset() -> None:
    offset = 200 << 40  # of a capture of 200 TiB
    mark = marked(123_456, offset)
    assert place(mark) == (0, 123_456, offset)
    packet = placed(1_700_000_000_000_000_000, 77, mark)
    assert place(packet) == (77, 123_456, offset)
    assert file_of(packet) == 77
    assert numbers_and_offsets([mark, packet, marked(7, 0)]) == ([123_456, 123_456, 7], [offset, offset, None])
    assert marks(41, [24, 96, 0]) == [marked(41, 24), marked(42, 96), marked(43, 0)]


def test_places_are_in_order() -> None:
    assert placed(5, 0, marked(9, 900)) < placed(6, 0, marked(1, 100))
    assert placed(5, 1, marked(9, 900)) < placed(5, 2, marked(1, 100))
    assert placed(5, 1, marked(9, 0)) < placed(5, 1, marked(10, 0))
    assert placed(5, 1, marked(9, 900)) < placed(5, 1, marked(10, 1000))


class _Evil:
    def __reduce__(self) -> object:
        return os.getenv, ("HOME",)


@pytest.mark.parametrize(
    "octets",
    [b"", b"\1", b"\1no zlib", b"\1" + zlib.compress(pickle.dumps(_Evil())), b"\1" + zlib.compress(pickle.dumps([1])),
     b"\0\x90", b"\0", b"\1" + zlib.compress(b"\x80\x05")],
)  # fmt: skip
def test_octets_that_are_no_state_are_refused(octets: bytes) -> None:
    with pytest.raises(states.StateError):
        Join(octets)
