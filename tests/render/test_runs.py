"""Messages that are shown together because they differ in their frame only."""

from hypothesis import given
from hypothesis import strategies as st

from dissectors.events import AnyEvent, Comment, Envelope, Message, Place
from zmtpsniff.render.runs import Run, runs

PLACE = (1_700_000_000_000_000_000, 1_000, 1, "10.0.0.1:43210", "10.0.0.2:5555")


def message(body: bytes, *place: object, **more: object) -> Message:
    return Message(*(place or PLACE), [body], "PUSH", **more)  # type: ignore[arg-type]


def test_messages_of_one_packet_are_a_run() -> None:
    first, second = message(b"a"), message(b"b")
    assert list(runs([first, second])) == [Run(first, [b"a", b"b"])]


def test_another_packet_sender_or_record_ends_a_run() -> None:
    time_ns, packet, flow, src, dst = PLACE
    first = message(b"a")
    for other in (
        message(b"b", time_ns, packet + 1, flow, src, dst),
        message(b"b", time_ns, packet, flow + 1, src, dst),
        message(b"b", time_ns, packet, flow, dst, src),
    ):
        assert list(runs([first, other, first])) == [Run(first, [b"a"]), Run(other, [b"b"]), Run(first, [b"a"])]
    comment = Comment("between")
    assert list(runs([first, comment, first])) == [Run(first, [b"a"]), comment, Run(first, [b"a"])]


def test_what_is_known_of_a_message_is_in_no_run() -> None:
    known: list[AnyEvent] = [
        message(b"a", incomplete=True),
        message(b"a", envelope=Envelope(0, True)),
        message(b"a", matched=b""),
        message(b"a", request=1),
        message(b"a", forwards=Place(1, 1)),
        Message(*PLACE, [b"a", b"b"]),
        Message(*PLACE, []),
    ]
    assert list(runs(known)) == known


@given(st.lists(st.tuples(st.integers(1, 3), st.integers(1, 2), st.lists(st.binary(max_size=2), max_size=2))))
def test_nothing_is_lost_and_nothing_changes_its_place(sent: list[tuple[int, int, list[bytes]]]) -> None:
    events = [Message(1, packet, flow, "a:2", "b:1", [*frames]) for packet, flow, frames in sent]
    again: list[AnyEvent] = []
    for event in runs(events):
        if isinstance(event, Run):
            first = event.first
            again += [
                Message(first.time_ns, first.packet, first.flow, first.src, first.dst, [frame])
                for frame in event.frames
            ]
        else:
            again.append(event)
    assert again == events
