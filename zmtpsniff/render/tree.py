"""The default format: a block of lines for every record, for people who read."""

from collections.abc import Sequence
from typing import TextIO

from dissectors.batches import MessageBatch
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
from zmtpsniff.render.clock import Times, make_clock
from zmtpsniff.render.color import Color
from zmtpsniff.render.fit import columns as width_of
from zmtpsniff.render.look import INDENT, Look
from zmtpsniff.render.message import MessageTree, relations
from zmtpsniff.render.origin import Origin
from zmtpsniff.render.palette import make_palette, make_signs
from zmtpsniff.render.renderer import TextRenderer
from zmtpsniff.render.wording import (
    ENDS,
    beacon_words,
    command_fields,
    command_words,
    greeting_words,
    program,
    protocol,
    topic_words,
)
from zmtpsniff.words.counts import plural
from zmtpsniff.words.durations import brief
from zmtpsniff.words.text import escape, quote

DEFAULT_MAX_BYTES = 64
_TOPICS = 8  # or workers, unless everything is asked for
_SEALED = frozenset({"box", "cookie", "token"})
_BESIDE = 48  # columns of fields that go on the first line of their record, where there is no terminal
_BELOW = 110  # columns of fields that go on one line below it, likewise

_HANDSHAKES = {"complete": "good", "failed": "error", "incomplete": "warning", "not-seen": "dim"}
_ENDS = {"rst": "warning", "timeout": "warning"}


