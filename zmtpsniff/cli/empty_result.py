"""Nothing passed a display filter: why, if sockets have not said their types, or a number stands in quotes."""

import re
from collections import Counter
from typing import TYPE_CHECKING

from dissectors.address import port_of
from dissectors.events import Capture, Connection, Message, text
from zmtpsniff.filters.mentions import TextTest, mentions_of
from zmtpsniff.words.counts import plural

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dissectors.events import AnyEvent
    from zmtpsniff.filters import Filter


_NUMBER = re.compile(rb"-?\d+(\.\d+)?")
_ORDERS = {"<", "lt", "<=", "le", ">", "gt", ">=", "ge"}


class EmptyResult:
    """Counts messages without a socket type, as long as no record has passed a filter."""

    def __init__(self, passes: "Filter") -> None:
        """Count only if the filter asks for the socket type of messages, or compares with a number in quotes.

        Messages that none of the filter's tests can pass may come in columns, and are not counted.
        """
        mentions = mentions_of(passes.text)
        self._quoted = next(filter(_quotes_a_number, mentions.comparisons), None)
        asks = "socket_type" in mentions.fields and Message in passes.records
        self._is_counting = self._quoted is not None or asks
        self._untyped: Counter[int] = Counter()  # messages, by the flows that have not ended
        self._messages = 0  # of those that have
        self._hint: Connection | None = None  # the connection whose socket the reader may declare

    def see(self, events: "Sequence[AnyEvent]", shown: "Sequence[AnyEvent]") -> None:
        """Take note of events, and of those that passed."""
        if not self._is_counting:
            return
        self._is_counting = all(type(event) is Capture for event in shown)
        for event in events:
            if type(event) is Message:
                self._untyped[event.flow] += event.socket_type is None
            elif type(event) is Connection and (untyped := self._untyped.pop(event.flow, 0)):
                if event.handshake != "not-seen":
                    continue
                self._messages += untyped
                if self._hint is None or (event.server.inferred and not self._hint.server.inferred):
                    self._hint = event

    def reason(self) -> str | None:
        """Why nothing passed, if this may be the reason."""
        if not self._is_counting:
            return None
        if self._quoted is not None:
            field, relation, number = self._quoted.field, self._quoted.relation, text(self._quoted.text)
            return f'nothing passed: "{number}" is a text; a number stands without quotes: {field} {relation} {number}'
        if self._hint is None:
            return None
        server = self._hint.server
        port, kind = port_of(server.address), server.socket_type or "TYPE"
        have = "has" if self._messages == 1 else "have"
        return (
            f"nothing passed: {plural(self._messages, 'message')} {have} no socket_type, because the capture lacks the "
            f"handshakes of their connections; -d tcp.port=={port},zmtp/{kind} declares that of the socket bound to a "
            "port"
        )


def _quotes_a_number(test: TextTest) -> bool:
    """Whether a filter orders a field of a body against a number in quotes.

    Such a field has the type that each message gives it, so the comparison itself is no mistake.
    """
    field, relation, quoted = test
    of_application = field.startswith(("body.", "payload."))
    return of_application and relation in _ORDERS and _NUMBER.fullmatch(quoted) is not None
