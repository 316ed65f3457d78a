"""Invariants of any conversation and any way in which it is captured; hypothesis chooses both."""

from functools import cache
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from dissectors.events import AnyEvent, Message
from dissectors.zmtp.connection import ZmtpConnection
from dissectors.zmtp.limits import Limits
from tests.support.examples import examples
from tests.world.conversation import CLIENT, SERVER, Conversation, Piece, publications, pushes, request_reply
from tests.world.events import sniff, whole_messages
from tests.world.network import packets, segments
from tests.world.octets import message
from zmtpsniff.net.flows import FlowTable
from zmtpsniff.net.limits import FlowLimits
from zmtpsniff.net.reassembly import SEGMENT_COST

versions = st.sampled_from([1, 2, 3])
seeds = st.integers(0, 30)
some = settings(max_examples=examples(40))


@cache
def conversation(version: int, seed: int) -> Conversation:
    random = Random(f"{version} {seed}")
    make = (request_reply, pushes, publications)[seed % 3]
    return make(version, random, 12, most=random.choice([20, 300, 3000]))


@some
@given(versions, st.lists(st.integers(4000, 9000), min_size=3, max_size=8), st.data())
def test_a_segment_out_of_a_body_costs_its_message_only(version: int, lengths: list[int], data: st.DataObject) -> None:
    random = Random(len(lengths))
    talk = pushes(version, random, 0)
    bodies = [random.randbytes(length) for length in lengths]
    stream = b"".join(message(version, body) for body in bodies)
    start = len(talk.stream(CLIENT))
    pieces = [Piece(CLIENT, stream[at : at + 1000]) for at in range(0, len(stream), 1000)]
    sent = segments(Conversation("bodies", (*talk.pieces, *pieces), "fin"))
    victim = data.draw(st.integers(0, len(bodies) - 1))
    begin = start + sum(len(message(version, body)) for body in bodies[:victim])
    end = begin + len(message(version, bodies[victim]))
    inside = [one for one in sent if one.payload and one.side == CLIENT and begin + 10 <= one.offset and one.end <= end]
    lost = data.draw(st.sampled_from(inside))
    events = sniff(packets([one for one in sent if one is not lost]))
    (whole,) = whole_messages(events).values()
    assert whole == [[body] for number, body in enumerate(bodies) if number != victim]
    assert sum(isinstance(event, Message) and event.incomplete for event in events) == 1


def encoded(version: int, bodies: list[bytes], more: bool = False) -> int:
    return len(message(version, *bodies, *([b""] if more else []))) - (2 if more else 0)


@some
@given(versions, seeds, st.integers(1, 700))
def test_events_and_what_is_pending_tile_the_stream(version: int, seed: int, size: int) -> None:
    """Every octet is in a message that was reported, or held for one that is not whole: none twice, none lost."""
    random = Random(seed)
    talk = pushes(version, random, 20, most=random.choice([20, 300, 6000]), parts=3)
    opening = len(pushes(version, random, 0).stream(CLIENT))
    out: list[AnyEvent] = []
    connection = ZmtpConnection(out, 1, "a:1", "b:2")
    connection.server.feed(talk.stream(SERVER), 1, 1)
    stream = talk.stream(CLIENT)
    client = connection.client
    reached = reported = 0
    for at in range(0, len(stream), size):
        client.feed(stream[at : at + size], 1, 1)
        fed = min(at + size, len(stream))
        if fed < opening or not connection.accepted:
            continue
        for event in out[reached:]:
            if isinstance(event, Message):
                reported += encoded(version, event.frames)  # type: ignore[arg-type]
        reached = len(out)
        pending = client.buffer.held
        if client.session.parts:
            pending += encoded(version, client.session.parts, True)  # type: ignore[arg-type]
        if client.reader is not None and (body := client.reader.body) is not None:
            pending += (9 if version > 1 else 10) + body.length - body.left
        assert opening + reported + pending == fed


@some
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 20_000), st.integers(1, 1460)), max_size=150))
def test_what_waits_is_bounded(sent: list[tuple[int, int, int]]) -> None:
    """Segments of two connections anywhere beyond holes: never more than allowed, but for the one just taken."""
    limits = FlowLimits(waiting_octets_per_direction=6000, waiting_octets=9000)
    out: list[AnyEvent] = []
    table = FlowTable(
        lambda number, client, server, start: ZmtpConnection(out, number, client.text, server.text), limits
    )
    hosts = (b"\x0a\0\0\1\x0a\0\0\2", b"\x0a\0\0\2\x0a\0\0\1")
    for packet, (which, offset, length) in enumerate(sent, 1):
        ports = (b"\x9c\x40\x15\xb3", b"\x15\xb3\x9c\x40") if which < 2 else (b"\x9c\x41\x15\xb3", b"\x15\xb3\x9c\x41")
        side = which & 1
        # The first of all octets is never sent, so everything else waits.
        table.take([(packet, packet, hosts[side] + ports[side], 5000 if packet < 5 else 5001 + offset, 0, 0x10,
                     b"\xff" if packet < 5 else bytes(length), 0)])  # fmt: skip
        assert table.holdings.waiting_octets <= limits.waiting_octets
        for flow in table.register.flows.values():
            for direction in (flow.client, flow.server):
                assert direction.waiting_octets <= limits.waiting_octets_per_direction
                held = sum(len(one.payload) + SEGMENT_COST for one in direction.waiting)
                assert held == direction.waiting_octets


@some
@given(st.binary(min_size=1, max_size=400), st.integers(1, 400), st.sampled_from([None, 0, 1, 2, 3]), st.booleans())
def test_what_a_direction_holds_is_bounded(unit: bytes, times: int, forced: int | None, holes: bool) -> None:
    """Whatever repeats without end, the octets kept stay within the limits of a search and of a body."""
    connection = ZmtpConnection([], 1, "a:1", "b:2", (False, False), None, forced)
    half = connection.client
    for number in range(times):
        half.feed(unit * 20, number, number)
        if holes and number % 3 == 0:
            half.gap(7, False, number, number)
        assert half.buffer.held <= (1 << 17) + len(unit) * 20
        if half.reader is not None and half.reader.body is not None:
            assert len(half.reader.body.octets) <= Limits().keep
