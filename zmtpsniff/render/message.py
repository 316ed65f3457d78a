"""Messages in the tree. Nearly all records are messages, so parts that many of them share are made once."""

from collections.abc import Callable
from functools import lru_cache
from typing import Any

from dissectors.batches import MessageBatch
from dissectors.events import Command, Message, Octets
from dissectors.zmtp.sockets import REQUEST_REPLY
from zmtpsniff.render.batch_text import BatchText, BatchWidths, CommonTexts
from zmtpsniff.render.body import body_lines
from zmtpsniff.render.fit import columns
from zmtpsniff.render.look import INDENT, Look
from zmtpsniff.render.origin import NUMBER, Origin
from zmtpsniff.render.payload import body_text, frames_to_show, payload_fields, payload_words
from zmtpsniff.render.wording import has_relations, message_kind, message_words, relation_words, shown_type
from zmtpsniff.words.counts import plural
from zmtpsniff.words.text import escape, wire_lengths

_FRAMES = 32  # of a message, unless everything is asked for
_IDENTITY = "  identity"
_KEPT = 1024  # titles and labels

# Socket types whose messages carry an envelope that ends in an empty frame.
_WITH_ENVELOPE = REQUEST_REPLY | {None}

_RADIO = ("group", "body ")  # what RADIO sends is no list of frames (48/RADIO-DISH)


