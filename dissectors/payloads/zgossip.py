"""The gossip protocol of CZMQ (zeromq/czmq, src/zgossip_msg.xml)."""

from typing import ClassVar

from dissectors.payloads import Message, Payload, PayloadConnection, PayloadKind
from dissectors.payloads.zproto import Codec, command

_CODEC = Codec(
    "zgossip",
    b"\xaa\xa0",
    {
        1: command("HELLO"),
        2: command("PUBLISH", "key:string value:longstr ttl:number-4", "key value"),
        3: command("PING"),
        4: command("PONG"),
        5: command("INVALID"),
    },
    version=1,
)


class Zgossip:
    """Tuples that peers tell each other."""

    name = "zgossip"
    signature = _CODEC.signature
    fields: ClassVar[dict[str, PayloadKind]] = _CODEC.fields()

    def match(self, message: Message, connection: PayloadConnection) -> bool:
        """Whether signature, command and version are of this protocol."""
        return _CODEC.place(message) is not None

    def dissect(self, message: Message, connection: PayloadConnection) -> Payload | None:
        """The command."""
        return _CODEC.read(message)
