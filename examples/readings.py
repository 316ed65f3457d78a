"""A plug-in for messages in binary: zmtpsniff read --plugin readings.py CAPTURE.

A reading has 14 octets, in network order: "RD", the number of a sensor (2), a time in seconds since 1970 (4) and a
value (8, a float).
"""

import struct

from dissectors.payloads import Message, Payload, PayloadConnection, at_hand

_READING = struct.Struct("!2sHId")


class Readings:
    """Readings of sensors."""

    name = "reading"
    signature = b"RD"  # match() is asked only about messages that have a frame with this beginning
    fields = {"sensor": "number", "seconds": "number", "value": "number"}

    def match(self, message: Message, connection: PayloadConnection) -> bool:
        """Go by the length and the first octets."""
        frame = at_hand(message.frames[-1])
        return len(frame) == _READING.size and frame.startswith(self.signature)

    def dissect(self, message: Message, connection: PayloadConnection) -> Payload:
        """Name the fields."""
        _, sensor, seconds, value = _READING.unpack(at_hand(message.frames[-1]))
        fields = {"sensor": sensor, "seconds": seconds, "value": value}
        return Payload(self.name, f"sensor {sensor}: {value:g}", fields)
