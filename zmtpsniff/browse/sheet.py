"""A record for the tree and the octets beside it: one description of both."""

from typing import Any, NamedTuple

import msgspec

from dissectors.events import AnyEvent, Body, Capture, Hidden, Message, Octets, Payload
from dissectors.records import record_fields
from dissectors.zmtp.encoder import Name
from zmtpsniff.browse.wire_image import WireImage
from zmtpsniff.render.payload import body_text, frames_to_show, payload_fields
from zmtpsniff.words.counts import plural
from zmtpsniff.words.durations import brief
from zmtpsniff.words.text import escape, quote

_SHOWN = 240  # octets of a value on its line
_MOST = 100_000  # frames, properties or items of a record that have lines


class TreeField(NamedTuple):
    """A line of the tree."""

    depth: int
    label: str
    value: str  # safe to show
    start: int  # the place of its octets in those of the record; all of them if nobody knows it
    stop: int
    octets: Octets | None = None  # what there is to copy, if it is octets


class Sheet(NamedTuple):
    """All that is shown of a record."""

    fields: list[TreeField]
    octets: bytes
    is_whole: bool  # the octets are those on the wire, with headers

    def field_at(self, octet: int) -> int | None:
        """The line of the smallest field that an octet is in."""
        around = [place for place, field in enumerate(self.fields) if field.start <= octet < field.stop]
        return min(around, key=lambda place: self._size(place), default=None)

    def _size(self, place: int) -> tuple[int, int]:
        field = self.fields[place]
        return field.stop - field.start, -field.depth


def has_secrets(event: AnyEvent, show_secrets: bool) -> bool:
    """Whether some octets of a record must not be shown."""
    if show_secrets:
        return False
    if isinstance(event, Message):
        return any(type(frame) is Hidden for frame in frames_to_show(event))
    return any(type(getattr(event, name, None)) is Hidden for name in event.__struct_fields__)


def make_sheet(event: AnyEvent, image: WireImage, time: str, show_secrets: bool = False) -> Sheet:
    """The tree of a record with the octets of ``image``; ``time`` is the text of its time."""
    if has_secrets(event, show_secrets):
        frames = frames_to_show(event) if isinstance(event, Message) else []
        pieces = [piece for piece, frame in zip(image.pieces, frames, strict=False) if type(frame) is not Hidden]
        image = WireImage([] if image.is_whole else pieces, False)
    return _SheetMaker(event, image, time, show_secrets).make()


class _SheetMaker:
    def __init__(self, event: AnyEvent, image: WireImage, time: str, show_secrets: bool) -> None:
        self._event = event
        self._image = image
        self._time = time
        self._show_secrets = show_secrets
        self._octets = image.octets
        self._spans = image.spans()
        self._left = dict.fromkeys(self._spans)  # that have no line yet
        self._fields: list[TreeField] = []

    def make(self) -> Sheet:
        event = self._event
        title = str(event.__struct_config__.tag)
        self._fields.append(TreeField(0, title, "", 0, len(self._octets)))
        for label in ("signature", "flags", "length"):
            self._add_header(1, (label,))
        for field in record_fields(type(event)):
            value = getattr(event, field.name)
            if field.name == "frames" and isinstance(event, Message):
                self._add_frames(event)
            elif value is not None and (field.required or value != field.default):
                self._add(1, field.name, value, (field.name,))
        for name in [name for name in self._left if len(name) == 1]:
            self._add_header(1, name)  # such as padding, which no field says
        return Sheet(self._fields, self._octets, self._image.is_whole)

    def _add_header(self, depth: int, name: Name) -> None:
        if name in self._left:
            start, stop = self._spans[name]
            octets = self._octets[start:stop]
            self._line(depth, name[-1], _header_words(name[-1], octets), name, octets)

    def _line(self, depth: int, label: str, value: str, name: Name, octets: Octets | None = None) -> None:
        start, stop = self._spans.get(name, (0, len(self._octets)))
        self._left.pop(name, None)
        self._fields.append(TreeField(depth, escape(label), value, start, stop, octets))

    def _add_frames(self, event: Message) -> None:
        frames = frames_to_show(event, self._show_secrets)
        identities = 0 if event.envelope is None else event.envelope.identities
        for place, frame in enumerate(frames[:_MOST]):
            name = (f"frames[{place}]",)
            words = f"{plural(len(frame), 'octet')}  " + quote(frame, _SHOWN, "…")
            if place < identities:
                words += "  identity"
            elif event.envelope is not None and event.envelope.delimiter and place == identities:
                words += "  delimiter"
            self._line(1, name[0], words, name, frame)
            for part in ("flags", "length"):
                self._add_header(2, (*name, part))
            if (*name, "body") in self._left:
                self._line(2, "body", "", (*name, "body"), frame)
        if len(frames) > _MOST:
            self._line(1, "…", f"{plural(len(frames) - _MOST, 'more frame')}", ())

    def _add(self, depth: int, label: str, value: Any, name: Name) -> None:
        """Add a value with what is in it."""
        if isinstance(value, Octets):
            self._line(depth, label, f"{plural(len(value), 'octet')}  " + quote(value, _SHOWN, "…"), name, value)
            for part in [part for part in self._left if part[:-1] == name]:
                self._add_header(depth + 1, part)
        elif isinstance(value, Payload):
            self._line(depth, label, f"{escape(value.protocol)}: {escape(value.summary)}", name)
            for key, item in payload_fields(value, everything=True)[:_MOST]:
                self._add(depth + 1, key, item, (*name, key))
        elif isinstance(value, Body):
            self._line(depth, label, f"frame {value.frame + 1} is {escape(value.format)}", name)
            for line in body_text(value).split("\n")[:_MOST]:
                self._line(depth + 1, "", escape(line), name)
        elif isinstance(value, msgspec.Struct):
            self._line(depth, label, "", name)
            for field in record_fields(type(value)):
                item = getattr(value, field.name)
                if item is not None:
                    self._add(depth + 1, field.name, item, (*name, field.name))
        elif isinstance(value, dict):
            self._line(depth, label, "", name)
            for key, item in list(value.items())[:_MOST]:
                self._add(depth + 1, str(key), item, (*name, str(key)))
        elif isinstance(value, list):
            self._line(depth, label, f"{len(value):,}", name)
            for place, item in enumerate(value[:_MOST]):
                self._add(depth + 1, f"[{place}]", item, (*name, str(place)))
        else:
            self._line(depth, label, self._words(label, value), name)
            for part in [part for part in self._left if part[:-1] == name]:
                self._add_header(depth + 1, part)

    def _words(self, label: str, value: Any) -> str:
        if label == "time_ns" and not isinstance(self._event, Capture):
            return f"{value}  {self._time}"
        if label.endswith("_ns"):
            return f"{value}  {brief(value)}"
        if isinstance(value, bool):
            return "true" if value else "false"
        return escape(str(value))


def _header_words(label: str, octets: bytes) -> str:
    if label == "flags":
        bits = [name for bit, name in ((1, "MORE"), (2, "LONG"), (4, "COMMAND")) if octets[0] & bit]
        return f"0x{octets[0]:02x}  {' '.join(bits)}".rstrip()
    if label == "length":
        number = octets[1:] if len(octets) == 9 else octets
        return f"{int.from_bytes(number, 'big'):,}"
    return quote(octets, 32, "…")