class TreeRenderer(TextRenderer):
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
        times: Times = "absolute",
        width: int | None = None,
    ) -> None:
        """Write to ``stream``; frames that hold a password are left out unless ``show_secrets``.

        ``max_bytes`` of all octets are shown at most (0: no limit). From ``verbosity`` 1 on every field has its line,
        times are in nanoseconds, and text has its dump beside it. Times are local, or ``utc``. Text and fields are
        fitted to ``width`` columns; None: to no terminal.
        """
        super().__init__(stream)
        self._palette = make_palette(stream, color)
        self._paint = self._palette.paint
        signs = make_signs(getattr(stream, "encoding", None))
        self._look = Look(self._palette, signs, max_bytes, verbosity, width)
        self._origin = Origin(self._palette, self._look.signs, make_clock(times, utc, 9 if verbosity else 6), width)
        self._messages = MessageTree(self._look, self._origin, show_secrets)

    def _add(self, event: AnyEvent, lines: list[str]) -> None:
        if isinstance(event, Message):
            self._messages.add(event, lines)
        elif isinstance(event, MessageBatch):
            self._messages.add_batch(event, lines)
        else:
            self._messages.forget()
            before = len(lines)
            self._add_other(event, lines)
            lines[before:] = map(self._look.fitted, lines[before:])

    def _add_other(self, event: AnyEvent, lines: list[str]) -> None:
        """Add the lines of one event that is no message."""
        paint, palette = self._paint, self._palette
        match event:
            case Subscription():
                topic = topic_words(event, self._look.max_bytes, self._look.more)
                lines.append(self._first(event, f"{event.action} {topic}", lines, event.incomplete))
                if self._look.verbosity:
                    lines[-1] += "  " + paint(palette.dim, f"sent as {event.encoding}")
            case Command():
                self._add_command(event, lines)
            case Greeting():
                lines.append(self._first(event, f"greeting {greeting_words(event)}".rstrip(), lines))
                self._add_greeting(event, lines)
            case Beacon():
                lines.append(self._first(event, f"beacon {beacon_words(event)}", lines))
                fields: list[tuple[str, str | Octets]] = [("uuid", escape(event.uuid))]
                fields += [("public key", event.public_key)] if event.public_key is not None else []
                fields += [("data", event.data)] if event.data is not None else []
                self._add_fields(fields, lines)
            case Problem():
                title = paint(getattr(palette, event.severity), f"{event.severity} {escape(event.code)}")
                lines.append(self._origin.of_any(event, lines) + title)
                lines.append(INDENT + escape(event.detail))
            case Comment():
                lines.append(self._origin.of_any(event, lines) + paint(palette.note, "comment"))
                lines += [INDENT + escape(line) for line in event.text.split("\n")]
            case Connection():
                self._add_connection(event, lines)
            case Work():
                self._add_work(event, lines)
            case Capture():
                lines.append(self._capture(event))

    # Records from the wire

    def _first(
        self,
        event: Greeting | Command | Subscription | Beacon,
        words: str,
        lines: list[str],
        incomplete: bool = False,
    ) -> str:
        """The first line of a record from the wire."""
        title = self._paint(self._palette.title, words)
        if incomplete:
            title += self._paint(self._palette.warning, ", incomplete")
        if self._look.verbosity and isinstance(event, Command | Subscription) and event.encrypted:
            title += self._paint(self._palette.note, ", encrypted")
        return self._origin.of_wire(event, lines) + title

    def _add_fields(self, fields: Sequence[tuple[str, str | Octets]], lines: list[str]) -> None:
        """Add fields: beside the first line, or below it, if they fit there; else each on a line of its own."""
        if not fields:
            return
        label = self._palette.label
        shown = [(name, value if isinstance(value, str) else self._look.octets(value)) for name, value in fields]
        line = "  ".join([f"{self._paint(label, name)} {value}" for name, value in shown])
        columns = width_of(line)
        width = self._look.width
        beside = _BESIDE if width is None else width - width_of(lines[-1]) - 2
        below = _BELOW if width is None else width - len(INDENT)
        if not self._look.verbosity and columns <= beside:
            lines[-1] += f"  {line}"
        elif not self._look.verbosity and (len(shown) == 1 or columns <= below):
            lines.append(INDENT + line)
        else:
            width = max([len(name) for name, _ in shown])
            lines += [f"{INDENT}{self._paint(label, f'{name:{width}}')}  {value}" for name, value in shown]

    def _add_command(self, event: Command, lines: list[str]) -> None:
        lines.append(self._first(event, command_words(event), lines, event.incomplete) + relations(event, self._look))
        fields = command_fields(event)
        if not self._look.verbosity:
            # Fields that the first line shows already, and fields that nearly every peer sends and nobody sets.
            told = event.socket_type is not None
            fields = [
                (name, value)
                for name, value in fields
                if not (name.lower() == "socket-type" and told) and not (name.lower() == "identity" and value == b"")
            ]
            # Encrypted octets say nothing to a reader; their length does.
            fields = [
                (name, f"{len(value)} octets" if name in _SEALED and not isinstance(value, str) else value)
                for name, value in fields
            ]
        self._add_fields(fields, lines)

    def _add_greeting(self, event: Greeting, lines: list[str]) -> None:
        fields: list[tuple[str, str | Octets]] = []
        if self._look.verbosity:
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
        if event.identity is not None and (event.identity != b"" or self._look.verbosity):
            fields.append(("identity", event.identity))
        self._add_fields(fields, lines)

    # Totals

    def _add_connection(self, event: Connection, lines: list[str]) -> None:
        """Add the summary of a connection: its end, its two ends below each other, what they agreed on."""
        paint, palette = self._paint, self._palette
        time = self._origin.time(event.end_ns, lines)
        end = paint(getattr(palette, _ENDS.get(event.end, "title")), ENDS[event.end])
        title = paint(palette.title, f"connection {event.flow} over {event.transport}")
        span = brief(event.end_ns - event.start_ns)
        lines.append(f"{time}  {title}, {end} after {span}")

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
            lines.append(f"{INDENT}{paint(color, name)}  {'  '.join(cells).rstrip()}")

        agreed = [] if event.version is None else [protocol(event.version)]
        if event.mechanism is not None:
            agreed.append(escape(event.mechanism))
        if event.handshake is not None:
            style = getattr(palette, _HANDSHAKES[event.handshake])
            agreed.append(paint(style, f"handshake {event.handshake.replace('-', ' ')}"))
        if agreed:
            lines.append(INDENT + ", ".join(agreed))
        if topics := event.subscriptions:
            shown = topics if self._look.everything else topics[:_TOPICS]
            values = "  ".join([self._look.octets(topic) for topic in shown])
            left = len(topics) - len(shown)
            more = f"  {self._look.more.format(f'{left:,}')}" if left else ""
            lines.append(f"{INDENT}{paint(palette.label, 'subscriptions')}  {values}{more}")

    def _add_work(self, event: Work, lines: list[str]) -> None:
        """Add the workers of a PUSH socket with their shares."""
        paint, palette = self._paint, self._palette
        title = f"work of {escape(event.address)}"
        workers, messages = plural(len(event.workers), "worker"), plural(event.messages, "message")
        lines.append(f"{paint(palette.title, title)}  {workers}, {messages}")
        shown = event.workers if self._look.everything else event.workers[:_TOPICS]
        lines += [
            f"{INDENT}{share.share:6.1%}  {escape(share.address)}  {plural(share.messages, 'message')}"
            for share in shown
        ]
        if left := len(event.workers) - len(shown):
            lines.append(f"{INDENT}{self._look.more.format(f'{left:,}')}")

    def _side(self, peer: Peer, messages: int, octets: int) -> tuple[str, ...]:
        """The cells that describe one side of a connection. They have no colours, because they will be aligned."""
        identity = peer.identity
        return (
            escape(peer.address),
            escape(peer.type_name or "") + (" (inferred)" if peer.inferred else ""),
            protocol(peer.version) if peer.version is not None else "",
            plural(messages, "message"),
            plural(octets, "octet"),
            f"identity {quote(identity, self._look.max_bytes, self._look.more)}" if identity else "",
            f"beacon #{peer.beacon}" if peer.beacon is not None else "",
            program(peer.process),
        )

    def _capture(self, event: Capture) -> str:
        """The totals of the run."""
        paint, palette = self._paint, self._palette
        dropped = paint(palette.error, f"{event.dropped:,} dropped") if event.dropped else ""
        problems = plural(event.problems, "problem")
        parts = [
            plural(event.packets, "packet"),
            dropped,
            f"{plural(event.flows, 'connection')}, {event.zmtp_flows:,} of ZMTP",
            plural(event.messages, "message"),
            paint(palette.warning, problems) if event.problems else problems,
            brief(event.duration_ns),
        ]
        return f"{paint(palette.title, 'capture')}  {', '.join([part for part in parts if part])}"
