"""Dafka: producers, consumers and stores of records (46/DAFKA)."""

from typing import ClassVar

from dissectors.payloads import Message, Payload, PayloadConnection, PayloadKind, text
from dissectors.payloads.zproto import Codec, command

_RECORD = "address:string subject:string sequence:number-8"
_CODEC = Codec(
    "dafka",
    b"\xaa\xa5",
    {
        ord("M"): command("RECORD", _RECORD, "subject sequence", content=True),
        ord("D"): command("DIRECT_RECORD", _RECORD, "subject sequence", content=True),
        ord("F"): command("FETCH", f"{_RECORD} count:number-4", "subject sequence count"),
        ord("K"): command("ACK", _RECORD, "subject sequence"),
        ord("H"): command("HEAD", _RECORD, "subject sequence"),
        ord("E"): command("DIRECT_HEAD", _RECORD, "subject sequence"),
        ord("G"): command("GET_HEADS", "address:string", "address"),
        ord("W"): command("CONSUMER_HELLO", "address:string subjects:strings", "address"),
        ord("L"): command("STORE_HELLO", "address:string", "address"),
    },
    version=1,
    topic=True,
)


class Dafka:
    """Published messages; the topic in front begins with the letter of the command."""

    name = "dafka"
    signature = _CODEC.signature
    fields: ClassVar[dict[str, PayloadKind]] = {**_CODEC.fields(), "topic": "text"}

    def match(self, message: Message, connection: PayloadConnection) -> bool:
        """Whether topic, signature, command and version are of this protocol."""
        return _CODEC.place(message) is not None

    def dissect(self, message: Message, connection: PayloadConnection) -> Payload | None:
        """The command."""
        payload = _CODEC.read(message)
        if payload is not None:
            payload.fields["topic"] = text(message.frames[0])
        return payload
