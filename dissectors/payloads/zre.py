"""ZRE, by which Zyre's peers find each other and talk in groups (36/ZRE, and 20/ZRE before it)."""

from typing import ClassVar

from dissectors.payloads import Message, Payload, PayloadConnection, PayloadKind
from dissectors.payloads.zproto import Codec

# ELECT, LEADER and GOODBYE are Zyre's own, newer than the specification.
_CODEC = Codec(
    "zre",
    b"\xaa\xa1",
    """
    1 HELLO sequence:number-2 endpoint:string groups:strings status:number-1 name:string headers:dictionary \
        | name endpoint
    2 WHISPER sequence:number-2 content:frames
    3 SHOUT sequence:number-2 group:string content:frames | group
    4 JOIN sequence:number-2 group:string status:number-1 | group
    5 LEAVE sequence:number-2 group:string status:number-1 | group
    6 PING sequence:number-2
    7 PING_OK sequence:number-2
    8 ELECT sequence:number-2 group:string challenger_id:string | group
    9 LEADER sequence:number-2 group:string leader_id:string | group
    10 GOODBYE sequence:number-2
    """,
    version=2,
)
# Messages of version 1 do not name their version. If the sequence number of one looks like a version, version 2 is
# tried first.
_CODEC_V1 = Codec(
    "zre",
    b"\xaa\xa1",
    """
    1 HELLO sequence:number-2 ipaddress:string mailbox:number-2 groups:short-strings status:number-1 \
        headers:short-dictionary | ipaddress mailbox
    2 WHISPER sequence:number-2 content:frames
    3 SHOUT sequence:number-2 group:string content:frames | group
    4 JOIN sequence:number-2 group:string status:number-1 | group
    5 LEAVE sequence:number-2 group:string status:number-1 | group
    6 PING sequence:number-2
    7 PING_OK sequence:number-2
    """,
)
_LOG = Codec(
    "zrelog",
    b"\xaa\xa2",
    """
    1 LOG level:number-1 event:number-1 node:number-2 peer:number-2 time_ms:number-8 data:string | level event data
    """,
)
_LEVELS = {1: "ERROR", 2: "WARNING", 3: "INFO"}
_EVENTS = {1: "JOIN", 2: "LEAVE", 3: "ENTER", 4: "EXIT", 5: "SEND", 6: "RECV"}


class Zre:
    """The messages of peers. Beacons come in datagrams and have a record of their own."""

    name = "zre"
    signature = _CODEC.signature
    fields: ClassVar[dict[str, PayloadKind]] = {**_CODEC.fields, **_CODEC_V1.fields}

    def match(self, message: Message, connection: PayloadConnection) -> bool:
        """Whether signature, command and version are of this protocol."""
        return _CODEC.place(message) is not None or _CODEC_V1.read(message) is not None

    def dissect(self, message: Message, connection: PayloadConnection) -> Payload | None:
        """The command."""
        return _CODEC.read(message) or _CODEC_V1.read(message)


class ZreLog:
    """The messages of peers to a collector of logs (20/ZRE, ZRE/LOG)."""

    name = "zrelog"
    signature = _LOG.signature
    fields: ClassVar[dict[str, PayloadKind]] = {**_LOG.fields, "level": "text", "event": "text"}

    def match(self, message: Message, connection: PayloadConnection) -> bool:
        """Whether the signature is right, and length, level and event."""
        return self.dissect(message, connection) is not None

    def dissect(self, message: Message, connection: PayloadConnection) -> Payload | None:
        """A line of the log. It names nodes and peers by hashes of their UUIDs."""
        payload = _LOG.read(message)
        if payload is None:
            return None
        fields = payload.fields
        if fields["level"] not in _LEVELS or fields["event"] not in _EVENTS:
            return None
        fields |= {"level": _LEVELS[fields["level"]], "event": _EVENTS[fields["event"]]}
        words = ["LOG", fields["level"], fields["event"], fields["data"]]
        payload.summary = " ".join(filter(None, words))
        return payload
