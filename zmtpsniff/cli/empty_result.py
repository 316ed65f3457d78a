"""A display filter that asks for socket types, and nothing passed: why the messages have none."""

from typing import TYPE_CHECKING

import click

from dissectors.address import port_of
from dissectors.events import Capture, Connection
from zmtpsniff.filters.mentions import mentions_of
from zmtpsniff.words.counts import plural

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dissectors.events import AnyEvent

_FILTER = "zmtpsniff.filter"


def remember_filter(context: click.Context, text: str) -> None:
    """Keep the text of a display filter, which the command line has compiled, until the command is over."""
    context.meta[_FILTER] = text


class EmptyResult:
    """Counts messages without a socket type, as long as no record has passed the filter of this command."""

    def __init__(self) -> None:
        """Count only if there is a filter, and it asks for the socket type of messages."""
        context = click.get_current_context(silent=True)
        text = "" if context is None else context.meta.get(_FILTER, "")
        self._is_counting = bool(text) and "socket_type" in mentions_of(text).fields
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
        """Why nothing passed, if it is for want of socket types."""
        if not self._is_counting or self._hint is None:
            return None
        server = self._hint.server
        port, kind = port_of(server.address), server.socket_type or "TYPE"
        have = "has" if self._messages == 1 else "have"
        return (
            f"nothing passed: {plural(self._messages, 'message')} {have} no socket_type, because the capture lacks the "
            f"handshakes of their connections; -d tcp.port=={port},zmtp/{kind} declares that of the socket bound to a "
            "port"
        )
