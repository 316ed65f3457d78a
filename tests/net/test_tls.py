"""Records of TLS out of a flow: whatever the pieces, plaintexts come in order, and what is missing is a hole."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.world.listener import Listener
from zmtpsniff.capture.plaintexts import Plaintexts
from zmtpsniff.net.addresses import Address
from zmtpsniff.net.tls import Tls

HELLO = b"\x16\x03\x01\x00\x04hell"
RECORDS = [b"sealed %d, longer than its tag" % number + bytes(number) for number in range(8)]
PLAINTEXTS = [b"plain %d" % number for number in range(8)]


def record(sealed: bytes) -> bytes:
    return b"\x17\x03\x03" + len(sealed).to_bytes(2, "big") + sealed


def run(pieces: list[bytes | int], known: list[int]) -> tuple[list[bytes | int | str], Tls]:
    """The events of pieces of the client's stream, or holes of so many octets; ``known`` records are decrypted."""
    decrypted = Plaintexts()
    for number in known:
        decrypted.put(b"", ["23"], [], [], [RECORDS[number].hex()], [PLAINTEXTS[number].hex()])
    tls, both = Tls(decrypted), Listener()
    connection = tls.connect(both, Address("10.0.0.1:40000", 40000), Address("10.0.0.2:5555", 5555))
    connection.server.feed(HELLO, 1, 1)
    for number, piece in enumerate(pieces, 2):
        if isinstance(piece, int):
            connection.client.gap(piece, False, number, number)
        else:
            connection.client.feed(piece, number, number)
    connection.finish("fin", 0, 0)
    connection.release()
    return both.client.heard, tls


def cut(stream: bytes, places: list[int]) -> list[bytes]:
    edges = [0, *sorted({place % len(stream) for place in places}), len(stream)]
    return [stream[begin:end] for begin, end in pairwise(edges) if begin < end]


@given(st.lists(st.integers(0, 1000), max_size=12), st.sets(st.integers(0, 7)))
def test_any_pieces_and_any_records_known(places: list[int], known: set[int]) -> None:
    stream = HELLO + b"".join(map(record, RECORDS))
    seen, tls = run([*cut(stream, places)], sorted(known))
    expected: list[bytes | int | str] = []
    for number in range(8):
        what: bytes | str = PLAINTEXTS[number] if number in known else "tls-gap"
        if what != "tls-gap" or expected[-1:] != ["tls-gap"]:
            expected.append(what)
    assert seen == (expected if known else [])
    assert [code for code, _ in tls.skipped()] == ([] if known else ["tls-not-decrypted"])


@given(st.integers(0, 400), st.integers(1, 200), st.lists(st.integers(0, 1000), max_size=5))
def test_a_hole_anywhere_is_told_and_nothing_is_joined(begin: int, length: int, places: list[int]) -> None:
    stream = b"".join(map(record, RECORDS))
    begin %= len(stream)
    length = min(length, len(stream) - begin)
    before = cut(stream[:begin], places) if begin else []
    after = [stream[begin + length :]] if begin + length < len(stream) else []
    seen, _ = run([HELLO, *before, length, *after], list(range(8)))
    plain = [item for item in seen if isinstance(item, bytes)]
    assert plain == [item for item in PLAINTEXTS if item in plain]
    assert seen.count("tls-gap") == bool(plain)
    missing = [n for n, item in enumerate(PLAINTEXTS) if item not in plain]
    if plain:
        # The missing octets hang together, and the hole is told where it is.
        assert seen.index("tls-gap") == missing[0]


def test_behind_a_record_that_lacks_octets_the_next_one_is_read() -> None:
    first, cut_short, third, fourth = map(record, RECORDS[:4])
    seen, _ = run([HELLO, first, cut_short[:20], len(cut_short) - 20, third, fourth], list(range(4)))
    assert seen == [PLAINTEXTS[0], "tls-gap", PLAINTEXTS[2], PLAINTEXTS[3]]


@pytest.mark.parametrize(
    "head",
    [
        b"\x13\3\3\0\4", b"\x19\3\3\0\4",  # kinds of records are 20 to 24
        b"\x16\2\3\0\4", b"\x16\4\3\0\4", b"\x16\3\5\0\4",  # versions are 3.0 to 3.4
        b"\x16\3\3\0\0", b"\x16\3\3\x48\1",  # lengths are 1 to 18,432
        b"\x16\2", b"\x16\3\5",  # the first octets of a head are enough to rule it out
    ],
)  # fmt: skip
def test_what_begins_no_record_passes_as_it_is(head: bytes) -> None:
    assert _passed(head) == [head]


@pytest.mark.parametrize(
    "head", [b"\x14\3\0\0\1", b"\x18\3\4\x48\0", b"\x16\3\1\0\4", b"\x16", b"\x16\3", b"\x16\3\4", b"\x16\3\4\xff"]
)
def test_what_begins_a_record_is_no_plaintext(head: bytes) -> None:
    assert _passed(head) == []


def _passed(head: bytes) -> list[bytes | int | str]:
    both = Listener()
    connection = Tls(Plaintexts()).connect(both, Address("[::1]:1", 1), Address("[::1]:2", 2))
    connection.client.feed(head, 1, 1)
    return both.client.heard


def test_what_is_not_taken_gives_way() -> None:
    decrypted = Plaintexts(most_octets=1000)
    for number in range(8):
        decrypted.put(b"", ["23"], [], [], [RECORDS[number].hex()], [PLAINTEXTS[number].hex()])
    assert decrypted.take(b"", RECORDS[0]) is None
    assert decrypted.take(b"", RECORDS[7]) == PLAINTEXTS[7]
    assert decrypted.take(b"", RECORDS[7]) is None


def test_octets_that_are_not_tls_pass() -> None:
    both = Listener()
    connection = Tls(Plaintexts()).connect(both, Address("[::1]:1", 1), Address("[::1]:2", 2))
    connection.client.feed(b"\xff\0\0", 1, 1)
    connection.client.gap(5, False, 2, 2)
    connection.server.feed(b"\x16", 3, 3)
    assert both.client.heard == [b"\xff\0\0", 5]
    assert both.server.heard == [b"\x16"]
