"""Payloads: asks the dissectors of application protocols about each message, and adds the payload to it."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec

from dissectors.batches import BatchSide, MessageBatch, has_batches
from dissectors.events import AnyEvent, Body, Command, Connection, Greeting, Message, Payload, Place
from dissectors.payloads import PayloadConnection, PayloadDissector, has_signature
from zmtpsniff.analysis.dossier import Dossier, Dossiers
from zmtpsniff.analysis.insertions import Problems, inserted
from zmtpsniff.analysis.patterns.conversation import latency_ns
from zmtpsniff.analysis.plugins import file_of, place_of
from zmtpsniff.decode_as import DecodeAs, DecodeAsError

_ENOUGH = 0.5  # a dissector that is at least so certain gets the message
_UNKNOWN = 32  # after so many unknown messages in a row, the connection's messages are asked about rarely
_RARELY = 1009  # then one message in so many
_TOGETHER = 64  # messages in columns that become objects together
_REMEMBERED = 1000  # messages of a connection to remember, since later ones may answer them
_MANY_FRAMES = 16  # from so many on, messages are the same to those that want a number of frames
_DEPTH = 64  # the deepest lists in lists: deeper than people look, and far from Python's limit


class _Track(msgspec.Struct, eq=False):
    """The payload stage's view of one connection."""

    connection: PayloadConnection
    forced: PayloadDissector | None = None  # the dissector that the user names
    known: list[PayloadDissector] = []  # dissectors that knew messages of the connection
    unknown: int = 0  # messages in a row that no dissector knew
    times: dict[Place, int] = {}  # of the last known messages
    states: dict[str, dict[Any, Any]] = {}  # name of a dissector to its state


_NEW = _Track(PayloadConnection(0, "", ""))  # stands for the view of a connection of which nothing is known yet


