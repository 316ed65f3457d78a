"""A part that resumes from a snapshot tells what the original would have told."""

import gc
import zlib
from collections import Counter
from random import Random
from typing import get_args

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import field

from dissectors import snapshots
from dissectors.events import AnyEvent, Cut, Greeting, Hidden, Message, Octets, Problem
from dissectors.snapshots import FORMAT, Live, Part, SnapshotError
from dissectors.zmtp import search
from dissectors.zmtp.connection import ZmtpConnection
from dissectors.zmtp.deflate import Inflater
from dissectors.zmtp.half import Stage
from dissectors.zmtp.limits import Limits
from tests.dissectors.zmtp.test_websocket_compressed import OFFERS, conversation
from tests.support.dissector_calls import Call, Successor, calls, events
from tests.support.examples import examples
from tests.support.successors import successor
from tests.world.events import CLIENT, SERVER
from tests.world.octets import frame, peers

LIMITS = Limits(0)


def gone_on(connection: ZmtpConnection, out: list[AnyEvent]) -> ZmtpConnection:
    """Another connection, which resumes from a snapshot."""
    octets = connection.snapshot()
    other = ZmtpConnection.restore(octets, out, LIMITS)
    assert other.snapshot() == octets
    connection.release()
    return other


def anew(
    made: list[Call], starts: tuple[bool, bool] = (True, True), forced: int | None = None, between: Successor = gone_on
) -> None:
    """Whether it makes no difference that another connection takes over before each call."""
    assert events(made, starts, forced, LIMITS, between) == events(made, starts, forced, LIMITS)


@settings(max_examples=examples(150))
@given(st.integers(0, 1 << 32), st.sampled_from([(True, True), (False, True), (False, False)]),
       st.sampled_from([None, None, 0, 1, 2, 3]))  # fmt: skip
def test_every_cut_of_conversations_with_holes(seed: int, starts: tuple[bool, bool], forced: int | None) -> None:
    anew(calls(Random(seed)), starts, forced)


def test_all_stages_are_saved() -> None:
    """So that the test above says something of each."""
    seen: Counter[str] = Counter()

    def noted(connection: ZmtpConnection, out: list[AnyEvent]) -> ZmtpConnection:
        for half in connection.halves:
            seen[half.stage] += 1
            seen["a body"] += half.reader is not None and half.reader.body is not None
            seen["a greeting"] += half.stage == "opening" and half.buffer.held > 0
        return gone_on(connection, out)

    for seed in range(100):
        random = Random(seed)
        anew(
            calls(random),
            random.choice([(True, True), (False, False)]),
            random.choice([None, None, 0, 1]),
            between=noted,
        )
    assert min(seen[name] for name in (*get_args(Stage), "a body", "a greeting")) > 10, seen


@pytest.mark.parametrize("answer", OFFERS)
@pytest.mark.parametrize("size", [100_000, 50])
def test_compressed_messages_that_refer_back(answer: str, size: int) -> None:
    made: list[Call] = [
        (side, "feed", (data[at : at + size], 1, 1))
        for side, data in conversation(answer)
        for at in range(0, len(data), size)
    ]
    told = events(made, limits=LIMITS)
    assert sum(isinstance(event, Message) for event in told) > 10
    anew(made)


@given(st.lists(st.tuples(st.sampled_from([0, 1, 7, 300, 40_000]), st.integers(0, 9)), max_size=8))
def test_the_window_of_a_decoder(messages: list[tuple[int, int]]) -> None:
    writer = zlib.compressobj(wbits=-15)
    inflater = Inflater(True)
    for size, seed in messages:
        body = bytes(Random(seed).choices(b"abcdefghij", k=size))
        octets = (writer.compress(body) + writer.flush(zlib.Z_SYNC_FLUSH))[:-4]
        inflater = successor(inflater, Inflater())
        assert inflater.inflate(octets, 1 << 20) == (body, size)


