"""The default format: a block of lines for every record, for people who read."""

import re
from collections.abc import Sequence
from typing import TextIO

from dissectors.events import (
    AnyEvent,
    Beacon,
    Capture,
    Command,
    Comment,
    Connection,
    Greeting,
    Message,
    Octets,
    Peer,
    Problem,
    Subscription,
    Work,
)
from zmtpsniff.render import Color
from zmtpsniff.render.body import body_lines
from zmtpsniff.render.clock import Clock, duration
from zmtpsniff.render.palette import make_palette, make_signs
from zmtpsniff.render.payload import body_text, frames_to_show, payload_fields, payload_words
from zmtpsniff.render.text import at_hand, encodable, escape, quote
from zmtpsniff.render.wording import (
    ENDS,
    beacon_words,
    command_fields,
    command_words,
    greeting_words,
    length_on_wire,
    message_words,
    number,
    protocol,
    relation_words,
    subscription_words,
)

DEFAULT_MAX_BYTES = 64
_FRAMES = 32  # of a message, unless everything is asked for
_TOPICS = 8
_BATCH = 500
_SEALED = frozenset({"box", "cookie", "token"})
_BESIDE = 48  # columns of fields that go on the first line of their record
_BELOW = 110  # columns of fields that go on one line below it
_INDENT = "    "
_SGR = re.compile(r"\x1b\[[0-9;]*m")

# Socket types whose messages carry an envelope that ends in an empty frame.
_WITH_ENVELOPE = {"REQ", "REP", "DEALER", "ROUTER", None}

_RADIO = ("group", "body ")  # what RADIO sends is no list of frames (48/RADIO-DISH)

_HANDSHAKES = {"complete": "good", "failed": "error", "incomplete": "warning", "not-seen": "dim"}
_ENDS = {"rst": "warning", "timeout": "warning"}


