"""JSON Lines: one record a line, for programs."""

import re
from collections.abc import Callable, Sequence
from functools import cache, lru_cache
from math import isfinite
from operator import add
from types import NoneType
from typing import Any, BinaryIO, Literal, NamedTuple, TypeVar, get_args, get_origin

import msgspec
from msgspec.structs import replace

from dissectors.events import (
    AnyEvent,
    Cut,
    Envelope,
    Hidden,
    Message,
    Octets,
    Payload,
)
from dissectors.records import record_fields
from dissectors.zmtp.limits import Limits
from zmtpsniff.words.text import UNSEEN_IN_JSON, as_text, at_hand

DEFAULT_MAX_BYTES = Limits().body_octets  # what is kept

_encode = msgspec.json.Encoder().encode

# A string of more than 128 KiB gives its memory back to the system, and to get that again, page by page, takes longer
# than to write to it.
_BATCH = 200

_PLAIN = frozenset({str, int, bool, NoneType})  # types of which JSON has every value as it is
_OCTETS = frozenset({bytes, Cut, Hidden})
_OFTEN = 64  # shorter octets come again and again: names of socket types, identities

# Most frames are short: making the digits of their length again for every frame takes as long as quoting their text.
_SHORT = 512
_EMPTY = '{"length":0,"text":""}'
_AS_THEY_ARE = bytes(octet for octet in range(0x20, 0x7F) if octet not in b'"\\')  # octets that JSON text holds so
_LENGTHS = [f'{{"length":{length},"text":' for length in range(_SHORT)]

_LONG = 512  # characters: longer ends of messages are not remembered
_PARTS = 4096  # of a packet's messages: so many are remembered as text
_Text = TypeVar("_Text", str, bytes)


def octets_object(octets: Octets, max_bytes: int = DEFAULT_MAX_BYTES) -> dict[str, Any]:
    """Octets as the object that stands for them in a record, with ``max_bytes`` of them at most (0: no limit)."""
    data, length = at_hand(octets, max_bytes)
    shown: dict[str, Any] = {"length": length}
    if data is None:
        return shown
    whole = len(data) == length
    text = as_text(data, whole)
    if text is None:
        shown["hex"] = data.hex()
    else:
        shown["text"] = text
    if not whole:
        shown["truncated"] = True
    return shown


