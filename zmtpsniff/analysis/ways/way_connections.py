"""The connections that ways lead over: what holds for all messages of one side, and what the capture lacks.

Theory
------

A connection has two streams, one for each sender (:class:`~zmtpsniff.analysis.ways.hops.Stream`). It begins with the
first side that announces its type, or with its first message. A stream begins with its first message.

A *late* connection is one whose beginning the capture lacks. Its first messages may be replies to requests from before
the capture. So a pair of request and reply is certain only if both have the same id, or once the connection is *in
step*: the last request of the capture got its reply, so none from before the capture is left.

Live, a sender and a receiver are *hosts* first, and *processes* once these are known. Facts that count by host move
with them (:meth:`~zmtpsniff.analysis.ways.lanes.Lanes.move_lane`). If a process is not known in time, the host stays.
So do those of a program that turns out to have several addresses: all its sockets count to one host then.
"""

from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping
from copy import copy
from functools import partial
from itertools import islice

import msgspec

from dissectors.address import has_bound_port, host_of, is_loopback
from dissectors.events import Process
from dissectors.zmtp.sockets import SUBSCRIBERS, WITH_TOPICS
from zmtpsniff.analysis.dossier import Dossier, Dossiers
from zmtpsniff.analysis.ledger import Ledger
from zmtpsniff.analysis.ways.envelopes import RoutingIds
from zmtpsniff.analysis.ways.hops import MOST_COMPARED, RECEIPTS, Hop, Receipts, RequestCount, SharedFacts, Stream
from zmtpsniff.analysis.ways.lanes import Lanes
from zmtpsniff.analysis.ways.pushed_replies import PushedReplies
from zmtpsniff.analysis.ways.round_trips import RoundTrips
from zmtpsniff.analysis.ways.way_records import Kind
from zmtpsniff.net.witness import Acknowledgment, Pause

_TURNS = 2  # requests of a CLIENT that are remembered: it asks one at a time
_RESENT = 1024  # pauses that are remembered of one stream
_UNKNOWN = 1024  # streams whose processes are looked for, the newest
_MOST_UNITED = 1024  # sockets that count to another host than their addresses say
_BETWEEN_LOOKS_NS = 20_000_000
PROCESS_PATIENCE_NS = 10_000_000_000
"""A process that is not known so long after its connection began is not looked for any longer."""
ProcessOf = Callable[[int, str], Process | None]
"""The process that has an end of a connection, by flow and address; None while that is not known."""


