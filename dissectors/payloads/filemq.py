"""FileMQ, versions 1 and 2 (19/FILEMQ, 35/FILEMQ)."""

from typing import ClassVar

from dissectors.payloads import Hidden, Message, Payload, PayloadConnection, PayloadKind
from dissectors.payloads.zproto import Codec

_CODEC = Codec(
    "filemq",
    b"\xaa\xa3",
    """
    1 OHAI protocol_name:string version:number-2
    4 OHAI_OK
    5 ICANHAZ path:string options:dictionary cache:dictionary | path
    6 ICANHAZ_OK
    7 NOM credit:number-8 sequence:number-8 | credit
    8 CHEEZBURGER sequence:number-8 operation:number-1 filename:string offset:number-8 eof:number-1 \
        headers:dictionary chunk:chunk | filename offset
    9 HUGZ
    10 HUGZ_OK
    11 KTHXBAI
    128 SRSLY reason:string | reason
    129 RTFM reason:string | reason
    """,
)
# How version 1 differs: smaller counts, and a chunk as a frame of its own.
_CODEC_V1 = Codec(
    "filemq",
    b"\xaa\xa3",
    """
    2 ORLY mechanisms:short-strings content:frames | mechanisms
    3 YARLY mechanism:string content:frames | mechanism
    5 ICANHAZ path:string options:short-dictionary cache:short-dictionary | path
    7 NOM credit:number-8 | credit
    8 CHEEZBURGER sequence:number-8 operation:number-1 filename:string offset:number-8 headers:short-dictionary \
        content:frames | filename offset
    """,
)
_FRAMES = {"ORLY": "challenge", "YARLY": "response", "CHEEZBURGER": "chunk"}
_OPERATIONS = {1: "create", 2: "delete"}


class FileMq:
    """Files that a server sends to those who asked for them."""

    name = "filemq"
    signature = _CODEC.signature
    fields: ClassVar[dict[str, PayloadKind]] = {
        **_CODEC_V1.fields,
        **_CODEC.fields,
        **dict.fromkeys(_FRAMES.values(), "octets"),
        "operation": "text",
        "eof": "boolean",
    }

    def match(self, message: Message, connection: PayloadConnection) -> bool:
        """Whether signature and command are of this protocol."""
        return _CODEC.place(message) is not None or _CODEC_V1.place(message) is not None

    def dissect(self, message: Message, connection: PayloadConnection) -> Payload | None:
        """The command."""
        payload = _CODEC.read(message) or _CODEC_V1.read(message)
        if payload is None:
            return None
        fields = payload.fields
        if "content" in fields:
            content = fields.pop("content")
            if len(content) != 1:
                return None
            name = _FRAMES[fields["command"]]
            fields[name] = content[0]
            if name == "response" and not connection.show_secrets:  # of SASL, such as a password
                fields[name] = Hidden(len(content[0]) if isinstance(content[0], bytes) else content[0].length)
                payload.secrets = [len(message.frames) - 1]
        if fields.pop("protocol_name", "FILEMQ") != "FILEMQ":
            return None
        if "operation" in fields:
            fields["operation"] = _OPERATIONS.get(fields["operation"], str(fields["operation"]))
            if "eof" in fields:
                fields["eof"] = bool(fields["eof"])
        return payload
