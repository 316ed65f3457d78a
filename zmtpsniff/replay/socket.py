"""A socket that plays a socket of the capture, with one or several of its connections."""

import time
from collections.abc import Iterator, Set
from typing import TYPE_CHECKING, Any, Literal

from dissectors.events import Message, Place
from dissectors.zmtp.sockets import PUBLISHERS
from zmtpsniff.errors import Error
from zmtpsniff.replay.application_frames import has_correlation, to_application
from zmtpsniff.replay.endpoint import Endpoint
from zmtpsniff.replay.plan import Role
from zmtpsniff.replay.reply_comparison import Comparison, Publications

if TYPE_CHECKING:
    import zmq

# for so many seconds after the handshake a PUB socket gets subscriptions; no event says when they have come
_SETTLED = 0.2
_OLD_PEER = 1.0  # a connection without an event of a handshake after so many seconds is of ZMTP 1.0 or 2.0
_PEER_NAME = b"peer"  # the name that a ROUTER socket gives the peer to which it connects
_REQUESTS = 65_536  # requests to remember
_IN_HAND = 1000  # messages to take at a time


class PlayedSocket:
    """A socket of pyzmq, and the state of its peers."""

    def __init__(
        self,
        context: "zmq.Context[zmq.Socket[bytes]]",
        sender: Role,
        endpoint: Endpoint,
        bound: bool,
        frames: list[bytes],
        names: Set[bytes],
    ) -> None:
        """Connect or bind it; raises Error if that cannot be done.

        ``frames`` are of its first message. ``names`` are the identities that peers have in the capture.
        """
        import zmq

        self.comparison = Comparison()
        self.is_stuck = False  # its peer has taken or said nothing for as long as one waits
        self._zmq = zmq
        self._kind = sender.socket_type
        self._shown = endpoint.shown
        self._address = sender.address
        self._bound = bound
        self._publications = Publications() if sender.key[0] != "flow" and self._kind in PUBLISHERS else None
        self._requests: dict[Place, None] = {}  # what was sent, to know replies to it
        self._last: tuple[Place, int] | None = None  # the last message sent, and when
        self._awaits_reply = False  # REQ
        self._reply_is_due = False  # REQ: the capture has a reply to the last request
        self._names = names
        self._expected = 0
        self._received = 0
        self._forgiven = 0
        self._routes: dict[int, bytes] = {}  # ROUTER: the peer that plays the other side of a flow
        self._strangers: list[bytes] = []  # ROUTER: peers that play no flow yet
        self._got: dict[bytes, int] = {}  # ROUTER: messages of a peer
        self._wanted: dict[int, int] = {}  # ROUTER: messages of a flow's other side
        self._connected_at: float | None = None
        self._ready_at: float | None = None
        self._is_apart = False  # the peer to which it is connected has gone, and has not come back
        self._is_subscribed = False  # XPUB
        self._failure = ""
        try:
            self._socket: zmq.Socket[bytes] = context.socket(getattr(zmq, self._kind))
            self._set_options(sender, endpoint, frames)
            events = zmq.EVENT_CONNECTED | zmq.EVENT_ACCEPTED | zmq.EVENT_HANDSHAKE_SUCCEEDED
            failures = zmq.EVENT_HANDSHAKE_FAILED_AUTH | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL | zmq.EVENT_DISCONNECTED
            self._monitor = self._socket.get_monitor_socket(events | failures | zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL)
            (self._socket.bind if bound else self._socket.connect)(endpoint.address)
        except zmq.ZMQError as error:
            raise Error(f"{endpoint.name}: {error.strerror}") from None

    def _set_options(self, sender: Role, endpoint: Endpoint, frames: list[bytes]) -> None:
        zmq, socket = self._zmq, self._socket
        socket.ipv6 = endpoint.is_ipv6
        if sender.identity is not None:
            socket.routing_id = sender.identity
        if self._kind == "REQ":
            socket.set(zmq.REQ_RELAXED, 1)  # if the capture goes on without a reply, so does it
            socket.set(zmq.REQ_CORRELATE, int(has_correlation(frames)))
        elif self._kind == "ROUTER":
            socket.set(zmq.ROUTER_MANDATORY, 1)
            if not self._bound:
                socket.set(zmq.CONNECT_ROUTING_ID, _PEER_NAME)
        elif self._kind in PUBLISHERS:
            socket.set(zmq.XPUB_NODROP, 1)  # rather wait than lose what the capture has
        elif self._kind == "XSUB":
            socket.set(zmq.SNDHWM, 0)

    def watch(self, poller: "zmq.Poller") -> None:
        """Let what comes wake a poller up, until :meth:`close`."""
        poller.register(self._socket, self._zmq.POLLIN)

    def has_peer(self) -> bool:
        """Whether somebody is there to talk to."""
        self._look_at_monitor()
        if self._ready_at is None and self._connected_at is not None and not self._failure:
            is_old = time.monotonic() - self._connected_at > _OLD_PEER
            self._ready_at = self._connected_at if is_old else None
        return self._ready_at is not None

    def is_settled(self) -> bool:
        """Whether what peers say at once has come, too: subscriptions."""
        if self._kind == "XPUB":
            return self._is_subscribed
        return self._kind != "PUB" or time.monotonic() - (self._ready_at or 0.0) > _SETTLED

    def why_alone(self, patience: float) -> str:
        """Why there is nobody to talk to, in words."""
        if self._failure:
            return f"{self._failure}; its peer must be a socket that a {self._kind} socket may talk to"
        return f"nobody {'connected' if self._bound else 'answers'} within {patience:g} s"

    def join(self, sender: Role) -> None:
        """A connection of the capture has begun."""
        if self._publications is not None:
            self._publications.join(sender.flow)

    def leave(self, sender: Role) -> None:
        """A connection of the capture is over."""
        if self._publications is not None:
            self._publications.leave(sender.flow)

    def is_new(self, sender: Role, frames: list[bytes]) -> bool:
        """Whether this message still has to be sent: no other subscriber of the capture got it before."""
        return self._publications is None or self._publications.is_new(sender.flow, frames)

    def may_send(self, sender: Role, is_reply: bool) -> bool:
        """Whether it is this socket's turn: REQ has its reply, REP and ROUTER have what they answer."""
        if self._kind == "REQ":
            return not (self._awaits_reply and self._reply_is_due)
        if self._kind != "ROUTER":
            return True
        route = self._route(sender)
        return route is not None and (not is_reply or self._got.get(route, 0) >= self._wanted.get(sender.flow, 0))

    def gives_up_reply(self) -> bool:
        """Whether it may send although no reply came, as REQ sockets with ZMQ_REQ_RELAXED do."""
        relaxed, self._awaits_reply = self._kind == "REQ", False
        return relaxed

    def send(self, sender: Role, frames: list[bytes]) -> bool:
        """Send a message with the frames of the wire.

        False if there is no room, or nothing to answer, yet. Raises Error.
        """
        self._look_at_monitor()
        if self._is_apart:  # libzmq would take it, and keep it. ZMQ_IMMEDIATE refuses, but loses the last replies
            return False
        content = to_application(self._kind, frames)
        if self._kind == "ROUTER":
            route = self._route(sender)
            if route is None:
                return False
            content = [route, *content]
        if not self._socket.poll(0, self._zmq.POLLOUT):
            return False  # also REP that was asked nothing
        try:
            self._socket.send_multipart(content, self._zmq.NOBLOCK)
        except self._zmq.Again:
            return False
        except self._zmq.ZMQError as error:
            if error.errno in (self._zmq.EHOSTUNREACH, self._zmq.EFSM):
                return False
            raise Error(f"{self._shown}: {error.strerror}") from None
        return True

    def note_sent(self, message: Message, now: int) -> None:
        """A message of the capture has been sent."""
        self._last = message.place, now
        self._awaits_reply = self._kind == "REQ"
        self._reply_is_due = False
        self._requests[message.place] = None
        if len(self._requests) > _REQUESTS:
            del self._requests[next(iter(self._requests))]

    def subscribe(self, action: Literal["subscribe", "cancel"], topic: bytes) -> None:
        """Subscribe to a topic, or cancel it; raises Error."""
        zmq = self._zmq
        try:
            if self._kind == "SUB":
                self._socket.set(zmq.SUBSCRIBE if action == "subscribe" else zmq.UNSUBSCRIBE, topic)
            else:
                self._socket.send((b"\1" if action == "subscribe" else b"\0") + topic)
        except zmq.ZMQError as error:
            if action == "subscribe":
                raise Error(f"{self._shown}: {error.strerror}") from None

    def expect(self, sender: Role, frames: list[bytes], request: Place | None) -> bool:
        """A message that this socket got in the capture. False if it cannot come, because its request was not sent."""
        if request is not None and request not in self._requests:
            return False
        self._expected += 1
        self._reply_is_due = True
        self._wanted[sender.flow] = self._wanted.get(sender.flow, 0) + 1
        self.comparison.expect(to_application(self._kind, frames))
        return True

    @property
    def owes(self) -> bool:
        """Whether fewer messages have come than in the capture."""
        return self._received + self._forgiven < self._expected

    def forgive(self) -> None:
        """Wait no longer for what has not come."""
        self._forgiven = max(0, self._expected - self._received)

    def receive(self) -> Iterator[Message]:
        """The messages that have come, as records."""
        zmq = self._zmq
        for _ in range(_IN_HAND):
            try:
                frames = self._socket.recv_multipart(zmq.NOBLOCK)
            except zmq.ZMQError:  # nothing there, or a kind of socket that gets nothing (now)
                return
            if self._kind == "XPUB" and frames[0][:1] in (b"\0", b"\1"):
                self._is_subscribed = True
                continue
            if self._kind == "ROUTER":
                self._hear_from(frames[0])
                del frames[0]
            self._received += 1
            self.is_stuck = False
            self.comparison.receive(frames)
            yield self._record(frames)

    def close(self, poller: "zmq.Poller", patience: float) -> None:
        """Close it; what is on its way has some seconds."""
        poller.unregister(self._socket)
        self._socket.disable_monitor()
        self._monitor.close(0)
        self._socket.close(round(patience * 1000))

    def _record(self, frames: list[bytes]) -> Message:
        """The record of a message that came.

        It names the packet of the message sent before, which a REQ knows it answers.
        """
        now = time.time_ns()
        place, sent_at = self._last or (Place(0, 0), 0)
        record = Message(now, place.packet, place.flow, self._shown, self._address, [*frames])
        if self._kind in ("REQ", "REP"):
            record = Message(now, place.packet, place.flow, self._shown, self._address, [b"", *frames])
        if self._awaits_reply:
            self._awaits_reply = False
            record.request, record.request_part, record.latency_ns = place.packet, place.part, now - sent_at
        return record

    def _hear_from(self, peer: bytes) -> None:
        self._got[peer] = self._got.get(peer, 0) + 1
        if peer not in self._routes.values() and peer not in self._strangers and peer not in self._names:
            self._strangers.append(peer)

    def _route(self, sender: Role) -> bytes | None:
        """The peer that plays the other side of a flow: the one with its identity, else any that came."""
        if not self._bound:
            return _PEER_NAME
        found = self._routes.get(sender.flow)
        if found is None:
            if sender.peer_identity is not None:
                found = sender.peer_identity
            elif self._strangers:
                found = self._strangers.pop(0)
            if found is not None:
                self._routes[sender.flow] = found
        return found

    def _look_at_monitor(self) -> None:
        from zmq.utils.monitor import recv_monitor_message

        zmq = self._zmq
        while True:
            try:
                event: dict[str, Any] = recv_monitor_message(self._monitor, zmq.NOBLOCK)  # type: ignore[assignment]
            except zmq.Again:
                return
            now = time.monotonic()
            if event["event"] in (zmq.EVENT_CONNECTED, zmq.EVENT_ACCEPTED):
                self._connected_at = now
                self._is_apart = False
            elif event["event"] == zmq.EVENT_HANDSHAKE_SUCCEEDED:
                self._ready_at = now
            elif self._ready_at is not None:
                self._is_apart = not self._bound
            elif event["event"] == zmq.EVENT_HANDSHAKE_FAILED_AUTH:
                self._failure = "the peer refused the connection"
            else:  # also a peer that ends the connection before it is one
                self._failure = "the handshake failed"
