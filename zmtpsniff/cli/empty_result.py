"""Nothing passed a display filter: why, if sockets have not said their types, or a number stands in quotes."""

import re
from typing import TYPE_CHECKING

from dissectors.address import port_of
from dissectors.events import Capture, Connection
from zmtpsniff.filters.mentions import mentions_of
from zmtpsniff.words.counts import plural

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dissectors.events import AnyEvent
    from zmtpsniff.filters import Filter


# A field of a body has the type that each message gives it, so the comparison itself is no mistake.
_NUMBER_AS_TEXT = re.compile(r'((?:body|payload)\.[\w.\[\]]+) *(<=?|>=?|[lg][te]) *"(-?\d+(?:\.\d+)?)"')


class EmptyResult:
    """Counts messages without a socket type, as long as no record has passed a filter."""

    def __init__(self, passes: "Filter") -> None:
        """Count only if the filter asks for the socket type of messages, or compares with a number in quotes."""
        self._quoted = _NUMBER_AS_TEXT.search(passes.text)
        self._is_counting = self._quoted is not None or "socket_type" in mentions_of(passes.text).fields
        self._messages = 0
        self._hint: Connection | None = None  # the connection whose socket the reader may declare

    def see(self, events: "Sequence[AnyEvent]", shown: "Sequence[AnyEvent]") -> None:
        """Take note of events, and of those that passed."""
        if not self._is_counting:
            return
        self._is_counting = all(type(event) is Capture for event in shown)
        for event in events:
            if type(event) is not Connection or event.handshake != "not-seen":
                continue
            sent = event.messages.client + event.messages.server
            self._messages += sent
            if sent and (self._hint is None or (event.server.inferred and not self._hint.server.inferred)):
                self._hint = event

    def reason(self) -> str | None:
        """Why nothing passed, if this may be the reason."""
        if not self._is_counting:
            return None
        if self._quoted is not None:
            field, operator, number = self._quoted.groups()
            return f'nothing passed: "{number}" is a text; a number stands without quotes: {field} {operator} {number}'
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
