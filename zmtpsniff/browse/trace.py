"""One request on its way through proxies to the socket that answers it, and the answer on its way back."""

from dissectors.events import Message
from zmtpsniff.browse.index import RecordIndex

_FORWARD = 100_000  # records after the first that are looked through for the rest
_MOST = 1000  # records of one trace


def trace(index: RecordIndex, row: int) -> list[int]:
    """The rows of all messages that belong to the request or reply in ``row``, in their order; at least that one.

    It goes back to the first message of the request, then forward from there: to each message that forwards one of
    those found, and to each reply to one of them.
    """
    found = {_origin(index, row), row}
    first = min(found)
    places = {place for each in found if (place := _place(index, each)) is not None}
    for other, event in enumerate(index.events(first, min(len(index), first + _FORWARD)), first):
        if not isinstance(event, Message):
            continue
        on = event.forwards is not None and (event.forwards.flow, event.forwards.packet) in places
        answer = event.request is not None and (event.flow, event.request) in places
        if on or answer:
            found.add(other)
            places.add((event.flow, event.packet))
            if len(found) >= _MOST:
                break
    return sorted(found)


def _place(index: RecordIndex, row: int) -> tuple[int, int] | None:
    event = index.event(row)
    return (event.flow, event.packet) if isinstance(event, Message) else None


def _origin(index: RecordIndex, row: int) -> int:
    """The row of the first message of a request, a reply or a forwarded message."""
    seen = {row}
    while True:
        event = index.event(row)
        before = None
        if isinstance(event, Message):
            if event.forwards is not None:
                before = _message_row(index, event.forwards.packet, event.forwards.flow, event)
            elif event.request is not None:
                before = _message_row(index, event.request, event.flow, None)
        if before is None or before in seen:
            return row
        seen.add(before)
        row = before


def _message_row(index: RecordIndex, packet: int, flow: int, like: Message | None) -> int | None:
    """The message of a packet; of several, the one whose last frames are those of ``like``."""
    row = first = index.row_of_packet(packet, flow)
    while row is not None and row < len(index) and index.packets[row] == packet:
        event = index.event(row)
        if (
            isinstance(event, Message)
            and event.flow == flow
            and (like is None or event.frames[-1:] == like.frames[-1:])
        ):
            return row
        row += 1
    return first
