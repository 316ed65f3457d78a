"""One request on its way through proxies to the socket that answers it, and the answer on its way back."""

from dissectors.events import Message, Place
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
    places = {event.place for each in found if isinstance(event := index.event(each), Message)}
    for other, event in enumerate(index.events(first, min(len(index), first + _FORWARD)), first):
        if isinstance(event, Message) and (event.forwards in places or event.answers in places):
            found.add(other)
            places.add(event.place)
            if len(found) >= _MOST:
                break
    return sorted(found)


def _origin(index: RecordIndex, row: int) -> int:
    """The row of the first message of a request, a reply or a forwarded message."""
    seen = {row}
    while True:
        event = index.event(row)
        place = (event.forwards or event.answers) if isinstance(event, Message) else None
        before = None if place is None else _message_row(index, place)
        if before is None or before in seen:
            return row
        seen.add(before)
        row = before


def _message_row(index: RecordIndex, place: Place) -> int | None:
    """The row of the message in a place."""
    row = index.row_of_packet(place.packet, place.flow)
    while row is not None and row < len(index) and index.packets[row] == place.packet:
        event = index.event(row)
        if isinstance(event, Message) and event.place == place:
            return row
        row += 1
    return None
