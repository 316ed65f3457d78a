"""Readers of frames, fed by themselves: what a session is given, without any connection."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dissectors.events import AnyEvent, Cut, Octets, Problem
from dissectors.zmtp.buffer import Buffer
from dissectors.zmtp.framing import FrameReader
from dissectors.zmtp.journal import Journal
from dissectors.zmtp.limits import Limits
from dissectors.zmtp.security import Security
from dissectors.zmtp.session import Session
from tests.support.successors import successor
from tests.world.events import frames_of
from tests.world.octets import LONG as LONG_FLAG
from tests.world.octets import MORE, frame, frame_v1

ENCODERS = {1: frame_v1, 2: frame}  # by framing
LONG = 100_000


def session_of(out: list[AnyEvent], limits: Limits | None = None) -> Session:
    """One that writes what it is given to ``out``."""
    security = Security()
    security.skip()
    return Session(Journal(out, 1, "a:1", "b:2"), "client", security, limits or Limits(0))


def made(framing: int, limits: Limits | None = None) -> tuple[FrameReader, Buffer, list[AnyEvent]]:
    out: list[AnyEvent] = []
    buffer = Buffer()
    return FrameReader(buffer, session_of(out, limits), framing), buffer, out


def feed(reader: FrameReader, buffer: Buffer, octets: bytes) -> None:
    whole = buffer.add(octets)
    if whole is not None:
        buffer.run(reader.read, whole)


def frames(out: list[AnyEvent]) -> list[list[Octets]]:
    return frames_of(out)


LIMITS = (0, 1, 253, 254, 255, 256)  # lengths where a header becomes another
bodies = st.binary(max_size=300) | st.sampled_from(LIMITS).map(bytes)
several = st.tuples(st.lists(bodies, min_size=1, max_size=4), st.sampled_from((1, 2)))
messages = st.lists(several, max_size=8).map(lambda some: [one for one, count in some for _ in range(count)])


@pytest.mark.parametrize("framing", ENCODERS)
@given(messages=messages, size=st.integers(1, 400), again=st.booleans())
def test_any_cutting_gives_the_same(framing: int, messages: list[list[bytes]], size: int, again: bool) -> None:
    """Also if another reader resumes from a snapshot after each piece."""
    encode = ENCODERS[framing]
    octets = b"".join(
        encode(body, flags=number < len(bodies)) for bodies in messages for number, body in enumerate(bodies, 1)
    )
    out: list[AnyEvent] = []
    buffer, session = Buffer(), session_of(out)
    reader = FrameReader(buffer, session, framing)
    for begin in range(0, len(octets), size):
        feed(reader, buffer, octets[begin : begin + size])
        if again:
            reader = successor(reader, FrameReader(buffer, session, framing))
    assert frames(out) == messages
    assert not buffer.held


flags_of = {1: st.sampled_from((0, MORE)), 2: st.integers(0, 7) | st.sampled_from((8, 0x41, 0x80))}


@pytest.mark.parametrize("framing", ENCODERS)
@given(data=st.data(), size=st.integers(1, 400))
def test_the_hot_loop_reads_as_the_session_takes_single_frames(framing: int, data: st.DataObject, size: int) -> None:
    given_ = data.draw(st.lists(st.tuples(flags_of[framing], bodies), max_size=30))
    # frame() sets LONG where the length demands it.
    given_ = [(flags | LONG_FLAG if framing == 2 and len(body) > 255 else flags, body) for flags, body in given_]
    octets = b"".join(encode(framing, flags, body) for flags, body in given_)
    reader, buffer, hot = made(framing)
    for begin in range(0, len(octets), size):
        feed(reader, buffer, octets[begin : begin + size])
    single: list[AnyEvent] = []
    session = session_of(single)
    for flags, body in given_:
        session.frame(flags, body, True)
    unneeded = "long-flag-not-needed"  # the header tells of it, which a session does not see
    assert [event for event in hot if not (isinstance(event, Problem) and event.code == unneeded)] == single


def encode(framing: int, flags: int, body: bytes) -> bytes:
    if framing == 2 and flags & LONG_FLAG:
        return bytes([flags]) + len(body).to_bytes(8, "big") + body
    return ENCODERS[framing](body, flags)


@pytest.mark.parametrize("framing", ENCODERS)
def test_a_long_body_is_collected_and_not_held(framing: int) -> None:
    reader, buffer, out = made(framing, Limits(70_000))
    octets = ENCODERS[framing](bytes(LONG)) + ENCODERS[framing](b"next")
    for begin in range(0, len(octets), 1448):
        feed(reader, buffer, octets[begin : begin + 1448])
        assert buffer.held < 4096
    assert frames(out) == [[Cut(bytes(70_000), LONG)], [b"next"]]


@pytest.mark.parametrize("framing", ENCODERS)
@pytest.mark.parametrize("begin", [20, 500, 30_000])
def test_a_hole_costs_what_it_covers(framing: int, begin: int) -> None:
    """In the body of a frame that waits for its last octets, or of one that is being collected."""
    size = 1000 if begin < 1000 else LONG
    octets = ENCODERS[framing](b"x" * size) + ENCODERS[framing](b"next")
    reader, buffer, out = made(framing)
    feed(reader, buffer, octets[:begin])
    assert reader.skip(300)
    feed(reader, buffer, octets[begin + 300 :])
    header = len(octets) - len(ENCODERS[framing](b"next")) - size
    assert frames(out) == [[Cut(b"x" * (begin - header), size)], [b"next"]]


@pytest.mark.parametrize("framing", ENCODERS)
@pytest.mark.parametrize("length", [301, None])
def test_a_hole_over_a_header_loses_the_place(framing: int, length: int | None) -> None:
    reader, buffer, _ = made(framing)
    feed(reader, buffer, ENCODERS[framing](bytes(400))[:-300])
    assert not reader.skip(length)
    rest = reader.rest
    assert isinstance(rest, Cut)
    assert rest.length == 400


@pytest.mark.parametrize(
    ("framing", "octets", "code"),
    [
        (1, b"\0\0", "zero-length-frame"),
        (1, b"\xff" + b"\xff" * 8 + b"\0", "frame-too-long"),
        (2, b"\2" + b"\xff" * 8, "frame-too-long"),
        (2, b"\6" + b"\xff" * 8, "frame-too-long"),
    ],
)
def test_what_no_frame_can_be(framing: int, octets: bytes, code: str) -> None:
    """It is told once; where the frames before were doubtful it shows that they were none."""
    good = ENCODERS[framing](b"good")
    reader, buffer, out = made(framing)
    feed(reader, buffer, good + octets)
    assert reader.failure == "unreadable"
    assert frames(out) == [[b"good"]]
    assert [event.code for event in out if isinstance(event, Problem)] == [code]

    out, buffer = [], Buffer()
    session = session_of(out)
    session.found(doubtful=5)
    reader = FrameReader(buffer, session, framing)
    feed(reader, buffer, good + octets)
    assert reader.failure == "lost"
    assert buffer.content == octets  # which others may search
    assert not [event for event in out if isinstance(event, Problem)]