class TreeRenderer:
    """Writes events as indented blocks to a text stream, coloured if its terminal takes colours.

    Nothing from the network reaches the stream as a control character, so all colours are those of this module.
    """

    def __init__(
        self,
        stream: TextIO,
        max_bytes: int = DEFAULT_MAX_BYTES,
        verbosity: int = 0,
        utc: bool = False,
        color: Color = "auto",
        show_secrets: bool = False,
    ) -> None:
        """Write to ``stream``; frames that hold a password are left out unless ``show_secrets``.

        ``max_bytes`` of all octets are shown at most (0: no limit). From ``verbosity`` 1 on every field has its line,
        times are in nanoseconds, and text has its dump beside it. Times are local, or ``utc``.
        """
        self._stream = stream
        self._show_secrets = show_secrets
        self._max_bytes = max_bytes
        self._verbosity = verbosity
        self._clock = Clock(utc, 9 if verbosity else 6)
        self._date = ""
        encoding = getattr(stream, "encoding", None)
        self._encodable = encodable(encoding)
        self._signs = make_signs(encoding)
        self._more = f"{self._signs.more} {{}} more"
        self._palette = make_palette(stream, color)
        self._paint = self._palette.paint

    def write(self, events: Sequence[AnyEvent]) -> None:
        """Write the blocks of a batch."""
        for start in range(0, len(events), _BATCH):
            lines: list[str] = []
            for event in events[start : start + _BATCH]:
                self._add(event, lines)
            lines.append("")
            block = "\n".join(lines)
            self._stream.write(self._encodable(block) if self._encodable else block)
        self._stream.flush()

    def close(self) -> None:
        """Flush the stream."""
        self._stream.flush()

    def _add(self, event: AnyEvent, lines: list[str]) -> None:
        """Add the lines of one event."""
        paint, palette = self._paint, self._palette
        match event:
            case Message():
                lines.append(self._first(event, message_words(event), lines, event.incomplete))
                lines[-1] += self._relations(event)
                self._add_frames(event, lines)
                self._add_payload(event, lines)
            case Subscription():
                words = subscription_words(event, self._max_bytes, self._more)
                lines.append(self._first(event, words, lines, event.incomplete))
                if self._verbosity:
                    lines[-1] += "  " + paint(palette.dim, f"sent as {event.encoding}")
            case Command():
                self._add_command(event, lines)
            case Greeting():
                lines.append(self._first(event, greeting_words(event), lines))
                self._add_greeting(event, lines)
            case Beacon():
                lines.append(self._first(event, beacon_words(event), lines))
                fields: list[tuple[str, str | Octets]] = [("uuid", escape(event.uuid))]
                fields += [("public key", event.public_key)] if event.public_key is not None else []
                fields += [("data", event.data)] if event.data is not None else []
                self._add_fields(fields, lines)
            case Problem():
                title = paint(getattr(palette, event.severity), f"{event.severity} {escape(event.code)}")
                lines.append(self._start(event, lines) + title)
                lines.append(_INDENT + escape(event.detail))
            case Comment():
                lines.append(self._start(event, lines) + paint(palette.note, "comment"))
                lines += [_INDENT + escape(line) for line in event.text.split("\n")]
            case Connection():
                self._add_connection(event, lines)
            case Work():
                self._add_work(event, lines)
            case Capture():
                lines.append(self._capture(event))

    # First lines

    def _time(self, time_ns: int, lines: list[str]) -> str:
        """The time of day; the date goes on a line of its own whenever it is another."""
        time = self._clock.time(time_ns)
        if self._clock.date != self._date:
            self._date = self._clock.date
            lines.append(self._paint(self._palette.dim, self._date))
        return self._paint(self._palette.time, time)

    def _start(
        self, event: Greeting | Command | Subscription | Message | Beacon | Problem | Comment, lines: list[str]
    ) -> str:
        """Where a record is from, as far as that is known: time, packet, flow, direction."""
        paint, palette = self._paint, self._palette
        words = [] if event.time_ns is None else [self._time(event.time_ns, lines)]
        place = [] if event.packet is None else [f"{'#' + str(event.packet):>5}"]
        if not isinstance(event, Comment) and event.flow is not None:
            place.append(f"flow {event.flow}")
        if place:
            words.append(paint(palette.place, " ".join(place)))
        if not isinstance(event, Comment) and event.src is not None and event.dst is not None:
            words.append(self._direction(event.src, event.dst))
        return "  ".join([*words, ""])

    def _first(
        self,
        event: Greeting | Command | Subscription | Message | Beacon,
        words: str,
        lines: list[str],
        incomplete: bool = False,
    ) -> str:
        """The first line of a record from the wire."""
        title = self._paint(self._palette.title, words)
        if incomplete:
            title += self._paint(self._palette.warning, ", incomplete")
        return self._start(event, lines) + title

    def _relations(self, event: Message | Command) -> str:
        """What a message or command means to others, behind its first line."""
        words = relation_words(event)
        shown = "  " + self._paint(self._palette.note, ", ".join(words)) if words else ""
        if isinstance(event, Message) and event.matched is not None:
            shown += f"  {self._paint(self._palette.label, 'matches')} {self._octets(event.matched)}"
        return shown

    def _direction(self, src: str, dst: str) -> str:
        """Sender and receiver in the colour of the side that sends.

        A record does not say which side its sender is. Who sees both greet knows the client by its port, the higher
        one, which is given out when it connects.
        """
        color = self._palette.client if _port(src) >= _port(dst) else self._palette.server
        return self._paint(color, f"{escape(src)} {self._signs.arrow} {escape(dst)}")

    # Fields

    def _octets(self, octets: Octets) -> str:
        """Octets on one line, in their colour."""
        shown = quote(octets, self._max_bytes, self._more)
        return self._paint(self._palette.hex if shown.startswith("0x") else self._palette.text, shown)

    def _add_fields(self, fields: Sequence[tuple[str, str | Octets]], lines: list[str]) -> None:
        """Add fields: beside the first line or below it if they fit there, else each on a line of its own."""
        if not fields:
            return
        label = self._palette.label
        shown = [(name, value if isinstance(value, str) else self._octets(value)) for name, value in fields]
        line = "  ".join([f"{self._paint(label, name)} {value}" for name, value in shown])
        columns = len(_SGR.sub("", line))
        if not self._verbosity and columns <= _BESIDE:
            lines[-1] += f"  {line}"
        elif not self._verbosity and (len(shown) == 1 or columns <= _BELOW):
            lines.append(_INDENT + line)
        else:
            width = max([len(name) for name, _ in shown])
            lines += [f"{_INDENT}{self._paint(label, f'{name:{width}}')}  {value}" for name, value in shown]

    def _add_command(self, event: Command, lines: list[str]) -> None:
        lines.append(self._first(event, command_words(event), lines, event.incomplete) + self._relations(event))
        fields = command_fields(event)
        if not self._verbosity:
            # What the first line says already, and what nearly every peer sends and nobody has set.
            told = event.socket_type is not None
            fields = [
                (name, value)
                for name, value in fields
                if not (name.lower() == "socket-type" and told) and not (name.lower() == "identity" and value == b"")
            ]
            # Nobody reads what is encrypted; its length tells something.
            fields = [
                (name, f"{length_on_wire(value)} octets" if name in _SEALED and not isinstance(value, str) else value)
                for name, value in fields
            ]
        self._add_fields(fields, lines)

    def _add_greeting(self, event: Greeting, lines: list[str]) -> None:
        fields: list[tuple[str, str | Octets]] = []
        if self._verbosity:
            fields = [
                (name, escape(value))
                for name, value in (
                    ("version", event.version),
                    ("mechanism", event.mechanism),
                    ("socket type", event.socket_type),
                )
                if value is not None
            ]
            if event.as_server is not None:
                fields.append(("as server", "yes" if event.as_server else "no"))
        if event.identity is not None and (event.identity != b"" or self._verbosity):
            fields.append(("identity", event.identity))
        self._add_fields(fields, lines)

    def _add_frames(self, event: Message, lines: list[str]) -> None:
        """Add the frames of a message: the body alone if it has one, else each with its number and length."""
        paint, palette = self._paint, self._palette
        frames = frames_to_show(event, self._show_secrets)
        shown = frames if self._verbosity or not self._max_bytes else frames[:_FRAMES]
        lengths = [at_hand(frame, 1)[1] for frame in shown]
        width = len(f"{max(lengths, default=0):,}")
        digits = len(str(len(shown)))
        delimiter = self._delimiter(event)
        for index, frame in enumerate(shown):
            data, length = at_hand(frame, self._max_bytes)
            if data is None:
                body = [paint(palette.dim, quote(frame))]
            else:
                body = body_lines(data, length, palette, self._signs, self._verbosity)
            if index == delimiter:
                body[0] = paint(palette.note, "(empty) delimiter")
            elif event.envelope is not None and index < event.envelope.identities:
                body[0] += paint(palette.note, "  identity")
            if len(frames) == 1:
                lines += [_INDENT + line for line in body]
                continue
            name = _RADIO[index] if event.socket_type == "RADIO" and index < 2 else f"frame {index + 1:{digits}}"
            label = f"{name} [{length:{width},}]  "
            lines.append(f"{_INDENT}{paint(palette.label, label)}{body[0]}")
            lines += [f"{_INDENT}{' ' * len(label)}{line}" for line in body[1:]]
        if len(frames) > len(shown):
            left = number(len(frames) - len(shown), "frame").replace(" ", " more ", 1)
            lines.append(_INDENT + paint(palette.dim, f"{self._signs.more} {left}"))

    def _add_payload(self, event: Message, lines: list[str]) -> None:
        """Add what the application says, below the frames that say it."""
        paint, palette = self._paint, self._palette
        if (payload := event.payload) is not None:
            lines.append(_INDENT + paint(palette.title, payload_words(payload)))
            fields = payload_fields(payload, bool(self._verbosity) or not self._max_bytes)
            width = max([len(name) for name, _ in fields], default=0)
            for name, value in fields:
                shown = value if isinstance(value, str) else self._octets(value)
                lines.append(f"{_INDENT * 2}{paint(palette.label, f'{name:{width}}')}  {shown}")
        for body in event.bodies:
            if body.format == "json":
                continue  # the frame itself shows it
            lines.append(f"{_INDENT}{paint(palette.title, f'frame {body.frame + 1} is {escape(body.format)}')}")
            lines += [_INDENT * 2 + escape(line) for line in body_text(body).split("\n")]

    @staticmethod
    def _delimiter(event: Message) -> int | None:
        """Which frame ends the envelope; where that was not looked for, the first empty one that another follows."""
        if event.envelope is not None:
            return event.envelope.identities
        if event.socket_type not in _WITH_ENVELOPE:
            return None
        for index, frame in enumerate(event.frames[:-1]):
            if frame == b"":
                return index
        return None

    # Totals

    def _add_connection(self, event: Connection, lines: list[str]) -> None:
        """Add the summary of a connection: its end, its two ends below each other, what they agreed on."""
        paint, palette = self._paint, self._palette
        time = self._time(event.end_ns, lines)
        end = paint(getattr(palette, _ENDS.get(event.end, "title")), ENDS[event.end])
        title = paint(palette.title, f"connection over {event.transport}")
        span = duration(event.end_ns - event.start_ns)
        place = paint(palette.place, f"flow {event.flow}")
        lines.append(f"{time}  {place}  {title}, {end} after {span}")

        rows = [
            self._side(event.client, event.messages.client, event.octets.client),
            self._side(event.server, event.messages.server, event.octets.server),
        ]
        columns = [max(len(first), len(second)) for first, second in zip(*rows, strict=True)]
        for name, color, row in (("client", palette.client, rows[0]), ("server", palette.server, rows[1])):
            # Numbers to the right, so that they can be compared; words to the left.
            cells = [
                f"{cell:>{width}}" if i in (3, 4) else f"{cell:{width}}"
                for i, (cell, width) in enumerate(zip(row, columns, strict=True))
                if width
            ]
            lines.append(f"{_INDENT}{paint(color, name)}  {'  '.join(cells).rstrip()}")

        agreed = [] if event.version is None else [protocol(event.version)]
        if event.mechanism is not None:
            agreed.append(escape(event.mechanism))
        if event.handshake is not None:
            style = getattr(palette, _HANDSHAKES[event.handshake])
            agreed.append(paint(style, f"handshake {event.handshake.replace('-', ' ')}"))
        if agreed:
            lines.append(_INDENT + ", ".join(agreed))
        if topics := event.subscriptions:
            shown = topics if self._verbosity or not self._max_bytes else topics[:_TOPICS]
            values = "  ".join([self._octets(topic) for topic in shown])
            left = len(topics) - len(shown)
            more = f"  {self._more.format(f'{left:,}')}" if left else ""
            lines.append(f"{_INDENT}{paint(palette.label, 'subscriptions')}  {values}{more}")

    def _add_work(self, event: Work, lines: list[str]) -> None:
        """Add the workers of a PUSH socket with their shares."""
        paint, palette = self._paint, self._palette
        title = f"work of {escape(event.address)}"
        workers, messages = number(len(event.workers), "worker"), number(event.messages, "message")
        lines.append(f"{paint(palette.title, title)}  {workers}, {messages}")
        shown = event.workers if self._verbosity or not self._max_bytes else event.workers[:_TOPICS]
        lines += [
            f"{_INDENT}{share.share:6.1%}  {escape(share.address)}  {number(share.messages, 'message')}"
            for share in shown
        ]
        if left := len(event.workers) - len(shown):
            lines.append(f"{_INDENT}{self._more.format(f'{left:,}')}")

    def _side(self, peer: Peer, messages: int, octets: int) -> tuple[str, ...]:
        """The cells that describe one side of a connection, without colours because they are to be aligned."""
        identity = peer.identity
        return (
            escape(peer.address),
            escape(peer.socket_type or ""),
            protocol(peer.version) if peer.version is not None else "",
            number(messages, "message"),
            number(octets, "octet"),
            f"identity {quote(identity, self._max_bytes, self._more)}" if identity else "",
            f"beacon #{peer.beacon}" if peer.beacon is not None else "",
        )

    def _capture(self, event: Capture) -> str:
        """The totals of the run."""
        paint, palette = self._paint, self._palette
        dropped = paint(palette.error, f"{event.dropped:,} dropped") if event.dropped else ""
        problems = number(event.problems, "problem")
        parts = [
            number(event.packets, "packet"),
            dropped,
            f"{number(event.flows, 'flow')}, {event.zmtp_flows:,} of ZMTP",
            number(event.messages, "message"),
            paint(palette.warning, problems) if event.problems else problems,
            duration(event.duration_ns),
        ]
        return f"{paint(palette.title, 'capture')}  {', '.join([part for part in parts if part])}"


def _port(address: str) -> int:
    """The port of an ``address:port``, 0 if it has none."""
    digits = address.rpartition(":")[2]
    return int(digits) if digits.isdecimal() and digits.isascii() and len(digits) < 6 else 0
