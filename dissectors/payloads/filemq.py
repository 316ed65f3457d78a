"""FileMQ, version 2 (35/FILEMQ), and the commands of version 1 that are the same (19/FILEMQ)."""

from dissectors.payloads import Message, Payload, PayloadConnection
from dissectors.payloads.zproto import Codec, command

_CODEC = Codec(
    "filemq",
    b"\xaa\xa3",
    {
        1: command("OHAI", "protocol_name:string version:number-2"),
        4: command("OHAI_OK"),
        5: command("ICANHAZ", "path:string options:dictionary cache:dictionary", "path"),
        6: command("ICANHAZ_OK"),
        7: command("NOM", "credit:number-8 sequence:number-8", "credit"),
        8: command(
            "CHEEZBURGER",
            "sequence:number-8 operation:number-1 filename:string offset:number-8 eof:number-1 headers:dictionary "
            "chunk:chunk",
            "filename offset",
        ),
        9: command("HUGZ"),
        10: command("HUGZ_OK"),
        11: command("KTHXBAI"),
        128: command("SRSLY", "reason:string", "reason"),
        129: command("RTFM", "reason:string", "reason"),
    },
)
_OPERATIONS = {1: "create", 2: "delete"}


class FileMq:
    """Files that a server sends to those who asked for them."""

    name = "filemq"

    def match(self, message: Message, connection: PayloadConnection) -> bool:
        """Whether signature and command are of this protocol."""
        return _CODEC.place(message) is not None

    def dissect(self, message: Message, connection: PayloadConnection) -> Payload | None:
        """The command."""
        payload = _CODEC.read(message)
        if payload is None:
            return None
        fields = payload.fields
        if fields.pop("protocol_name", "FILEMQ") != "FILEMQ":
            return None
        if "operation" in fields:
            fields["operation"] = _OPERATIONS.get(fields["operation"], str(fields["operation"]))
            fields["eof"] = bool(fields["eof"])
        return payload