class JsonlRenderer:
    """Writes events as JSON Lines to a binary stream.

    A record has ``type`` first and then the fields of the event in their order; fields that do not apply are left out.
    Characters that a terminal would act on or could not show are written as ``\\u`` escapes.
    """

    def __init__(self, stream: BinaryIO, max_bytes: int = DEFAULT_MAX_BYTES) -> None:
        """Write to ``stream``, with ``max_bytes`` of all octets at most (0: no limit)."""
        self._stream = stream
        self._max_bytes = max_bytes
        self._short = min(_SHORT, max_bytes + 1) if max_bytes else _SHORT

    def write(self, events: Sequence[AnyEvent]) -> None:
        """Write a batch."""
        for start in range(0, len(events), _BATCH):
            lines = self._lines(events[start : start + _BATCH])
            if not lines.isascii() or "\x7f" in lines:
                lines = re.sub(UNSEEN_IN_JSON, _escaped, lines)
            self._stream.write(lines.encode())
        self._stream.flush()  # who watches live traffic waits for no later batch

    def close(self) -> None:
        """Flush the stream."""
        self._stream.flush()

    def _lines(self, events: Sequence[AnyEvent]) -> str:
        """The lines of a batch."""
        # Nearly all events of a busy capture are messages of short ASCII frames, so their lines are put together here
        # from parts that stay the same from one to the next. Comparing those parts by identity is enough: two equal
        # but different objects only cost the time to make or look up the part again.
        time_ns = packet = flow = src = dst = socket_type = encrypted = None
        envelope: Envelope | None = None
        head = middle = whole = incomplete = shown_envelope = ""
        ends = _ends(None)
        parts: list[str] = []
        alike: list[Message] = []  # those that have one frame each, and differ from the first only in it and their part
        for event in events:
            if type(event) is Message:
                frames = event.frames
                same_packet = (
                    event.packet is packet
                    and event.time_ns is time_ns
                    and event.flow is flow
                    and event.src is src
                    and event.dst is dst
                    and event.socket_type is socket_type
                    and event.encrypted is encrypted
                )
                if (
                    same_packet
                    and len(frames) == 1
                    and event.envelope is None
                    and event.request is None
                    and event.payload is None
                    and event.matched is None
                    and event.forwards is None
                    and not event.incomplete
                    and not event.bodies
                ):
                    alike.append(event)
                    continue
            if alike:
                parts.append(self._alike(head, alike, ends, whole))
                alike = []
            if type(event) is not Message or event.payload is not None or event.bodies:
                parts.append(self.line(event))
                continue
            if not same_packet:
                packet, time_ns = event.packet, event.time_ns
                flow, src, dst = event.flow, event.src, event.dst
                socket_type, encrypted = event.socket_type, event.encrypted
                middle, ends, whole, incomplete = _of_sender(flow, src, dst, socket_type, encrypted)
                head = f'{{"type":"message","time_ns":{time_ns},"packet":{packet}{middle}'
            relations = ""
            if event.envelope is not None:
                if event.envelope is not envelope:
                    envelope = event.envelope
                    shown_envelope = _of_envelope(envelope)
                relations = shown_envelope
            if event.request is not None or event.matched is not None or event.forwards is not None:
                relations += self._relations(event)
            tail = incomplete if event.incomplete else whole
            end = ends.objects[event.part]
            parts.append(f"{head}{','.join(self._shown(event.frames))}{end}{tail}{relations}}}\n")
        if alike:
            parts.append(self._alike(head, alike, ends, whole))
        return "".join(parts)

    def _alike(self, head: str, messages: list[Message], ends: "_Ends", tail: str) -> str:
        """The lines of messages that differ only in their one frame, and in their part."""
        tail += "}\n"
        frames = [message.frames[0] for message in messages]
        numbers = [message.part for message in messages]
        if len(frames) > 1 and set(map(type, frames)) == {bytes}:
            # Who sends much at once mostly sends messages of one length.
            octets: list[bytes] = frames  # type: ignore[assignment]
            length = len(octets[0])
            short = 0 < length < self._short and set(map(len, octets)) == {length}
            if short and not b"".join(octets).translate(None, _AS_THEY_ARE):
                before = f'{head}{_LENGTHS[length]}"'
                lines = map(add, octets, map(ends.texts.__getitem__, numbers))
                return f"{before}{(tail + before).encode().join(lines).decode()}{tail}"
        shown = map(add, self._shown(frames), map(ends.objects.__getitem__, numbers))
        return head + (tail + head).join(shown) + tail

    def _shown(self, frames: list[Octets]) -> list[str]:
        """The objects for frames as JSON text."""
        shown: list[str] = []
        short = self._short
        for frame in frames:
            # As long as its octets and two quotes: no character needed an escape. So none is a control character,
            # except perhaps DEL, which JSON does not escape.
            if not frame:  # every delimiter
                shown.append(_EMPTY)
            elif (
                type(frame) is bytes
                and (length := len(frame)) < short
                and frame.isascii()
                and len(_encode(text := frame.decode())) == length + 2
                and 127 not in frame  # as a number: looking for octets in octets takes many times longer
            ):
                shown.append(f'{_LENGTHS[length]}"{text}"}}')
            else:
                shown.append(self._fragment(frame))
        return shown

    def _fragment(self, octets: Octets) -> str:
        """The object for octets as JSON text."""
        # For frames of messages, of which there are many: an object for each of them takes a fifth longer.
        if type(octets) is bytes and ((length := len(octets)) <= self._max_bytes or not self._max_bytes):
            text = as_text(octets)
            if text is None:
                return f'{{"length":{length},"hex":"{octets.hex()}"}}'
            return f'{{"length":{length},"text":{_encode(text).decode()}}}'
        return _encode(octets_object(octets, self._max_bytes)).decode()

    def _relations(self, event: Message) -> str:
        """The last fields of a message, after its envelope: its relations to other messages."""
        fields = "" if event.matched is None else f',"matched":{self._fragment(event.matched)}'
        if event.request is not None:  # which latency and pairing belong to
            if event.latency_ns is None:
                fields += f',"request":{event.request}'
            else:
                fields += f',"latency_ns":{event.latency_ns},"request":{event.request}'
            if event.request_part != 1:
                fields += f',"request_part":{event.request_part}'
            if event.paired is not None:
                fields += f',"paired":"{event.paired}"'
        if event.forwards is not None:
            place = event.forwards
            fields += f',"forwards":{{"flow":{place.flow},"packet":{place.packet}'
            fields += "}" if place.part == 1 else f',"part":{place.part}}}'
        return fields

    def line(self, event: AnyEvent) -> str:
        """The line of any event."""
        shown = self._struct(event)
        try:
            return _encode(shown).decode() + "\n"
        except (UnicodeEncodeError, OverflowError):
            # A name with a lone surrogate, which JSON can only hold as an escape, or a number of more than 64 bits.
            return _in_ascii(msgspec.to_builtins(shown)) + "\n"

    def _struct(self, value: msgspec.Struct) -> msgspec.Struct:
        """An event, or a part of one, in a form that msgspec can encode: octets as objects, without internal fields.

        Most records have neither, so msgspec takes them as they are.
        """
        plan = _plan(type(value))
        changes = plan.lacking.copy()
        for name, default in plan.converted:
            field = getattr(value, name)
            if field is not None and field != default:
                changes[name] = self._convert(field)
        return replace(value, **changes) if changes else value

    def _convert(self, value: Any) -> Any:
        """A value of a field in the form that records have, for msgspec to encode."""
        kind = type(value)
        if kind is bytes and len(value) < _OFTEN:
            return _often(value, self._max_bytes)
        if kind in _OCTETS:
            return octets_object(value, self._max_bytes)
        if kind in _PLAIN:
            return value
        if isinstance(value, dict):
            return {str(name): self._convert(item) for name, item in value.items()}
        if isinstance(value, (list, tuple)):
            return [self._convert(item) for item in value]
        if isinstance(value, float) and not isfinite(value):
            return str(value)  # JSON has no such numbers
        if kind is Payload:
            own = {"protocol": value.protocol, "summary": value.summary}
            return {**own, **self._convert({k: v for k, v in _without_none(value.fields).items() if k not in own})}
        return self._struct(value) if isinstance(value, msgspec.Struct) else value