def test_a_decoder_inside_a_block_is_not_gone_on_from() -> None:
    """The block says that it has ten octets, seven of which come, four of them those that end each message."""
    inflater = Inflater(True)
    assert inflater.inflate(b"\x00\x0a\x00\xf5\xffabc", 1000) == (b"abc\0\0\xff\xff", 7)
    assert successor(inflater, Inflater()).inflate(b"defg", 1000) is None


def test_a_search_between_two_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("_WINDOW_LIMIT", 2000), ("_SEARCH_LIMIT", 3000), ("_BLOCK", 700), ("_MOST_BETWEEN", 5000)):
        monkeypatch.setattr(search, name, value)
    random = Random(3)
    stream = b"".join((random.randbytes(9000), frame(random.randbytes(30_000)), *[frame(b"the next one")] * 300))
    made: list[Call] = [(0, "feed", (octets, 1, 1)) for octets in (peers()[0][1], peers()[2][1])]
    made += [(1, "feed", (octets, 1, 1)) for octets in (peers()[1][1], peers()[3][1])]
    made += [(0, "gap", (100, False, 1, 1))]
    made += [(0, "feed", (stream[at : at + 400], 1, 1)) for at in range(0, len(stream), 400)]
    states = set()

    def noted(connection: ZmtpConnection, out: list[AnyEvent]) -> ZmtpConnection:
        if isinstance(connection.client.search, search.Search):
            states.add(connection.client.search.state)
        return gone_on(connection, out)

    anew(made, between=noted)
    assert states == {"window", "between"}


def test_an_idle_connection_is_small() -> None:
    connection = ZmtpConnection([], 1, CLIENT, SERVER)
    new = len(connection.snapshot())
    for number, (side, octets) in enumerate(peers()):
        connection.halves[side].feed(octets, 1_700_000_000_000_000_000 + number, number)
    idle = len(connection.snapshot())
    assert new < 330
    assert idle < 480
    for number in range(1000):
        connection.client.feed(frame(b"hello"), number, number)
    assert abs(len(connection.snapshot()) - idle) < 20


# ---------------------------------------------------------------------- the format


def snapshot() -> bytes:
    connection = ZmtpConnection([], 1, CLIENT, SERVER)
    for side, octets in peers():
        connection.halves[side].feed(octets, 1, 1)
    return connection.snapshot()


def test_another_format_is_refused() -> None:
    kind, _, state = msgspec.msgpack.decode(snapshot())
    octets = msgspec.msgpack.encode((kind, FORMAT + 1, state))
    with pytest.raises(SnapshotError, match=f"^a snapshot of format {FORMAT + 1}; this version reads format {FORMAT}$"):
        ZmtpConnection.restore(octets, [])
    with pytest.raises(SnapshotError, match=r"^a snapshot of 'ZMTP connection', not of 'box'$"):
        snapshots.load("box", snapshot(), Box(1))


@settings(max_examples=examples(300))
@given(st.integers(0, 1 << 32))
def test_damaged_octets_are_refused_or_read(seed: int) -> None:
    """Whatever is read can be gone on with."""
    random = Random(seed)
    octets = bytearray(snapshot())
    for _ in range(random.choice([1, 1, 3])):
        octets[random.randrange(len(octets))] = random.randrange(256)
    if random.random() < 0.2:
        del octets[random.randrange(len(octets)) :]
    line = ""
    try:
        ZmtpConnection.restore(bytes(octets), [])
    except SnapshotError as error:
        line = str(error)
    assert "\n" not in line


@pytest.mark.parametrize("octets", [b"", b"\xc0", b"not a snapshot", b"\x93\xa1x\x01\xc0"])
def test_what_is_no_snapshot_is_refused(octets: bytes) -> None:
    with pytest.raises(SnapshotError):
        ZmtpConnection.restore(octets, [])


