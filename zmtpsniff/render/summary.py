"""One line a record, in the manner of tcpdump."""

from collections.abc import Sequence
from functools import lru_cache
from json.encoder import encode_basestring as quoted
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
    Peer,
    Problem,
    Subscription,
    Work,
)
from zmtpsniff.render.clock import Clock, duration
from zmtpsniff.render.payload import frames_to_show, payload_words
from zmtpsniff.render.text import encodable, escape, quote
from zmtpsniff.render.wording import (
    ENDS,
    beacon_words,
    command_fields,
    connection_words,
    greeting_words,
    length_on_wire,
    peer_words,
    relation_words,
    subscription_words,
)

DEFAULT_MAX_BYTES = 32
_FRAMES = 8  # of a message on one line, and topics of a connection, unless all are asked for
_NO_LIMIT = 1 << 63
_BATCH = 1000  # lines put together at a time: larger strings leave the processor's cache
_MORE = "..."  # ASCII, so that a line can be searched for from any terminal


class SummaryRenderer:
    """Writes one line for every event to a text stream, safe for any terminal, and one whenever the date changes."""

    def __init__(
        self,
        stream: TextIO,
        max_bytes: int = DEFAULT_MAX_BYTES,
        verbosity: int = 0,
        utc: bool = False,
        show_secrets: bool = False,
    ) -> None:
        """Write to ``stream``, ``max_bytes`` of all octets at most (0: no limit), in local time or UTC.

        From ``verbosity`` 1 on all frames and topics are shown, what greetings and subscriptions say by their encoding,
        and times are in nanoseconds. Frames that hold a password are left out unless ``show_secrets``.
        """
        self._stream = stream
        self._show_secrets = show_secrets
        self._max_bytes = max_bytes
        self._verbosity = verbosity
        self._most = _FRAMES if max_bytes and not verbosity else _NO_LIMIT
        self._clock = Clock(utc, 9 if verbosity else 6)
        self._date = ""
        self._encodable = encodable(getattr(stream, "encoding", None))

    def write(self, events: Sequence[AnyEvent]) -> None:
        """Write the lines of a batch."""
        for start in range(0, len(events), _BATCH):
            lines = self._lines(events[start : start + _BATCH])
            self._stream.write(self._encodable(lines) if self._encodable else lines)
        self._stream.flush()

    def close(self) -> None:
        """Flush the stream."""
        self._stream.flush()

    def _lines(self, events: Sequence[AnyEvent]) -> str:
        # As in the JSON Lines: what messages of one sender and one packet have in common is made once, and short ASCII,
        # which is nearly everything, is told by its quoted length.
        time_ns = packet = flow = src = dst = socket_type = None
        sender = head = ""
        limit = self._max_bytes or _NO_LIMIT
        most = self._most
        clock = self._clock
        parts: list[str] = []
        for event in events:
            if not isinstance(event, Message):
                line = self._line(event)
                if clock.date != self._date:
                    parts.append(self._new_date())
                    packet = None  # the next message may be of the date before
                parts.append(line)
                continue
            if (
                event.src is not src
                or event.flow is not flow
                or event.dst is not dst
                or event.socket_type is not socket_type
            ):
                flow, src, dst, socket_type = event.flow, event.src, event.dst, event.socket_type
                sender = _of_sender(flow, src, dst, socket_type)
                packet = None
            if event.packet is not packet or event.time_ns is not time_ns:
                packet, time_ns = event.packet, event.time_ns
                head = f"{clock.time(time_ns)} #{packet} {sender}"
                if clock.date != self._date:
                    parts.append(self._new_date())
            frames = event.frames
            count = len(frames)
            if count > 2:  # fewer hold no credentials that are known
                frames = frames_to_show(event, self._show_secrets)
            total = 0
            shown: list[str] = []
            for frame in frames if count <= most else frames[:most]:
                if not frame:
                    shown.append('""')
                elif (
                    type(frame) is bytes
                    and (length := len(frame)) <= limit
                    and frame.isascii()
                    and len(text := quoted(frame.decode())) == length + 2
                    and 127 not in frame
                ):
                    total += length
                    shown.append(text)
                else:
                    total += length_on_wire(frame)
                    shown.append(quote(frame, self._max_bytes, _MORE))
            if count > most:
                total += sum([length_on_wire(frame) for frame in frames[most:]])
                shown.append(f"{_MORE} {_plain(count - most, 'more frame')}")
            if event.payload is not None:
                if not self._verbosity:
                    shown.clear()
                shown.append(payload_words(event.payload))
            if event.incomplete:
                shown.append("(incomplete)")
            if event.request is not None or event.matched is not None or event.forwards is not None:
                shown += self._relations(event)
            octets = "1 octet" if total == 1 else f"{total} octets"
            words = "1 frame" if count == 1 else f"{count} frames"
            parts.append(f"{head}{words} {octets} {' '.join(shown)}\n")
        return "".join(parts)

    def _relations(self, event: Message) -> list[str]:
        words = relation_words(event)
        if event.matched is not None:
            words.append(f"matches {quote(event.matched, self._max_bytes, _MORE)}")
        return [f"({', '.join(words)})"]

    def _new_date(self) -> str:
        """The line that tells the date of what follows; none at the beginning, as in tcpdump."""
        before, self._date = self._date, self._clock.date
        return f"{self._date}\n" if before else ""

    def _place(self, event: Greeting | Command | Subscription | Beacon) -> str:
        return (
            f"{self._clock.time(event.time_ns)} #{event.packet} flow {event.flow} "
            f"{escape(event.src)} > {escape(event.dst)}"
        )

    def _line(
        self,
        event: Greeting | Command | Subscription | Beacon | Problem | Comment | Connection | Work | Capture,
    ) -> str:
        match event:
            case Greeting():
                words = greeting_words(event)
                if self._verbosity and event.as_server is False:
                    words += " as-server=no"
                if event.identity is not None:
                    words += f" identity {quote(event.identity, self._max_bytes, _MORE)}"
                line = f"{self._place(event)}: {words}"
            case Command():
                line = f"{self._place(event)}: {self._command(event)}"
            case Subscription():
                incomplete = " (incomplete)" if event.incomplete else ""
                line = f"{self._place(event)}: {subscription_words(event, self._max_bytes, _MORE)}{incomplete}"
                if self._verbosity:
                    line += f" sent as {event.encoding}"
            case Beacon():
                line = f"{self._place(event)}: {beacon_words(event)} uuid {escape(event.uuid)}"
                for name, value in (("public-key", event.public_key), ("data", event.data)):
                    if value is not None:
                        line += f" {name}={quote(value, self._max_bytes, _MORE)}"
            case Problem():
                line = self._problem(event)
            case Comment():
                place = "" if event.time_ns is None else f"{self._clock.time(event.time_ns)} "
                place += "" if event.packet is None else f"#{event.packet} "
                line = f'{place}comment "{escape(event.text)}"'
            case Connection():
                line = self._connection(event)
            case Work():
                line = self._work(event)
            case Capture():
                line = (
                    f"capture {_plain(event.packets, 'packet')}, {event.dropped} dropped, "
                    f"{_plain(event.flows, 'flow')}, {event.zmtp_flows} of ZMTP, {_plain(event.messages, 'message')}, "
                    f"{_plain(event.problems, 'problem')}, {duration(event.duration_ns)}"
                )
        return line + "\n"

    def _command(self, event: Command) -> str:
        words = [escape(event.name)]
        for name, value in command_fields(event):
            shown = value if isinstance(value, str) else quote(value, self._max_bytes, _MORE)
            words.append(f"{name.replace(' ', '-')}={shown}")
        if event.incomplete:
            words.append("(incomplete)")
        if relations := relation_words(event):
            words.append(f"({', '.join(relations)})")
        return " ".join(words)

    def _work(self, event: Work) -> str:
        shown = event.workers[: self._most]
        shares = [f"{escape(share.address)} {share.share:.1%} {_plain(share.messages, 'message')}" for share in shown]
        if left := len(event.workers) - len(shown):
            shares.append(f"{_MORE} {left} more")
        return f"work of {escape(event.address)}: {_plain(event.messages, 'message')}, {', '.join(shares)}"

    def _problem(self, event: Problem) -> str:
        words = [] if event.time_ns is None else [self._clock.time(event.time_ns)]
        if event.packet is not None:
            words.append(f"#{event.packet}")
        if event.flow is not None:
            words.append(f"flow {event.flow}")
        if event.src is not None and event.dst is not None:
            words.append(f"{escape(event.src)} > {escape(event.dst)}:")
        words += [event.severity, f"{escape(event.code)}:", escape(event.detail)]
        return " ".join(words)

    def _connection(self, event: Connection) -> str:
        def end(peer: Peer) -> str:
            announced = peer_words(peer, self._max_bytes, _MORE)
            return f"{escape(peer.address)} ({announced})" if announced else escape(peer.address)

        words = f"{self._clock.time(event.end_ns)} flow {event.flow} {end(event.client)} > {end(event.server)}: "
        words += f"connection {event.transport}"
        if agreed := connection_words(event):
            words += f" {agreed}"
        for side, messages, octets in (
            ("client", event.messages.client, event.octets.client),
            ("server", event.messages.server, event.octets.server),
        ):
            words += f", {side} sent {_plain(messages, 'message')} {_plain(octets, 'octet')}"
        words += f", {ENDS[event.end]} after {duration(event.end_ns - event.start_ns)}"
        if event.subscriptions:
            topics = [quote(topic, self._max_bytes, _MORE) for topic in event.subscriptions[: self._most]]
            left = len(event.subscriptions) - len(topics)
            words += f", subscriptions {' '.join(topics)}" + (f" {_MORE} {left} more" if left else "")
        return words


@lru_cache(512)
def _of_sender(flow: int, src: str, dst: str, socket_type: str | None) -> str:
    """What the lines of all messages of one sender have in common after the packet number."""
    kind = f"{escape(socket_type)} " if socket_type else ""
    return f"flow {flow} {escape(src)} > {escape(dst)}: message {kind}"


def _plain(count: int, noun: str) -> str:
    """A count with its noun and without thousands separators, for who cuts lines with awk."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
