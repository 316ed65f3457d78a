"""Records as octets again."""

from typing import Any

import pytest

from dissectors.events import Command
from dissectors.records import RecordField, record_fields, without_none
from dissectors.zmtp.encoder import encodings

PLACE = (1, 1, 1, "10.0.0.1:40000", "10.0.0.2:5555")
# Fields of a command that are no octets of its body in the clear.
NOT_IN_ITS_BODY = {
    "time_ns", "packet", "flow", "src", "dst", "name",  # every command has them
    "socket_type", "identity",  # a property says them
    "server_key", "long_term_key", "shared_key",  # in a box, or nowhere on the wire
    "status",  # in a frame of WebSocket
}  # fmt: skip
NAMES = {"version": "HELLO"}  # of commands that alone have a field
FIELDS = [
    field
    for field in record_fields(Command)
    if field.kind == "wire" and field.default is None and field.name not in {"properties", *NOT_IN_ITS_BODY}
]


@pytest.mark.parametrize("field", FIELDS, ids=lambda field: field.name)
def test_every_field_of_a_command_is_written(field: RecordField) -> None:
    """`browse` shows by this where the octets of a field are."""
    kind, _ = without_none(field.type)
    value: Any = 100 if kind is int else "1.0" if kind is str else b"octets"
    command = Command(*PLACE, NAMES.get(field.name, "STATUS"), **{field.name: value})
    names = {piece.name for pieces in encodings(command) for piece in pieces}
    assert (field.name,) in names, "let the encoder write it, or say in NOT_IN_ITS_BODY why it does not"


def test_properties_are_written() -> None:
    command = Command(*PLACE, "READY", properties={"Socket-Type": b"REQ"})
    for pieces in encodings(command):
        assert b"".join(piece.octets for piece in pieces).endswith(b"\x05READY\x0bSocket-Type\0\0\0\x03REQ")


def test_what_is_cut_is_not_written() -> None:
    assert list(encodings(Command(*PLACE, "PING", ttl_ms=100, incomplete=True))) == []
