"""Messages of codecs that ZProto makes: a signature, the number of a command, its fields, then more frames."""

from collections.abc import Callable
from typing import Any, NamedTuple

from dissectors.payloads import (
    Message,
    Octets,
    Payload,
    PayloadConnection,
    PayloadKind,
    Reader,
    at_hand,
    body_start,
    text,
)


def _short_strings(reader: Reader) -> list[str]:
    """Strings after their number, which is one octet, in protocols older than ZProto."""
    return [reader.string() for _ in range(reader.number(1))]


def _short_dictionary(reader: Reader) -> dict[str, str]:
    """Strings "name=value" after their number, which is one octet."""
    pairs = [pair.partition("=") for pair in _short_strings(reader)]
    if not all(equals for _, equals, _ in pairs):
        raise ValueError("a property without =")
    return {name: value for name, _, value in pairs}


_KINDS: dict[str, Callable[[Reader], Any]] = {
    "string": Reader.string,
    "longstr": lambda reader: reader.string(4),
    "strings": Reader.strings,
    "dictionary": Reader.dictionary,
    "short-strings": _short_strings,
    "short-dictionary": _short_dictionary,
    "number-1": lambda reader: reader.number(1),
    "number-2": lambda reader: reader.number(2),
    "number-4": lambda reader: reader.number(4),
    "number-8": lambda reader: reader.number(8),
    "chunk": lambda reader: reader.octets(reader.number(4)),
}


_TYPES: dict[str, PayloadKind] = {
    "string": "text",
    "longstr": "text",
    "strings": "list of texts",
    "short-strings": "list of texts",
    "dictionary": "object",
    "short-dictionary": "object",
    "chunk": "octets",
}


_CONTENT = "frames"  # the kind of frames of the application, which follow the command


class _Command(NamedTuple):
    """A command: its name, its fields, and which of them its summary shows."""

    name: str
    fields: dict[str, str]  # name and kind
    content: bool  # whether frames of the application follow
    told: list[str]


def _read_table(table: str) -> dict[int, _Command]:
    """The commands of a codec's table, by their numbers."""
    commands = {}
    for row in table.strip().splitlines():
        form, _, told = row.partition("|")
        number, name, *fields = form.split()
        kinds = dict(field.split(":") for field in fields)
        content = kinds.pop("content", "") == _CONTENT
        commands[int(number) if number.isdigit() else ord(number)] = _Command(name, kinds, content, told.split())
    return commands


class Codec:
    """The commands of one protocol: a payload dissector that other ones may ask.

    A table has a row for each command: its number or its letter, its name, and its fields, each with its kind. Behind
    ``|`` stand the fields that summaries show. ``content:frames`` says that frames of the application follow.
    """

    def __init__(
        self, name: str, signature: bytes, table: str, version: int | None = None, topic: bool = False
    ) -> None:
        """``version`` is the octet that follows the command's number in all messages, None if there is none.

        With ``topic`` the command is in the second frame, and the first one begins with its number.
        """
        self.name = name
        self.signature = signature
        self._commands = _read_table(table)
        self._version = version
        self._topic = topic
        self.fields = self._fields()

    def match(self, message: Message, connection: PayloadConnection) -> bool:
        """Whether signature, command and version are of this protocol, and the topic if there is one."""
        return self.place(message) is not None

    def dissect(self, message: Message, connection: PayloadConnection) -> Payload | None:
        """The command."""
        return self.read(message)

    def _fields(self) -> dict[str, PayloadKind]:
        found: dict[str, PayloadKind] = {"command": "text"}
        for known in self._commands.values():
            found |= {name: _TYPES.get(kind, "number") for name, kind in known.fields.items()}
            if known.content:
                found["content"] = "list of octets"
        return found | {"topic": "text"} if self._topic else found

    def place(self, message: Message) -> int | None:
        """The place of the frame with the command, None if there is none."""
        frames = message.frames
        if not frames:
            return None
        if self._topic:
            if len(frames) < 2 or not isinstance(frames[0], bytes) or not self._fits(frames[1]):
                return None
            return 1 if frames[0][:1] == at_hand(frames[1])[2:3] else None
        if self._fits(frames[0]):
            return 0
        start = body_start(frames)
        return start if 0 < start < len(frames) and self._fits(frames[start]) else None

    def _fits(self, frame: Octets) -> bool:
        # A frame of which only the beginning is at hand cannot be read to its end.
        if not isinstance(frame, bytes) or not frame.startswith(self.signature) or len(frame) < 3:
            return False
        if self._version is not None and (len(frame) < 4 or frame[3] != self._version):
            return False
        return frame[2] in self._commands

    def read(self, message: Message) -> Payload | None:
        """The command with its fields; None if the fields do not fit the command."""
        place = self.place(message)
        if place is None:
            return None
        frame = message.frames[place]
        assert isinstance(frame, bytes)
        known = self._commands[frame[2]]
        reader = Reader(frame, 3 if self._version is None else 4)
        fields: dict[str, Any] = {"command": known.name}
        try:
            for name, kind in known.fields.items():
                fields[name] = _KINDS[kind](reader)
            reader.end()
        except ValueError:
            return None
        content = message.frames[place + 1 :]
        if known.content:
            fields["content"] = content
        elif content:
            return None
        if self._topic:
            fields["topic"] = text(message.frames[0])
        told = [str(fields[name]) for name in known.told if fields[name] != ""]
        return Payload(self.name, " ".join([known.name, *told]), fields)
