"""One line a record, in the manner of tcpdump."""

from typing import Any, TextIO

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
    Problem,
    Subscription,
    Work,
)
from zmtpsniff.render.batch_text import BatchText, BatchWidths, CommonTexts
from zmtpsniff.render.clock import Times, make_clock
from zmtpsniff.render.color import Color
from zmtpsniff.render.fit import fitted
from zmtpsniff.render.line_columns import COMPACT, Columns, Widths
from zmtpsniff.render.palette import make_palette
from zmtpsniff.render.payload import frames_to_show, payload_words
from zmtpsniff.render.renderer import TextRenderer
from zmtpsniff.render.wording import (
    beacon_words,
    connection_words,
    end_words,
    field_words,
    greeting_words,
    has_relations,
    peer_words,
    relation_words,
    shown_type,
    topic_words,
)
from zmtpsniff.words.counts import plural_noun
from zmtpsniff.words.durations import brief
from zmtpsniff.words.text import escape, quote, wire_lengths

DEFAULT_MAX_BYTES = 32
_FRACTION = 6  # digits of a second, unless more is asked for
_FRAMES = 8  # frames of a message, and topics of a connection, on one line, unless the user asks for all
_NO_LIMIT = 1 << 63
_MORE = "..."  # ASCII, so that a line can be searched for from any terminal


