"""JSON Lines: one record a line, for programs."""

import re
from collections.abc import Sequence
from functools import lru_cache, partial
from typing import Any, BinaryIO

import msgspec
from msgspec.structs import astuple, replace

from dissectors.batches import MessageBatch, has_batches
from dissectors.events import AnyEvent, Command, Envelope, Message, WireEvent
from zmtpsniff.native import core
from zmtpsniff.render.json_form import DEFAULT_MAX_BYTES, JsonForm, octets_json, octets_object
from zmtpsniff.render.renderer import Renderer
from zmtpsniff.words.text import UNSEEN_IN_JSON

_encode = msgspec.json.Encoder().encode

# A string of more than 128 KiB gives its memory back to the system, and to get that again, page by page, takes longer
# than to write to it.
_BATCH = 200

_PARTS = ["" if part == 1 else f',"part":{part}' for part in range(1024)]
_NO_LIMIT = 1 << 62
_FRAMES = ',"frames":['
_DELIMITER = octets_json(b"", 0) + ","  # in front of most requests and replies
_OWN = len(WireEvent.__struct_fields__)  # place of the first field that not all such events have
_ALIKE = 256  # octets, and READYs, whose form or text is kept
_LONGEST = 512  # of such a text
_SHORT = 64  # of such octets


class JsonlRenderer(Renderer):
    """Writes events as JSON Lines to a binary stream.

    A record has ``type`` first and then the fields of the event in their order; fields that do not apply are left out.
    Characters that a terminal would act on or could not show are written as ``\\u`` escapes.
    """

    def __init__(self, stream: BinaryIO, max_bytes: int = DEFAULT_MAX_BYTES) -> None:
        """Write to ``stream``, with ``max_bytes`` of all octets at most (0: no limit)."""
        self._stream = stream
        self._max_bytes = max_bytes
        make = partial(octets_object, max_bytes=max_bytes)
        known = lru_cache(_ALIKE)(make)  # identities and the like are the same again and again
        self._form = JsonForm(lambda one: known(one) if type(one) is bytes and len(one) < _SHORT else make(one))
        self._readys: dict[tuple[Any, ...], str] = {}

    def write(self, events: Sequence[AnyEvent]) -> None:
        """Write a batch."""
        if has_batches(events):
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
        sides = [
            (f"{_of_sender(*side[:3])}{_FRAMES}".encode(), _behind_frames(side.socket_type).encode())
            for side in batch.senders
        ]
        lines: bytes = core.lines(  # type: ignore[union-attr]
            batch.octets, batch.carried, batch.rows, batch.first_packet, batch.columns, batch.frames, sides,
            self._max_bytes or _NO_LIMIT, self._odd,
        )  # fmt: skip
        return lines

    def _odd(self, octets: bytes) -> bytes:
        """The object for octets that are cut, or text with characters beyond ASCII."""
        return re.sub(UNSEEN_IN_JSON, _escaped, octets_json(octets, self._max_bytes)).encode()

    def _lines(self, events: Sequence[AnyEvent]) -> str:
        """The lines of events. Those of messages are put together here, since most events are such.

        A message keeps the text that it shares with the one before. Equal objects that are not the same make it anew.
        """
        parts: list[str] = []
        packet = time_ns = flow = src = dst = socket_type = inferred = lookalike = None
        head = end = ""
        most = self._max_bytes
        for event in events:
            if type(event) is not Message or event.payload is not None or event.bodies:
                if type(event) is Command and event.properties is not None:
                    parts.append(self._ready(event))
                else:
                    parts.append(self.line(event))
                continue
            if (
                event.packet is not packet
                or event.time_ns is not time_ns
                or event.flow is not flow
                or event.src is not src
                or event.dst is not dst
                or event.socket_type is not socket_type
                or event.inferred is not inferred
                or event.lookalike is not lookalike
            ):
                packet, time_ns, flow = event.packet, event.time_ns, event.flow
                src, dst, socket_type = event.src, event.dst, event.socket_type
                inferred, lookalike = event.inferred, event.lookalike
                end = _behind_frames(socket_type, inferred, lookalike)
                begin = _of_sender(flow, src, dst)
                head = f'{{"type":"message","time_ns":{time_ns},"packet":{packet}{begin}{_FRAMES}'
            frames = event.frames
            if len(frames) == 1:
                shown = octets_json(frames[0], most)
            elif len(frames) == 2 and frames[0] == b"":
                shown = _DELIMITER + octets_json(frames[1], most)
            else:
                shown = ",".join([octets_json(frame, most) for frame in frames])
            part = event.part
            more = _PARTS[part] if 0 <= part < len(_PARTS) else f',"part":{part}'
            if event.incomplete:
                more += ',"incomplete":true'
            if event.encrypted:
                more += ',"encrypted":true'
            if event.envelope is not None:
                more += _of_envelope(event.envelope)
            if event.request is not None or event.matched is not None or event.forwards is not None:
                more += self._relations(event)
            parts.append(f"{head}{shown}{end}{more}}}\n")
        return "".join(parts)

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

    def _ready(self, event: Command) -> str:
        """The line of a command with properties. Most peers announce the same as others, so its text is kept."""
        name, properties, *others = astuple(event)[_OWN:]
        said = name, *properties.items(), *others
        rest = self._readys.get(said)
        if rest is None:
            rest = self.line(replace(event, time_ns=0, packet=0, flow=0, src="", dst="")).partition('"dst":""')[2]
            if len(rest) < _LONGEST and '"truncated":true' not in rest:
                if len(self._readys) == _ALIKE:
                    self._readys.clear()
                self._readys[said] = rest
        begin = _of_sender(event.flow, event.src, event.dst)
        return f'{{"type":"command","time_ns":{event.time_ns},"packet":{event.packet}{begin}{rest}'

    def line(self, event: AnyEvent) -> str:
        """The line of any event."""
        record = self._form.record(event)
        try:
            return _encode(record).decode() + "\n"
        except (UnicodeEncodeError, OverflowError):
            # A name with a lone surrogate, which JSON can only hold as an escape, or a number of more than 64 bits.
            return _in_ascii(msgspec.to_builtins(record)) + "\n"


@lru_cache(512)
def _of_sender(flow: int, src: str, dst: str) -> str:
    """The part that all records of one sender have in common."""
    return f',"flow":{flow},"src":{_quoted(src)},"dst":{_quoted(dst)}'


@lru_cache(256)
def _behind_frames(socket_type: str | None, inferred: bool = False, lookalike: str | None = None) -> str:
    """The part of a message behind its frames that all messages of a socket have in common."""
    end = "]" if socket_type is None else f'],"socket_type":{_quoted(socket_type)}'
    if inferred:
        end += ',"inferred":true'
    if lookalike is not None:
        end += f',"lookalike":{_quoted(lookalike)}'
    return end


@lru_cache(256)
def _of_envelope(envelope: Envelope) -> str:
    return f',"envelope":{_encode(envelope).decode()}'


@lru_cache(512)
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
