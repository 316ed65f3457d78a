"""JSON Lines: one record a line, for programs."""

import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from operator import add
from typing import Any, BinaryIO, NamedTuple, TypeVar

import msgspec

from dissectors.batches import MessageBatch
from dissectors.events import AnyEvent, Envelope, Message, Octets
from zmtpsniff.native import core
from zmtpsniff.render.json_form import DEFAULT_MAX_BYTES, JsonForm, octets_json, octets_object
from zmtpsniff.words.text import UNSEEN_IN_JSON

_encode = msgspec.json.Encoder().encode

# A string of more than 128 KiB gives its memory back to the system, and to get that again, page by page, takes longer
# than to write to it.
_BATCH = 200

_REMEMBERED = 1024
_OFTEN = 64  # shorter octets come again and again: names of socket types, identities

# Most frames are short: making the digits of their length again for every frame takes as long as quoting their text.
_SHORT = 512
_EMPTY = '{"length":0,"text":""}'
_AS_THEY_ARE = bytes(octet for octet in range(0x20, 0x7F) if octet not in b'"\\')  # octets that JSON text holds so
_LENGTHS = [f'{{"length":{length},"text":' for length in range(_SHORT)]

_LONG = 512  # characters: longer ends of messages are not remembered
_PARTS = 4096  # of a packet's messages: so many are remembered as text
_NO_LIMIT = 1 << 62
_Text = TypeVar("_Text", str, bytes)


class JsonlRenderer:
    """Writes events as JSON Lines to a binary stream.

    A record has ``type`` first and then the fields of the event in their order; fields that do not apply are left out.
    Characters that a terminal would act on or could not show are written as ``\\u`` escapes.
    """

    def __init__(self, stream: BinaryIO, max_bytes: int = DEFAULT_MAX_BYTES) -> None:
        """Write to ``stream``, with ``max_bytes`` of all octets at most (0: no limit)."""
        self._stream = stream
        self._max_bytes = max_bytes
        self._form = JsonForm(_RawOctets(max_bytes).of)
        self._short = min(_SHORT, max_bytes + 1) if max_bytes else _SHORT

    def write(self, events: Sequence[AnyEvent]) -> None:
        """Write a batch."""
        if MessageBatch in map(type, events):
            self._write_batches(events)
            return
        for start in range(0, len(events), _BATCH):
            lines = self._lines(events[start : start + _BATCH])
            if not lines.isascii() or "\x7f" in lines:
                lines = re.sub(UNSEEN_IN_JSON, _escaped, lines)
            self._stream.write(lines.encode())
        self._stream.flush()  # who watches live traffic waits for no later batch

    def _write_batches(self, events: "Sequence[AnyEvent]") -> None:
        """Write events, among them batches of messages."""
        begin = 0
        for place, event in enumerate(events):
            if isinstance(event, MessageBatch):
                self.write(events[begin:place])
                if core is None:
                    self.write(event.messages())
                else:
                    self._stream.write(self._columns(event))
                begin = place + 1
        self.write(events[begin:])

    def _columns(self, batch: MessageBatch) -> bytes:
        """The lines of the messages of a batch, by the native core."""
        sides = []
        for flow, src, dst, socket_type, *_ in batch.senders:
            middle, _, _, _ = _of_sender(flow, src, dst, socket_type, False)
            end = "]" if socket_type is None else f'],"socket_type":{_quoted(socket_type)}'
            sides.append((middle.encode(), end.encode()))
        lines: bytes = core.lines(  # type: ignore[union-attr]
            batch.octets, batch.carried, batch.rows, batch.first_packet, batch.columns, batch.frames, sides,
            self._max_bytes or _NO_LIMIT, self._odd,
        )  # fmt: skip
        return lines

    def _odd(self, octets: bytes) -> bytes:
        """The object for octets that are cut, or text with characters beyond ASCII."""
        return re.sub(UNSEEN_IN_JSON, _escaped, octets_json(octets, self._max_bytes)).encode()

    def finish(self) -> None:
        """Write nothing more: nothing is held back."""

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
                shown.append(octets_json(frame, self._max_bytes))
        return shown

    def _relations(self, event: Message) -> str:
        """The last fields of a message, after its envelope: its relations to other messages."""
        fields = "" if event.matched is None else f',"matched":{octets_json(event.matched, self._max_bytes)}'
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
        try:
            return _encode(self._form.record(event)).decode() + "\n"
        except (UnicodeEncodeError, OverflowError):
            # A name with a lone surrogate, which JSON can only hold as an escape, or a number of more than 64 bits.
            form = JsonForm(lambda octets: octets_object(octets, self._max_bytes))
            return _in_ascii(msgspec.to_builtins(form.record(event))) + "\n"


class _RawOctets(dict[bytes, msgspec.Raw]):
    """The objects for octets, for msgspec to copy. Short octets are remembered."""

    def __init__(self, max_bytes: int) -> None:
        super().__init__()
        self._max_bytes = max_bytes

    def of(self, octets: Octets) -> msgspec.Raw:
        """The object for any octets."""
        if type(octets) is bytes and len(octets) < _OFTEN:
            return self[octets]
        return msgspec.Raw(octets_json(octets, self._max_bytes).encode())

    def __missing__(self, octets: bytes) -> msgspec.Raw:
        if len(self) == _REMEMBERED:
            self.clear()
        raw = self[octets] = msgspec.Raw(octets_json(octets, self._max_bytes).encode())
        return raw


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
    """The texts behind the frames of messages: behind the object of the last frame, and behind its characters."""

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
    """The parts that all messages of one sender have in common.

    That is what stands between the packet number and the frames, what comes after those, and the rest of the record: of
    a whole message, and of an incomplete one.
    """
    middle = f',"flow":{flow},"src":{_quoted(src)},"dst":{_quoted(dst)},"frames":['
    sealed = ',"encrypted":true' if encrypted else ""
    return middle, _ends(socket_type), sealed, f',"incomplete":true{sealed}'


@lru_cache(256)
def _of_envelope(envelope: Envelope) -> str:
    return f',"envelope":{_encode(envelope).decode()}'


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