class WayConnection(msgspec.Struct, eq=False):
    """A connection while it lasts."""

    dossier: Dossier
    last_asked: Hop | None = None  # the last request, if the connection is late
    in_step: bool = False  # such a request got its reply, so no older one waits
    has_gap: bool = False  # the capture lacks octets in the middle, so perhaps requests
    streams: dict[str, Stream] = {}  # by sender
    shared: SharedFacts = msgspec.field(default_factory=SharedFacts)
    receipts: dict[str, Receipts] = {}  # by sender
    open_turns: deque[Hop] = msgspec.field(default_factory=partial(deque, (), _TURNS))  # of a CLIENT
    takes_turns: bool = True  # at most one of them was open so far
    united: Mapping[str, str] = {}  # sockets that count to another host than their addresses say, with that host

    @property
    def is_late(self) -> bool:
        """Whether neither side announced its type: the capture lacks its beginning, or it has no handshake."""
        dossier = self.dossier
        return not ((dossier.greeted_ns and not dossier.is_untyped) or any(dossier.types.values()))

    def learn(self) -> None:
        """One more socket type is known. Streams that were begun with another type begin anew.

        A peer of ZMTP 2.0 may send messages before the other one has announced its type.
        """
        types = self.dossier.types
        self.streams = {src: stream for src, stream in self.streams.items() if stream.src_kind == types.get(src)}
        for src, stream in self.streams.items():
            stream.dst_kind = next((kind for address, kind in types.items() if address != src), "")
            stream.dst_identity = self.dossier.identity_of_other(src)

    def see_request(self, hop: Hop) -> None:
        """A message seems to be a request. If the other side asks, too, it may be the reply to that."""
        if hop.stream.is_late:
            self.last_asked = hop
        elif hop.stream.src_kind == "REQ":
            return
        self.see_possible_reply(hop)

    def see_possible_reply(self, hop: Hop) -> None:
        """A message may be the reply to any request of the other side that waits, though nothing joins the two."""
        asker = self.streams.get(hop.dst)
        if asker is not None:
            asker.possible_reply_ns[hop.depth] = max(asker.possible_reply_ns.get(hop.depth, 0), hop.time_ns)

    def see_answer(self, asked: Hop) -> None:
        """A request on a late connection has its reply."""
        self.in_step = self.in_step or self.last_asked is asked

    def request_answered_by(self, hop: Hop) -> tuple[Hop, bool] | None:
        """The request that a broker passed on over this connection, and that a reply answers; and if that is certain.

        Candidates are the requests with the envelope of the reply. Of several, it is the one that shares most numbers
        and ids with the reply. If none does, it may be any of them: the oldest stands for it. None if that may be
        wrong: if the capture lacks octets of the connection, or its beginning, the reply may answer a request that the
        capture lacks.
        """
        asker = self.streams.get(hop.dst)
        if asker is None or not asker.unanswered:
            return None
        is_late = hop.stream.is_late or self.has_gap
        envelope = envelope_of(hop)
        alike = [
            one
            for one in islice(reversed(asker.unanswered), MOST_COMPARED)
            if (envelope_of(one) == envelope if is_late else one.routing_id in hop.frames[:-1])
        ]
        if len(alike) > 1:  # behind several brokers, the id of the last one may be the same in all
            alike = [one for one in alike if envelope_of(one) == envelope] or alike
        if len(alike) > 1:
            for one in alike:
                one.is_ambiguous = True
        shared = Counter({one: len(one.tokens & hop.tokens) for one in alike}).most_common(2)
        if shared and shared[0][1] > sum(count for _, count in shared[1:]):
            return shared[0][0], is_late or not shared[0][0].is_ambiguous
        if not alike or self.has_gap or (is_late and len(alike) > 1):
            return None
        return alike[-1], not (is_late or alike[-1].is_ambiguous)

    def turn(self, hop: Hop) -> Hop | None:
        """The request of a CLIENT that a message of its SERVER answers; None if several may be meant, or none.

        Their messages have no envelope. The two take turns as long as one request is open at a time.
        """
        kind = hop.stream.src_kind
        if kind == "CLIENT":
            self.open_turns.append(hop)
            self.takes_turns = self.takes_turns and len(self.open_turns) == 1
        if kind != "SERVER":
            return None
        if not self.open_turns:
            self.takes_turns = False  # it may do so at any time
            return None
        asked = self.open_turns.popleft()
        return asked if self.takes_turns and not (self.has_gap or asked.answered) else None

    def stream(
        self, src: str, dst: str, socket_type: str | None, resent: list[tuple[int, int]], round_trip_ns: int
    ) -> Stream:
        """Begin the stream of a sender, with its first message or because its type is known now.

        ``round_trip_ns`` is the way to the receiver and back where no READY tells it.
        """
        dossier = self.dossier
        kind = socket_type or dossier.types.get(src, "")
        back = self.streams.get(dst)
        if back is not None:
            back.dst_kind = back.dst_kind or kind
            if not back.src_kind and back.sends == "publication":
                del self.streams[dst]  # it gets answers, so what it says from now on are no publications
        stream = self.streams[src] = Stream(
            kind,
            dossier.types.get(dst) or (back.src_kind if back is not None else "PULL" if kind == "PUSH" else ""),
            self.united.get(src) or host_of(src),
            self.united.get(dst) or host_of(dst),
            RequestCount(),
            self.shared,
            self.receipts.setdefault(src, Receipts()),
            dossier.start_ns,
            dossier.round_trip_ns.get(dst, round_trip_ns),
            resent,
            sends=_sent_by(kind),
            is_late=self.is_late,
            dst=dst,
            is_local=is_loopback(src) or host_of(src) == host_of(dst),
            identity=dossier.identity_of_other(dst),
            dst_identity=dossier.identity_of_other(src),
        )
        return stream

    def publish(self, src: str) -> Stream:
        """Take what a sender without a type says from now on for publications. Return the stream of these."""
        stream = self.streams[src]
        if stream.sends != "publication":
            stream = self.streams[src] = copy(stream)
            stream.sends = "publication"
        return stream


