"""A plug-in for messages in JSON: zmtpsniff read --plugin quotes.py CAPTURE.

A quote is an object such as {"symbol": "ZMQ", "bid": 101.25, "ask": 101.5} in the last frame.
"""

import json
from typing import Any

from dissectors.payloads import Message, Payload, PayloadConnection, at_hand


class Quotes:
    """Quotes of a market."""

    name = "quote"
    fields = {"symbol": "text", "bid": "number", "ask": "number"}

    def match(self, message: Message, connection: PayloadConnection) -> bool:
        """Look at the first octets only: this is called for every message that nobody knows yet."""
        return at_hand(message.frames[-1]).startswith(b'{"symbol"')

    def dissect(self, message: Message, connection: PayloadConnection) -> Payload | None:
        """Name the fields; None says that the message is no quote after all."""
        try:
            quote: dict[str, Any] = json.loads(at_hand(message.frames[-1]))
            summary = f"{quote['symbol']} {quote['bid']} to {quote['ask']}"
        except (ValueError, KeyError):
            return None
        return Payload(self.name, summary, {name: quote[name] for name in self.fields})
