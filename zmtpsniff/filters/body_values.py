"""The bodies of messages in filters; imported only for filters that name them.

A live capture may give its privileges up before the first message comes. So the decoders of bodies are imported here,
while the filter is compiled.
"""

from typing import Any

import cbor2  # noqa: F401

import zmtpsniff.words.zstd  # noqa: F401
from dissectors.events import Message
from zmtpsniff.analysis.bodies import bodies_of


class BodyValues:
    """The contents of the frames of messages, decoded once for all tests of a filter."""

    def __init__(self) -> None:
        """Start without any."""
        self._last: tuple[Message | None, list[Any]] = (None, [])

    def __call__(self, message: Message) -> list[Any]:
        """The values in the frames of a message, except frames with credentials."""
        if message.bodies:  # decoded to be shown
            return [body.value for body in message.bodies]
        last, values = self._last
        if last is not message:
            hidden = message.payload is not None and message.payload.secrets
            values = [] if hidden else [body.value for body in bodies_of(message)]
            self._last = (message, values)  # in one step: threads may share a filter
        return values