class Payloads:
    """Takes all events of a capture, in order, and sets the payload of messages."""

    def __init__(
        self,
        dissectors: Sequence[PayloadDissector],
        decode_as: Sequence[DecodeAs] = (),
        show_secrets: bool = False,
        bodies: Callable[[Message], list[Body]] | None = None,
    ) -> None:
        """Ask ``dissectors`` in their order; ``decode_as`` may name one for a port.

        ``bodies`` decodes the frames of a message; with None they are not decoded.

        Raises DecodeAsError if ``decode_as`` names an unknown dissector.
        """
        self._dissectors = list(dissectors)
        unsigned = [dissector for dissector in self._dissectors if not _signature(dissector)]
        most = max(map(_least_frames, unsigned), default=0)
        # Those to ask about messages without a signature, by the number of frames; the last about longer ones, too.
        self._unsigned = [[one for one in unsigned if _least_frames(one) <= frames] for frames in range(most + 1)]
        self._signatures = tuple({_signature(dissector) for dissector in self._dissectors} - {b""})
        self._show_secrets = show_secrets
        self._bodies = bodies
        by_name = {dissector.name: dissector for dissector in reversed(self._dissectors)}
        self._forced: list[tuple[DecodeAs, PayloadDissector]] = []
        for rule in decode_as:
            if rule.payload:
                if rule.payload not in by_name:
                    raise DecodeAsError(f"protocol {rule.payload!r} is none of zmtp, {', '.join(sorted(by_name))}")
                self._forced.append((rule, by_name[rule.payload]))
        self._tracks: dict[int, _Track | None] = {0: None}  # by flow; None: no dissector knows it, or it is 0, no flow
        self._dossiers = Dossiers()
        self._problems = Problems()
        self._failed: set[int] = set()
        self._seen = 0

    def take(self, events: list[AnyEvent]) -> list[AnyEvent]:
        """Add payloads to a batch of events. Returns them, with a warning where a dissector failed.

        Messages in columns become objects as long as a dissector may know messages of their connection.
        """
        taken: list[AnyEvent] = []
        found: list[tuple[int, AnyEvent]] = []
        for part in self._parts(events):
            if not self._seen % _RARELY:
                self._ask_again(part[0])
            self._look(part, len(taken), found)
            if self._bodies is not None:
                _decode(part, self._bodies)
            taken += part
        return inserted(taken, found) if found else taken

    def _look(self, events: list[AnyEvent], place: int, found: list[tuple[int, AnyEvent]]) -> None:
        """Look at events, the first of which is at ``place``; ``found`` gets the problems, each with its place."""
        tracks, problems = self._tracks, self._problems
        unknown = None  # the flow of the messages before, if no dissector knows it
        for event in events:
            place += 1
            if type(event) is Message:
                if event.flow is unknown:
                    continue
                track = tracks.get(event.flow, _NEW)
                if track is None:
                    unknown = event.flow
                    continue
                if track is _NEW:
                    track = self._begin(event)
                if not event.incomplete:
                    self._message(track, event)
                    if problems.new:
                        found += problems.placed(place)
            elif type(event) is Command or type(event) is Greeting:
                if event.socket_type is not None:
                    self._dossiers.at(event).learn(event)
            elif type(event) is Connection:
                unknown = None
                tracks.pop(event.flow, None)
                self._dossiers.pop(event.flow)

    def put_aside(self, flow: int) -> tuple[Dossier | None, dict[int, _Track | None]] | None:
        """Give the facts of a flow away; None if they must stay here, since a dissector knows them."""
        track = self._tracks.get(flow)
        if track is not None and (track.known or track.forced):
            return None
        tracks = {flow: self._tracks.pop(flow)} if flow in self._tracks else {}
        return self._dossiers.pop(flow), tracks

    def take_up(self, facts: tuple[Dossier | None, dict[int, _Track | None]]) -> None:
        """Take the facts of a flow back."""
        dossier, tracks = facts
        self._dossiers.put(dossier)
        self._tracks |= tracks

    def _parts(self, events: list[Any]) -> Iterator[list[Any]]:
        """The events in parts, with objects for the messages in columns that a dissector may know.

        Where the number of events seen so far says so, a part begins: its first message is asked about again. After
        each part take() may know that no dissector wants a connection, so the next one may stay in columns.
        """
        if not has_batches(events):
            yield from self._objects(events)
            return
        part: list[Any] = []
        count = 0  # of events in the part, each message of a batch for itself
        for event in events:
            is_batch = isinstance(event, MessageBatch)
            size = len(event) if is_batch else 1
            joins = size <= -(self._seen + count) % _RARELY
            # Events of the part so far make no dissector want a batch that leaves, unless one of them is asked about.
            if is_batch:
                joins = joins and self._seen % _RARELY > 0 and all(map(self._leaves, event.senders))
            if part and not joins:
                yield part
                self._seen += count
                part, count = [], 0
            if is_batch and not joins:
                yield from self._opened(event)
            else:
                part.append(event)
                count += size
        if part:
            yield part
            self._seen += count

    def _objects(self, events: list[Any]) -> Iterator[list[Any]]:
        """The parts of events that are no columns."""
        begin, size = 0, len(events)
        while begin < size:
            end = min(begin + _RARELY - self._seen % _RARELY, size)
            yield events[begin:end]
            self._seen += end - begin
            begin = end

    def _opened(self, batch: MessageBatch) -> Iterator[list[Any]]:
        """The parts of messages in columns."""
        begin, size = 0, len(batch)
        while begin < size:
            ahead = -self._seen % _RARELY
            most = _TOGETHER
            if all(map(self._leaves, batch.senders)):
                most = size
                while begin + ahead < size and not self._is_known(batch, begin + ahead):
                    ahead += _RARELY
            end = min(begin + min(ahead, most), size) if ahead else begin + 1
            part = batch if end - begin == size else batch.part(begin, end)
            yield part.split(self._leaves) if ahead else part.messages()
            self._seen += end - begin
            begin = end

    def _leaves(self, side: BatchSide) -> bool:
        """Whether no dissector wants the messages of a side."""
        return self._bodies is None and self._tracks.get(side.flow, self) is None

    def _is_known(self, batch: MessageBatch, place: int) -> bool:
        """Whether a dissector knows a message that stays in columns otherwise, or fails on it.

        The answer changes nothing: take() asks again about the messages that are opened.
        """
        (event,) = batch.part(place, place + 1).messages()
        self._message(self._begin_late(event), event)
        is_known = self._tracks[event.flow] is not None
        self._tracks[event.flow] = None
        return is_known or bool(self._problems.new)

    def _ask_again(self, event: AnyEvent) -> None:
        """Ask about a message once more if no dissector knew its connection."""
        if type(event) is Message and self._tracks.get(event.flow, _NEW) is None:
            self._begin_late(event)

    def _begin_late(self, event: Message) -> _Track:
        """Ask about a connection once more whose messages no dissector knew: its protocol may begin late."""
        track = self._begin(event)
        track.unknown = _UNKNOWN - 1
        return track

    def _begin(self, event: Message) -> _Track:
        connection = PayloadConnection(event.flow, event.src, event.dst, self._show_secrets)
        connection.socket_types = self._dossiers.at(event).types
        track = self._tracks[event.flow] = _Track(connection)
        for rule, dissector in self._forced:
            if rule.matches("tcp", connection.port(event.src), connection.port(event.dst)):
                track.forced = dissector
                break
        return track

    def _message(self, track: _Track, event: Message) -> None:
        """Find the dissector that knows the message. Those that knew other messages of the connection come first."""
        if track.forced is not None:
            self._dissect(track, track.forced, event)
            return
        if track.known:
            dissector = self._ask(track, track.known, event)
            if dissector is not None:
                self._dissect(track, dissector, event)
                return
        if track.unknown < _UNKNOWN:
            frames, unsigned = event.frames, self._unsigned
            if has_signature(frames, self._signatures):
                asked = self._dissectors
            else:
                asked = unsigned[len(frames)] if len(frames) < len(unsigned) else unsigned[-1]
            dissector = self._ask(track, asked, event)
            if dissector is not None and self._dissect(track, dissector, event):
                track.unknown = 0
                if dissector not in track.known:
                    track.known.append(dissector)
                return
            track.unknown += 1
        if track.unknown >= _UNKNOWN and not track.known:
            self._tracks[event.flow] = None

    def _ask(self, track: _Track, dissectors: list[PayloadDissector], event: Message) -> PayloadDissector | None:
        """The dissector that is most certain to know the message."""
        best, most = None, 0.0
        connection, states = track.connection, track.states
        for dissector in dissectors:
            connection.state = states.get(dissector.name, {}) if states else {}
            try:
                certainty = dissector.match(event, connection)
            except Exception as error:  # a plug-in may raise anything
                self._fail(dissector, event, error)
                continue
            if certainty and certainty >= _ENOUGH and certainty > most:
                best, most = dissector, float(certainty)
                if most >= 1:
                    break
        return best

    def _dissect(self, track: _Track, dissector: PayloadDissector, event: Message) -> bool:
        track.connection.state = track.states.setdefault(dissector.name, {})
        try:
            payload = dissector.dissect(event, track.connection)
        except Exception as error:
            self._fail(dissector, event, error)
            return False
        if payload is not None and not isinstance(payload, Payload):
            self._fail(dissector, event, TypeError(f"{type(payload).__name__} is no Payload"))
            return False
        event.payload = payload
        if payload is None:
            return False
        if _is_deep(payload.fields, _DEPTH):
            payload.fields = _cut(payload.fields, _DEPTH)
        _join(track, event, payload.fields.get("request"), payload.fields.get("request_part"))
        return True

    def _fail(self, dissector: PayloadDissector, event: Message, error: Exception) -> None:
        """Report a dissector that failed, once."""
        if id(dissector) in self._failed:
            return
        self._failed.add(id(dissector))
        code = "payload-dissector-failed"
        place = place_of(error, file_of(dissector)) or place_of(error)
        where = f" ({place})" if place else ""
        detail = f"the dissector {dissector.name!r} failed on a message: {type(error).__name__}: {error}{where}"
        self._problems.report(code, event, detail)