class SummaryRenderer(TextRenderer):
    """Writes one line for every event to a text stream, safe for any terminal, and one whenever the date changes."""

    _together = 1000

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
        aligned: bool = True,
    ) -> None:
        """Write to ``stream``, ``max_bytes`` of all octets at most (0: no limit), in local time or UTC.

        From ``verbosity`` 1 on all frames and topics are shown, what greetings and subscriptions say by their encoding,
        and times are in nanoseconds. Frames that hold a password are left out unless ``show_secrets``. What peers say
        is cut to fit ``width`` columns, those of a terminal, and may fill them; None: as long as ``max_bytes`` lets it.
        A longer text about a problem or a whole connection, which zmtpsniff says only once, continues in a second line.
        Columns are ``aligned``, or have one blank between them.
        """
        super().__init__(stream)
        self._show_secrets = show_secrets
        self._max_bytes = max_bytes
        # The last frame has the content. The frames before it are mostly short, and must not take its room.
        self._last_bytes = max_bytes if width is None else max(max_bytes, width)
        self._width = width
        self._verbosity = verbosity
        self._most = _FRAMES if max_bytes and not verbosity else _NO_LIMIT
        self._clock = make_clock(times, utc, 9 if verbosity else _FRACTION)
        self._date = ""
        self._palette = make_palette(stream, color)
        widths = Widths(self._clock.columns) if aligned else COMPACT
        self._columns = Columns(self._palette, widths, width)
        self._batches = self._batch_text(widths) if width is None and not verbosity and self._clock.begin else None
        self._same: tuple[Any, ...] | None = None  # the facts in the columns in front of the text made last, and these
        self._columns_before = ""

    def _batch_text(self, widths: Widths) -> BatchText:
        """Makes the lines of batches of messages."""
        return BatchText(
            CommonTexts(" ", " ", " ", " (", ")", '"', '"', _MORE, ""),
            BatchWidths(widths.packet, widths.frames, widths.octets, widths.noun, self._max_bytes, False),
            self._add_message,
            lambda: self._columns.begin(self._clock.begin or "", _FRACTION),
            lambda octets, _: [quote(octets, self._max_bytes, _MORE)],
        )

    def _add_batch(self, batch: MessageBatch, lines: list[str]) -> None:
        """Add the lines of messages in columns."""
        if self._batches is not None and self._batches.takes(batch):
            sides = [self._columns.side(*sender[:4]) for sender in batch.senders]
            if None not in sides:
                lines += self._batches.lines(batch, sides)
                return
        for message in batch.messages():
            self._add_message(message, lines)

    def _add(self, event: AnyEvent, lines: list[str]) -> None:
        palette, kind = self._palette, self._columns.kind
        if isinstance(event, Message):
            self._add_message(event, lines)
            return
        self._same = None  # a record in between may change the date and the widths of columns
        match event:
            case MessageBatch():
                self._add_batch(event, lines)
            case Greeting():
                self._add_line(event, kind("greeting", palette.label), self._greeting(event), lines)
            case Command():
                words = field_words(event, self._max_bytes, _MORE, bool(self._verbosity))
                self._add_line(event, kind(escape(event.name), palette.label), words, lines)
            case Subscription():
                self._add_line(event, kind(event.action, palette.good), self._subscription(event), lines)
            case Beacon():
                self._add_line(event, kind("beacon", palette.good), self._beacon(event), lines)
            # Such records are rare, and nothing else shows their text. So it is not cut, but broken between words.
            case Problem():
                start = self._start(event, lines)
                severity = kind(event.severity, getattr(palette, event.severity))
                lines.append(self._fit(f"{start}{severity}{escape(event.code)}: {escape(event.detail)}"))
            case Comment():
                time = self._time(event.time_ns, lines)
                start = self._columns.start(time, event.packet)
                lines.append(self._fit(f'{start}{kind("comment", palette.note)}"{escape(event.text)}"'))
            case Connection():
                time = self._time(event.end_ns, lines)
                start = self._columns.start(time, None, event.flow, event.client.address, event.server.address)
                lines.append(self._fit(f"{start}{kind('connection', palette.title)}{self._connection(event)}"))
            case Work():
                lines.append(self._fit(f"{kind('work', palette.title)}{self._work(event)}"))
            case Capture():
                lines.append(self._fit(f"{kind('capture', palette.title)}{_totals(event)}"))

    def _fit(self, line: str) -> str:
        return fitted(line, self._width)

    def _time(self, time_ns: int | None, lines: list[str]) -> str:
        """The time; a new date gets a line of its own, but the first one none, as in tcpdump."""
        time = "" if time_ns is None else self._clock.time(time_ns)
        if self._clock.date != self._date:
            if self._date:
                lines.append(self._palette.paint(self._palette.dim, self._clock.date))
            self._date = self._clock.date
        return time

    def _start(self, event: Greeting | Command | Subscription | Beacon | Message | Problem, lines: list[str]) -> str:
        """The columns in front of the kind of a record."""
        time = self._time(event.time_ns, lines)
        return self._columns.start(time, event.packet, event.flow, event.src, event.dst)

    def _add_line(
        self, event: Greeting | Command | Subscription | Beacon, kind: str, text: str, lines: list[str]
    ) -> None:
        start = self._start(event, lines)
        lines.append(f"{start}{kind}{self._columns.text(text)}".rstrip())

    def _add_message(self, event: Message, lines: list[str]) -> None:
        """Add a message with its frames, payload and relations."""
        frames = event.frames
        count = len(frames)
        octets = sum(wire_lengths(frames))
        same = (
            event.time_ns, event.packet, event.flow, event.src, event.dst, event.socket_type, event.inferred, count,
            octets,
        )  # fmt: skip
        if same != self._same:  # messages of a packet often have these columns in common
            start = self._start(event, lines)
            self._columns_before = f"{start}{self._columns.message(shown_type(event), count, octets)}"
            self._same = same if self._clock.begin else None
        is_plain = count == 1 and event.payload is None
        words = quote(frames[0], self._last_bytes, _MORE) if is_plain else self._content(event)
        remarks = " (incomplete)" if event.incomplete else ""
        if event.encrypted and self._verbosity:
            remarks += " (encrypted)"
        short = remarks
        if has_relations(event):
            remarks += self._relations(event)
            short += "" if event.latency_ns is None else f" ({brief(event.latency_ns)})"
        text = self._columns.text(words, remarks, True, short)
        lines.append(f"{self._columns_before}{text}")

    def _content(self, event: Message) -> str:
        """The frames and the payload of a message."""
        count = len(event.frames)
        frames = frames_to_show(event, self._show_secrets)[: self._most]
        shown = [quote(frame, self._max_bytes, _MORE) if frame else '""' for frame in frames[:-1]]
        if frames:
            shown.append(quote(frames[-1], self._last_bytes, _MORE))
        if count > self._most:
            shown.append(f"{_MORE} {_plain(count - self._most, 'more frame')}")
        if event.payload is not None:
            if not self._verbosity:
                shown.clear()
            shown.append(payload_words(event.payload))
        return " ".join(shown)

    def _relations(self, event: Message) -> str:
        words = relation_words(event)
        if event.matched is not None:
            words.append(f"matches {quote(event.matched, self._max_bytes, _MORE)}")
        return f" ({', '.join(words)})"

    def _greeting(self, event: Greeting) -> str:
        words = greeting_words(event)
        if self._verbosity and event.as_server is False:
            words += " as-server=no"
        if event.identity is not None:
            words += f" identity {quote(event.identity, self._max_bytes, _MORE)}"
        return words

    def _subscription(self, event: Subscription) -> str:
        words = topic_words(event, self._max_bytes, _MORE)
        if event.incomplete:
            words += " (incomplete)"
        if self._verbosity:
            words += f" sent as {event.encoding}" + (" (encrypted)" if event.encrypted else "")
        return words

    def _beacon(self, event: Beacon) -> str:
        words = f"{beacon_words(event)} uuid {escape(event.uuid)}"
        for name, value in (("public-key", event.public_key), ("data", event.data)):
            if value is not None:
                words += f" {name}={quote(value, self._max_bytes, _MORE)}"
        return words

    def _work(self, event: Work) -> str:
        shown = event.workers[: self._most]
        shares = [f"{escape(share.address)} {share.share:.1%} {_plain(share.messages, 'message')}" for share in shown]
        if left := len(event.workers) - len(shown):
            shares.append(f"{_MORE} {left} more")
        return f"of {escape(event.address)}: {_plain(event.messages, 'message')}, {', '.join(shares)}"

    def _connection(self, event: Connection) -> str:
        words: str = event.transport
        if agreed := connection_words(event):
            words += f" {agreed}"
        for side, peer, messages, octets in (
            ("client", event.client, event.messages.client, event.octets.client),
            ("server", event.server, event.messages.server, event.octets.server),
        ):
            announced = peer_words(peer, self._max_bytes, _MORE)
            words += f", {side} {announced + ' ' if announced else ''}sent {_plain(messages, 'message')} "
            words += _plain(octets, "octet")
        words += f", {end_words(event)}"
        if event.subscriptions:
            topics = [quote(topic, self._max_bytes, _MORE) for topic in event.subscriptions[: self._most]]
            left = len(event.subscriptions) - len(topics)
            words += f", subscriptions {' '.join(topics)}" + (f" {_MORE} {left} more" if left else "")
        return words


def _totals(event: Capture) -> str:
    return (
        f"{_plain(event.packets, 'packet')}, {event.dropped} dropped, {_plain(event.flows, 'connection')}, "
        f"{event.zmtp_flows} of ZMTP, {_plain(event.messages, 'message')}, {_plain(event.problems, 'problem')}, "
        f"{brief(event.duration_ns)}"
    )


def _plain(count: int, noun: str) -> str:
    """A number with its noun and without thousands separators, for people who split lines with awk."""
    return f"{count} {noun if count == 1 else plural_noun(noun)}"
