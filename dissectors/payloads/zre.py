"""ZRE, with which Zyre's peers find each other and talk in groups (36/ZRE)."""

from dissectors.payloads import Message, Payload, PayloadConnection
from dissectors.payloads.zproto import Codec, command

_CODEC = Codec(
    "zre",
    b"\xaa\xa1",
    {
        1: command(
            "HELLO",
            "sequence:number-2 endpoint:string groups:strings status:number-1 name:string headers:dictionary",
            "name endpoint",
        ),
        2: command("WHISPER", "sequence:number-2", content=True),
        3: command("SHOUT", "sequence:number-2 group:string", "group", content=True),
        4: command("JOIN", "sequence:number-2 group:string status:number-1", "group"),
        5: command("LEAVE", "sequence:number-2 group:string status:number-1", "group"),
        6: command("PING", "sequence:number-2"),
        7: command("PING_OK", "sequence:number-2"),
        # Zyre's own, newer than the specification.
        8: command("ELECT", "sequence:number-2 group:string challenger_id:string", "group"),
        9: command("LEADER", "sequence:number-2 group:string leader_id:string", "group"),
        10: command("GOODBYE", "sequence:number-2"),
    },
    version=2,
)


class Zre:
    """What peers say to each other; the beacon, which comes in datagrams, is not among it."""

    name = "zre"

    def match(self, message: Message, connection: PayloadConnection) -> bool:
        """Whether signature, command and version are of this protocol."""
        return _CODEC.place(message) is not None

    def dissect(self, message: Message, connection: PayloadConnection) -> Payload | None:
        """The command."""
        return _CODEC.read(message)