def _decode(events: list[AnyEvent], bodies: Callable[[Message], list[Body]]) -> None:
    for event in events:
        if type(event) is Message and not (event.payload is not None and event.payload.secrets):
            event.bodies = bodies(event)


def _join(track: _Track, event: Message, request: object, part: object) -> None:
    """The request that the application names replaces the one that only the order of messages suggests."""
    times = track.times
    if isinstance(request, int):
        place = Place(event.flow, request, part if isinstance(part, int) else 1)
        if place in times:
            event.request, event.request_part, event.paired = place.packet, place.part, None
            event.latency_ns = latency_ns(event, times[place])
    times[event.place] = event.time_ns
    if len(times) > _REMEMBERED:
        del times[next(iter(times))]


def _is_deep(value: Any, most: int) -> bool:
    """Whether lists and dicts are inside each other more than ``most`` times."""
    if isinstance(value, dict):
        value = value.values()
    elif not isinstance(value, list | tuple):
        return False
    return not most or any(_is_deep(item, most - 1) for item in value)


def _cut(value: Any, most: int) -> Any:
    """A value without its parts that are deeper than ``most``."""
    if not isinstance(value, dict | list | tuple):
        return value
    if not most:
        return "..."
    if isinstance(value, dict):
        return {name: _cut(item, most - 1) for name, item in value.items()}
    return [_cut(item, most - 1) for item in value]


def _signature(dissector: PayloadDissector) -> bytes:
    """The octets that every message of a dissector's protocol has; none if the dissector does not say so."""
    signature = getattr(dissector, "signature", b"")
    return signature if isinstance(signature, bytes) else b""


def _least_frames(dissector: PayloadDissector) -> int:
    """How many frames every message of a dissector's protocol has at least; 0 if the dissector does not say so."""
    least = getattr(dissector, "least_frames", 0)
    return min(max(least, 0), _MANY_FRAMES) if isinstance(least, int) else 0