octets_of_any_kind = (
    st.binary(max_size=20)
    | st.builds(lambda data, more: Cut(data, len(data) + more), st.binary(max_size=9), st.integers(0, 1 << 40))
    | st.builds(Hidden, st.integers(0, 1 << 40))
)


class Box(Part):
    """A part that holds data of each kind, and parts."""

    number: int
    octets: Octets = b""
    more: list[Octets] = field(default_factory=list)
    topics: dict[Octets, None] = field(default_factory=dict)
    places: dict[tuple[int, int], tuple[str, float | None]] = field(default_factory=dict)
    names: frozenset[str] = frozenset()
    hidden: Live[int] = 0
    lid: "Lid | Box | None" = None

    def make(self, kind: type[Part]) -> Part:
        """Know of a new box that it has been made."""
        return Box(0, hidden=9) if kind is Box else Lid()


class Lid(Part, gc=False):
    """Another part."""

    color: str | None = None


packet_numbers = st.integers(-(1 << 63), 1 << 90)


@given(packet_numbers, octets_of_any_kind, st.frozensets(st.text(max_size=3), max_size=5))
def test_data_of_each_kind(number: int, octets: Octets, names: frozenset[str]) -> None:
    box = Box(number, octets, [octets], {octets: None}, {(number, 2): ("a", 1.5), (3, 4): ("b", None)}, names, 5)
    again = successor(box, Box(1))
    assert [getattr(again, name) for name in Box.__struct_fields__ if name != "hidden"] == [
        getattr(box, name) for name in Box.__struct_fields__ if name != "hidden"
    ]
    assert again.hidden == 0  # and not in the snapshot


def test_quick_parts_are_tracked_from_the_beginning() -> None:
    """A struct that is set in the quick way would not be tracked later, and its circles never be freed."""
    connection = ZmtpConnection([], 1, CLIENT, SERVER)
    half = connection.client
    half.begin_frames(2)
    assert half.reader is not None
    assert all(map(gc.is_tracked, (connection, half, half.opening, half.session, half.reader)))


def test_parts_that_are_there_stay_and_others_are_made() -> None:
    box = Box(1, lid=Box(2, lid=Lid("red")))
    there = Box(7)
    again = successor(box, Box(1, lid=there))
    assert again.lid is there
    assert isinstance(there.lid, Lid)
    assert there.lid.color == "red"
    other = successor(box, Box(1, lid=Lid()))
    assert isinstance(other.lid, Box)
    assert successor(Box(1), again).lid is None


@pytest.mark.parametrize(
    ("field", "value"),
    [(0, None), (0, "1"), (1, "text"), (1, None), (2, [7]), (3, [[b"", 0]]), (4, [[[1], ["", None]]]), (5, "a"),
     (6, [2, ["red"]]), (6, [0, [7]]), (6, [0, []]), (6, [-1, ["red"]])],
)  # fmt: skip
def test_a_value_of_a_wrong_type_is_refused(field: int, value: object) -> None:
    kind, number, state = msgspec.msgpack.decode(snapshots.save("box", Box(1)))
    state[field] = value
    with pytest.raises(SnapshotError, match=r"^not a snapshot: "):
        snapshots.load("box", msgspec.msgpack.encode((kind, number, state)), Box(1))


def test_events_that_wait() -> None:
    place = (1, 2, 3, "a", "b")
    waiting: list[AnyEvent] = [
        Greeting(*place, "1.0", identity=b"me"),
        Message(*place, [b"x", Cut(b"y", 5), Hidden(3)], offset=7),
        Problem("note", "capture-gap", "octets are missing", *place, since_ns=4),
    ]
    assert snapshots.fetch_events(snapshots.store_events(waiting)) == waiting
    assert snapshots.fetch_events(snapshots.store_events([])) == []
    for octets in (b"\xc1", msgspec.msgpack.encode([["nothing", []]]), msgspec.msgpack.encode([["message", [1] * 99]])):
        with pytest.raises(SnapshotError):
            snapshots.fetch_events(octets)