class _Unknown(msgspec.Struct):
    """A stream whose sender's or receiver's process is not known yet."""

    dst: str
    stream: Stream
    since_ns: int = 0


class WayConnections(dict[int, WayConnection]):
    """The connections that last, by flow."""

    def __init__(self, dossiers: Dossiers, ids: RoutingIds, lanes: Lanes, pushed: PushedReplies) -> None:
        """``ids`` learns which identities peers announce, ``lanes`` which hosts ask, ``pushed`` which push."""
        super().__init__()
        self.process_of: ProcessOf | None = None  # live, if this machine's processes are known
        self.round_trips = RoundTrips()
        self._dossiers = dossiers
        self._ids = ids
        self._lanes = lanes
        self._pushed = pushed
        # By a socket and the type of its peers: the requests of all of them.
        self._all_requests: Ledger[tuple[str, str], RequestCount] = Ledger(RequestCount)
        # By flow and sender: those of connections that have not begun here.
        self._receipts: Ledger[int, dict[str, Receipts]] = Ledger(dict)
        self._long: list[Receipts] = []  # that are to be trimmed
        # By flow and sender, for its Line; also of flows that are not ZMTP, whose end nobody tells.
        self._resent: Ledger[int, dict[str, list[tuple[int, int]]]] = Ledger(dict)
        self._unknown: Ledger[tuple[int, str], _Unknown] = Ledger(limit=_UNKNOWN)  # live, by flow and sender
        self._next_look_ns = 0
        self._united: Ledger[str, str] = Ledger(str, _MOST_UNITED)

    def unite(self, before: Hop, hop: Hop) -> None:
        """The socket that took a message, and the one that passed it on, are of one program: both count to one host."""
        if len(self._united) >= _MOST_UNITED:
            return
        if hop.src not in self._united:
            flow, socket, host = hop.flow, hop.src, before.stream.dst_host
        else:  # the program takes messages at several addresses
            flow, socket, host = before.flow, before.dst, hop.stream.src_host
        self._united[socket] = host
        flows = [*self] if has_bound_port(socket) else [flow]
        for one in flows:
            connection = self.get(one)
            for src, stream in connection.streams.items() if connection is not None else ():
                self._move(one, stream, socket, host, is_sender=src == socket)

    def _move(self, flow: int, stream: Stream, socket: str, host: str, *, is_sender: bool) -> None:
        """A stream from or to a socket counts to another host from now on, unless its process is known."""
        if is_sender and not stream.knows_sender:
            before, stream.src_host = stream.src_host, host
            self._lanes.move_lane(flow, before, host)
        elif stream.dst == socket and not stream.knows_receiver:
            before, stream.dst_host = stream.dst_host, host
            self._lanes.move_requests(stream, before)

    def pause(self, pause: Pause) -> None:
        """A connection was silent for a while, and perhaps sent octets again then that the network had lost."""
        if pause.resent is not None:
            resent = self._resent.at(pause.flow).setdefault(pause.sender, [])
            resent.append((pause.resent, pause.until_ns))
            if len(resent) > _RESENT:
                del resent[0]

    def acknowledge(self, acknowledgments: Iterable[Acknowledgment]) -> None:
        """Receivers have acknowledged octets. Their messages may be known already, or come later."""
        for time_ns, flow, sender, offset in acknowledgments:
            connection = self.get(flow)
            receipts = self._receipts.at(flow) if connection is None else connection.receipts
            one = receipts.get(sender)
            if one is None:
                one = receipts[sender] = Receipts()
            one.acknowledge(time_ns, offset)
            if len(one.known) > RECEIPTS:
                self._long.append(one)

    def trim(self) -> None:
        """The messages of the packets with the acknowledgments so far have come: forget old acknowledgments."""
        for one in self._long:
            one.trim()
        self._long.clear()

    def connect(self, dossier: Dossier) -> None:
        """One more side of a connection has announced its type."""
        connection = self.get(dossier.flow)
        if connection is None:
            self._begin(dossier)
        else:
            connection.learn()
        for address, kind in dossier.types.items():
            if kind == "REQ":
                self._lanes.add_service(host_of(address))
            elif kind == "PUSH":
                self._pushed.add_pusher(host_of(address))
            identity = dossier.identity_of_other(address)
            if identity:
                self._ids.learn(dossier.flow, address, identity)

    def _begin(self, dossier: Dossier) -> WayConnection:
        """Follow a connection from now on."""
        connection = self[dossier.flow] = WayConnection(
            dossier, receipts=self._receipts.pop(dossier.flow, {}), united=self._united
        )
        if connection.is_late:
            self._ids.miss(dossier.flow)
        return connection

    def end(self, flow: int, client: str) -> WayConnection | None:
        """The connection of a client is over. Return it; None if it has not begun here."""
        self._resent.pop(flow, None)
        self._receipts.pop(flow, None)
        self.round_trips.end(flow)
        self._united.pop(client, None)
        connection = self.pop(flow, None)
        if connection is not None:
            for src, stream in connection.streams.items():
                self._unknown.pop((flow, src), None)
                self._all_requests.pop((client, stream.src_kind), None)  # nobody else talks to it
        return connection

    def stream(self, flow: int, src: str, dst: str, socket_type: str | None) -> Stream:
        """The stream of a sender, with the processes at its ends if these are known."""
        connection = self.get(flow)
        if connection is None:
            connection = self._begin(self._dossiers.get(flow) or Dossier(flow))
        stream = connection.streams.get(src)
        if stream is None or (socket_type and stream.src_kind != socket_type):
            resent = self._resent.at(flow).setdefault(src, [])
            stream = connection.stream(src, dst, socket_type, resent, self.round_trips.to(flow, dst))
            stream.all_requests = self._all_requests.at((dst, stream.src_kind))
            if self.process_of is not None:
                self._unknown[flow, src] = _Unknown(dst, stream)
        if self._unknown and (flow, src) in self._unknown:
            self._learn_processes(flow, src)
        return stream

    def learn_processes(self, now_ns: int) -> None:
        """Live: take each process for a host of its own, as soon as it is known. It is ``now_ns``."""
        if 0 < self._next_look_ns - now_ns <= _BETWEEN_LOOKS_NS:  # else the clock was set back
            return
        self._next_look_ns = now_ns + _BETWEEN_LOOKS_NS
        for flow, src in [*self._unknown]:
            unknown = self._unknown[flow, src]
            unknown.since_ns = unknown.since_ns or now_ns
            self._learn_processes(flow, src)
            if now_ns - unknown.since_ns > PROCESS_PATIENCE_NS:
                self._unknown.pop((flow, src), None)

    def _learn_processes(self, flow: int, src: str) -> None:
        """Look once more for the processes at both ends of a stream, and move what counted to their hosts so far."""
        assert self.process_of is not None
        unknown = self._unknown[flow, src]
        stream, sender, receiver = unknown.stream, self.process_of(flow, src), self.process_of(flow, unknown.dst)
        if sender is not None and not stream.knows_sender:
            before, stream.src_host, stream.knows_sender = stream.src_host, f"process {sender.pid}", True
            self._lanes.know_process(stream.src_host)
            self._lanes.move_lane(flow, before, stream.src_host)
        if receiver is not None and not stream.knows_receiver:
            before, stream.dst_host, stream.knows_receiver = stream.dst_host, f"process {receiver.pid}", True
            self._lanes.know_process(stream.dst_host)
            self._lanes.move_requests(stream, before)
        if stream.knows_sender and stream.knows_receiver:
            del self._unknown[flow, src]


def _sent_by(kind: str) -> Kind | None:
    """The kind of the ways of the messages that a socket of this type sends; None if they have none.

    A subscriber sends to its publisher alone.
    """
    if kind == "PUSH":
        return "job"
    if kind in WITH_TOPICS:
        return "publication"
    return None if kind in SUBSCRIBERS else "request"


def envelope_of(hop: Hop) -> int:
    """The hash of all frames of a message but the last."""
    return hash(tuple(hop.frames[:-1]))
