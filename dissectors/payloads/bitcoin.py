"""Notifications of Bitcoin Core and its relatives (bitcoin/bitcoin, doc/zmq.md)."""

from typing import Any, ClassVar

from dissectors.payloads import Message, Payload, PayloadConnection, PayloadKind

_HASH = 32
_SEQUENCE = 4
_LEAST_BLOCK = 80 + 1  # its header, and how many transactions follow
_LEAST_TRANSACTION = 10
_LEAST = {b"hashblock": _HASH, b"hashtx": _HASH, b"rawblock": _LEAST_BLOCK, b"rawtx": _LEAST_TRANSACTION}
_EVENTS = {
    b"C": "block connected",
    b"D": "block disconnected",
    b"R": "transaction removed",
    b"A": "transaction added",
}
_WITH_SEQUENCE = frozenset({b"R", b"A"})  # of the memory pool


class Bitcoin:
    """Blocks and transactions, as they are published."""

    name = "bitcoin"
    least_frames = 3
    fields: ClassVar[dict[str, PayloadKind]] = {
        "topic": "text", "sequence": "number", "body": "octets", "hash": "text", "event": "text",
        "mempool_sequence": "number",
    }  # fmt: skip

    def match(self, message: Message, connection: PayloadConnection) -> bool:
        """Whether the topic, the length of the body and the length of the sequence number are right."""
        frames = message.frames
        if len(frames) != 3 or not isinstance(frames[2], bytes) or len(frames[2]) != _SEQUENCE:
            return False
        topic, body = frames[0], frames[1]
        if topic == b"sequence":
            if not isinstance(body, bytes) or len(body) <= _HASH:
                return False
            kind = body[_HASH : _HASH + 1]
            return kind in _EVENTS and len(body) == _HASH + (9 if kind in _WITH_SEQUENCE else 1)
        if not isinstance(topic, bytes) or topic not in _LEAST:
            return False
        length = len(body) if isinstance(body, bytes) else body.length
        return length == _HASH if topic.startswith(b"hash") else length >= _LEAST[topic]

    def dissect(self, message: Message, connection: PayloadConnection) -> Payload | None:
        """The notification. Hashes are in the order of octets in which people write them."""
        if not self.match(message, connection):
            return None
        topic, body, number = message.frames
        assert isinstance(topic, bytes)
        assert isinstance(number, bytes)
        name = topic.decode()
        sequence = int.from_bytes(number, "little")
        fields: dict[str, Any] = {"topic": name, "sequence": sequence}
        if name.startswith("raw"):
            fields["body"] = body
            return Payload("bitcoin", f"{name} {sequence}", fields)
        assert isinstance(body, bytes)
        # Notifiers reverse the hash before they publish it, whatever older documentation says.
        fields["hash"] = body[:_HASH].hex()
        if name != "sequence":
            return Payload("bitcoin", f"{name} {fields['hash']}", fields)
        kind = body[_HASH : _HASH + 1]
        fields["event"] = _EVENTS[kind]
        if kind in _WITH_SEQUENCE:
            fields["mempool_sequence"] = int.from_bytes(body[_HASH + 1 :], "little")
        return Payload("bitcoin", f"{fields['event']} {fields['hash']}", fields)