class MessageTree:
    """Makes the lines of messages."""

    def __init__(self, look: Look, origin: Origin, show_secrets: bool) -> None:
        """Make them look like that; frames that hold a password are left out unless ``show_secrets``."""
        self._look = look
        self._origin = origin
        self._show_secrets = show_secrets
        self._paint = look.palette.paint
        self._shown_delimiter = self._paint(look.palette.note, "(empty) delimiter")
        self._shown_encrypted = self._paint(look.palette.note, ", encrypted")
        # Most messages are of a few sizes.
        self._title: Callable[[str | None, int, int], str] = lru_cache(_KEPT)(self._make_title)
        self._label: Callable[[bool, int, int, int, int], tuple[str, int]] = lru_cache(_KEPT)(self._make_label)

        self._same: tuple[Any, ...] | None = None  # the facts of the first line made last, and that line
        self._line = ""
        self._batches = self._batch_text() if look.width is None and not look.verbosity and origin.begin else None

    def _batch_text(self) -> BatchText:
        """Makes the lines of batches of messages."""
        look, palette = self._look, self._look.palette
        dim, after_dim = palette.around(palette.dim)
        note, after_note = palette.around(palette.note)
        label, after_label = palette.around(palette.label)
        texts = CommonTexts(
            f"{palette.around(palette.time)[1]}  {palette.place}",
            ", ",
            palette.around(palette.title)[1],
            f"  {note}",
            after_note,
            f'{palette.text}"',
            f'"{palette.reset}',
            f"{dim}{look.signs.more} ",
            after_dim,
            f"{INDENT}{label}frame ",
            f"]  {after_label}",
            self._shown_delimiter,
        )
        widths = BatchWidths(NUMBER, 0, 0, 0, look.max_bytes, True)
        return BatchText(texts, widths, self.add, lambda: self._origin.begin or "", self._body)

    def _body(self, frame: Octets, is_identity: bool) -> list[str]:
        lines = body_lines(frame, self._look)
        if is_identity:
            lines[0] += self._paint(self._look.palette.note, _IDENTITY)
        return lines

    def add_batch(self, batch: MessageBatch, lines: list[str]) -> None:
        """Add messages in columns."""
        if self._batches is not None and self._batches.takes(batch):
            lines += self._batches.lines(batch, [self._side(*sender[:4]) for sender in batch.senders])
            return
        for message in batch.messages():
            self.add(message, lines)

    def _side(self, flow: int, src: str, dst: str, socket_type: str | None) -> str | None:
        """The first line from behind the packet number to the number of frames; None for messages of other labels."""
        if socket_type == "RADIO":
            return None
        return f"{self._origin.side(flow, src, dst)}{self._look.palette.title}{message_kind(socket_type)}, "

    def forget(self) -> None:
        """Another record comes in between: it may change the date, or what there is room for."""
        self._same = None

    def add(self, event: Message, lines: list[str]) -> None:
        """Add a message with its frames, relations and payload."""
        frames, look = event.frames, self._look
        is_single = len(frames) == 1
        octets = sum(wire_lengths(frames))
        line = self._first_line(event, len(frames), octets, lines)
        if event.incomplete:
            line += self._paint(look.palette.warning, ", incomplete")
        if event.encrypted and look.verbosity:
            line += self._shown_encrypted
        told = relations(event, look) if has_relations(event) else ""
        if told and look.is_too_long(told, columns(line)):
            lines.append(look.fitted(line))
            line, told = INDENT, told.lstrip(" ")
        lines.append(look.fitted(line + told))
        if is_single and event.envelope is None and event.payload is None:  # nothing says more of the frame
            body = body_lines(frames[0], look)
            lines.append(INDENT + body[0])
            if len(body) > 1:
                lines += [INDENT + line for line in body[1:]]
        else:
            self._add_frames(event, lines)
        if event.payload is not None or event.bodies:
            self._add_payload(event, lines)

    def _first_line(self, event: Message, frames: int, octets: int, lines: list[str]) -> str:
        """The first line up to the sizes. Messages of a packet often have it in common; then it is made once."""
        same = (
            event.time_ns, event.packet, event.flow, event.src, event.dst, event.socket_type, event.inferred, frames,
            octets,
        )  # fmt: skip
        if same != self._same:
            self._line = self._origin.of_wire(event, lines) + self._title(shown_type(event), frames, octets)
            self._same = same if self._origin.begin else None
        return self._line

    def _make_title(self, socket_type: str | None, frames: int, octets: int) -> str:
        return self._paint(self._look.palette.title, message_words(socket_type, frames, octets))

    def _make_label(self, radio: bool, index: int, digits: int, length: int, width: int) -> tuple[str, int]:
        """The text in front of a frame, and how many columns it takes."""
        name = _RADIO[index] if radio and index < len(_RADIO) else f"frame {index + 1:{digits}}"
        label = f"{name} [{length:{width},}]  "
        return INDENT + self._paint(self._look.palette.label, label), len(INDENT + label)

    def _add_frames(self, event: Message, lines: list[str]) -> None:
        """Add the frames of a message: the body alone if it has one, else each with its number and length."""
        paint, palette = self._paint, self._look.palette
        frames = frames_to_show(event, self._show_secrets)
        shown = frames if self._look.everything else frames[:_FRAMES]
        lengths = wire_lengths(shown)
        width = len(f"{max(lengths, default=0):,}")
        digits = len(str(len(shown)))
        radio = event.socket_type == "RADIO"
        delimiter = _delimiter(event)
        identities = 0 if event.envelope is None else event.envelope.identities
        for index, frame in enumerate(shown):
            body = [self._shown_delimiter] if index == delimiter else self._body(frame, index < identities)
            if len(frames) == 1:
                lines += [INDENT + line for line in body]
                continue
            label, taken = self._label(radio, index, digits, lengths[index], width)
            if self._look.is_too_long(body[0], taken):
                lines.append(label)
                lines += [INDENT + line for line in body]
                continue
            lines.append(label + body[0])
            if len(body) > 1:
                lines += [" " * taken + line for line in body[1:]]
        if len(frames) > len(shown):
            left = plural(len(frames) - len(shown), "frame").replace(" ", " more ", 1)
            lines.append(INDENT + paint(palette.dim, f"{self._look.signs.more} {left}"))

    def _add_payload(self, event: Message, lines: list[str]) -> None:
        """Add what the application says, below the frames that say it."""
        paint, palette = self._paint, self._look.palette
        if (payload := event.payload) is not None:
            lines.append(INDENT + paint(palette.title, payload_words(payload)))
            fields = payload_fields(payload, self._look.everything)
            width = max([len(name) for name, _ in fields], default=0)
            for name, value in fields:
                shown = value if isinstance(value, str) else self._look.octets(value)
                lines.append(f"{INDENT * 2}{paint(palette.label, f'{name:{width}}')}  {shown}")
        for body in event.bodies:
            if body.format == "json":
                continue  # the frame itself shows it
            lines.append(f"{INDENT}{paint(palette.title, f'frame {body.frame + 1} is {escape(body.format)}')}")
            lines += [INDENT * 2 + escape(line) for line in body_text(body).split("\n")]


def relations(event: Message | Command, look: Look) -> str:
    """The relations of a message or command to others, after its first line."""
    words = relation_words(event)
    shown = f"  {look.palette.paint(look.palette.note, ', '.join(words))}" if words else ""
    if isinstance(event, Message) and event.matched is not None:
        shown += f"  {look.palette.paint(look.palette.label, 'matches')} {look.octets(event.matched)}"
    return shown


def _delimiter(event: Message) -> int | None:
    """The frame that ends the envelope. If nobody looked for it, the first empty frame that another frame follows."""
    if event.envelope is not None:
        return event.envelope.identities
    if event.socket_type not in _WITH_ENVELOPE:
        return None
    for index, frame in enumerate(event.frames[:-1]):
        if frame == b"":
            return index
    return None