_often = lru_cache(1024)(octets_object)


class _ByPart(dict[int, _Text]):
    """A piece of a record, by the part of its message."""

    def __init__(self, make: Callable[[int], _Text]) -> None:
        super().__init__()
        self._make: Callable[[int], _Text] = make

    def __missing__(self, part: int) -> _Text:
        text = self._make(part)
        if part < _PARTS and len(text) < _LONG:
            self[part] = text
        return text


class _Ends(NamedTuple):
    """What follows the frames of messages: behind the object of the last frame, and behind the characters in it."""

    objects: _ByPart[str]
    texts: _ByPart[bytes]


@lru_cache(64)
def _ends(socket_type: str | None) -> _Ends:
    end = "]" if socket_type is None else f'],"socket_type":{_quoted(socket_type)}'

    def of_object(part: int) -> str:
        return end if part == 1 else f'{end},"part":{part}'

    return _Ends(_ByPart(of_object), _ByPart(lambda part: f'"}}{of_object(part)}'.encode()))


@lru_cache(512)
def _of_sender(flow: int, src: str, dst: str, socket_type: str | None, encrypted: bool) -> tuple[str, _Ends, str, str]:
    """What all messages of one sender have in common.

    That is what stands between the packet number and the frames, what comes after those, and the rest of the record: of
    a whole message, and of an incomplete one.
    """
    middle = f',"flow":{flow},"src":{_quoted(src)},"dst":{_quoted(dst)},"frames":['
    sealed = ',"encrypted":true' if encrypted else ""
    return middle, _ends(socket_type), sealed, f',"incomplete":true{sealed}'


@lru_cache(256)
def _of_envelope(envelope: Envelope) -> str:
    return f',"envelope":{_encode(envelope).decode()}'


class _Plan(NamedTuple):
    """The differences between the fields of an event, or of a part of one, and those of its record."""

    converted: tuple[tuple[str, Any], ...]  # fields, each with the value that means that it does not apply
    lacking: dict[str, Any]  # fields that the record lacks, with the value that leaves them out


@cache
def _plan(struct: type[msgspec.Struct]) -> _Plan:
    fields = record_fields(struct)
    shown = {field.name for field in fields}
    lacking = {field.name: field.default for field in msgspec.structs.fields(struct) if field.name not in shown}
    return _Plan(tuple((field.name, field.default) for field in fields if not _is_plain(field.type)), lacking)


def _is_plain(hint: Any) -> bool:
    """Whether msgspec encodes all values of a type in the form that records have."""
    if get_origin(hint) is Literal or hint in _PLAIN:
        return True
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        return _plan(hint) == _Plan((), {})
    members = get_args(hint)
    return bool(members) and all(map(_is_plain, members))


def _without_none(value: Any) -> Any:
    """A value without fields that are None, also in dicts inside it."""
    if isinstance(value, dict):
        return {name: _without_none(item) for name, item in value.items() if item is not None}
    return [_without_none(item) for item in value] if isinstance(value, list | tuple) else value


def _quoted(text: str) -> str:
    """A string as JSON text."""
    try:
        return _encode(text).decode()
    except UnicodeEncodeError:  # a lone surrogate, which JSON can hold as an escape only
        return _in_ascii(text)


def _escaped(match: re.Match[str]) -> str:
    return _in_ascii(match[0])[1:-1]


def _in_ascii(value: Any) -> str:
    """Any value as JSON text, with escapes for characters beyond ASCII."""
    import json  # which takes long to import; msgspec is quicker where it suffices

    return json.dumps(value, separators=(",", ":"))
