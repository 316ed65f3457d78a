"""Plays the chosen sockets of a capture with pyzmq, and takes the messages that come back."""

import math
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from dissectors.events import AnyEvent, Connection, Message, Subscription
from zmtpsniff.errors import Error
from zmtpsniff.replay.application_frames import whole_frames
from zmtpsniff.replay.endpoint import Endpoint
from zmtpsniff.replay.plan import Key, Plan, Role
from zmtpsniff.replay.socket import PlayedSocket

if TYPE_CHECKING:
    import zmq

_TURN = 0.01  # seconds after which what came is taken, however much there is to send
_BETWEEN_ROUNDS = 0.2  # seconds in which peers see that connections have ended


class Tempo(NamedTuple):
    """When to send messages."""

    speed: float = 1.0  # times as fast as in the capture
    rate: float | None = None  # messages a second, whatever the capture's times
    rounds: int = 1  # how often to send all messages
    waits: bool = False  # where the capture has a reply, wait for a reply
    patience: float = 5.0  # seconds to wait for a peer, a reply or room


@dataclass(slots=True)
class Score:
    """The messages that a replay sent, and those that came back."""

    sent: int = 0  # messages
    subscriptions: int = 0  # and cancelled subscriptions
    incomplete: int = 0  # messages left out, since the capture lacks octets of them
    unsent: int = 0  # messages that no peer took, or replies that no request asked for
    same: int = 0  # messages that came back, as in the capture
    missing: int = 0  # messages of the capture that did not come back
    others: int = 0  # messages that came back and are not in the capture
    seconds: float = 0.0

    @property
    def is_as_captured(self) -> bool:
        """Whether all messages were sent, and the same came back as in the capture."""
        return not (self.unsent or self.missing or self.others)


class Player:
    """Sends what a plan says to one endpoint."""

    def __init__(
        self,
        context: "zmq.Context[zmq.Socket[bytes]]",
        plan: Plan,
        endpoint: Endpoint,
        bound: bool,
        tempo: Tempo,
        show: Callable[[Sequence[AnyEvent]], None],
    ) -> None:
        """Begin with no socket. ``show`` gets the messages that are sent and received, as it happens."""
        import zmq

        self.score = Score()
        self._context = context
        self._plan = plan
        self._endpoint = endpoint
        self._bound = bound
        self._tempo = tempo
        self._show = show
        self._poller = zmq.Poller()
        self._sockets: dict[Key, PlayedSocket] = {}
        self._due: float | None = None  # when the last message was due
        self._due_ns = 0  # its time in the capture
        self._turn = 0.0  # when sockets were looked at

    def play(self, read: Callable[[], Iterable[Sequence[AnyEvent]]], passes: Callable[[AnyEvent], bool] | None) -> None:
        """Play the messages that ``passes`` accepts, as often as the tempo says.

        ``read`` gives the capture's events, from its beginning. The score is right also after an error or an
        interrupt. Raises Error if there is no peer, and what ``read`` raises.
        """
        begin = time.monotonic()
        try:
            for turn in range(self._tempo.rounds):
                if turn:
                    self._rest(_BETWEEN_ROUNDS)
                self._due = None
                for events in read():
                    for event in events:
                        self._take(event, passes)
                self._await_replies(self._sockets.values())
                for key in [key for key in self._sockets if key[0] == "flow"]:
                    self._close(key)
        finally:
            self._collect()
            for key in list(self._sockets):
                self._close(key)
            self.score.seconds = time.monotonic() - begin

    def _take(self, event: AnyEvent, passes: Callable[[AnyEvent], bool] | None) -> None:
        sender = self._plan.senders.get(getattr(event, "flow", None) or 0)
        if sender is None:
            return
        if isinstance(event, Connection):
            self._end(sender)
        elif isinstance(event, Message) and event.src != sender.address:
            self._expect(sender, event)
        elif isinstance(event, (Message, Subscription)):
            if event.src == sender.address and (passes is None or passes(event)):
                if isinstance(event, Message):
                    self._message(sender, event)
                else:
                    self._subscription(sender, event)
        elif sender.key in self._sockets:
            self._sockets[sender.key].join(sender)

    def _message(self, sender: Role, message: Message) -> None:
        frames = whole_frames(message)
        if frames is None:
            self.score.incomplete += 1
            return
        played = self._socket(sender, frames)
        if not played.is_new(sender, frames):
            return
        self._wait_until_due(message.time_ns)
        if not self._send(played, sender, frames, message.request is not None):
            self.score.unsent += 1
            return
        now = time.time_ns()
        played.note_sent(message, now)
        self.score.sent += 1
        self._show(
            [
                msgspec.structs.replace(
                    message, time_ns=now, dst=self._endpoint.shown, latency_ns=None, request=None, paired=None,
                    forwards=None, matched=None,
                )
            ]
        )  # fmt: skip

    def _send(self, played: PlayedSocket, sender: Role, frames: list[bytes], is_reply: bool) -> bool:
        """Send it, once it is the socket's turn; False if the turn does not come. A stuck socket is waited for once."""
        patience = 0.0 if played.is_stuck else self._tempo.patience
        played.is_stuck = not self._await(lambda: played.may_send(sender, is_reply), patience)
        if played.is_stuck and not played.gives_up_reply():
            return False
        if self._await(lambda: played.send(sender, frames), patience):
            return True
        played.is_stuck = True
        return False

    def _subscription(self, sender: Role, subscription: Subscription) -> None:
        if not isinstance(subscription.topic, bytes) or subscription.incomplete:
            self.score.incomplete += 1
            return
        played = self._socket(sender, [])
        self._wait_until_due(subscription.time_ns)
        played.subscribe(subscription.action, subscription.topic)
        self.score.subscriptions += 1
        self._show([msgspec.structs.replace(subscription, time_ns=time.time_ns(), dst=self._endpoint.shown)])

    def _expect(self, sender: Role, message: Message) -> None:
        """Expect a message that a played socket got in the capture: it ought to come now, too."""
        frames = whole_frames(message)
        if frames is None:
            return
        played = self._sockets.get(sender.key)
        if played is None:
            played = self._socket(sender, frames)
        if not played.expect(sender, frames, message.answers):
            return
        if self._tempo.waits:
            began = time.monotonic()
            self._await(lambda: not played.owes)
            played.forgive()
            if self._due is not None:
                self._due += time.monotonic() - began

    def _end(self, sender: Role) -> None:
        """A connection of the capture is over: the connection that was made for it ends, too."""
        played = self._sockets.get(sender.key)
        if played is None:
            return
        played.leave(sender)
        if sender.key[0] == "flow":
            self._await_replies([played])
            self._close(sender.key)

    def _socket(self, sender: Role, frames: list[bytes]) -> PlayedSocket:
        played = self._sockets.get(sender.key)
        if played is None:
            names = {each.peer_identity for each in self._plan.senders.values() if each.peer_identity is not None}
            played = PlayedSocket(self._context, sender, self._endpoint, self._bound, frames, names)
            self._sockets[sender.key] = played
            played.watch(self._poller)
            if not self._await(played.has_peer):
                raise Error(f"{self._endpoint.name}: {played.why_alone(self._tempo.patience)}")
            self._await(played.is_settled)
            if self._due is not None:
                self._due = max(self._due, time.monotonic())
        return played

    def _close(self, key: Key) -> None:
        played = self._sockets.pop(key)
        played.close(self._poller, self._tempo.patience)
        self.score.same += played.comparison.same
        self.score.missing += played.comparison.missing
        self.score.others += played.comparison.others

    def _wait_until_due(self, time_ns: int) -> None:
        """Wait until it is time to send what was captured at this time. Take the messages that come meanwhile."""
        now = time.monotonic()
        if self._due is None:
            self._due = now
        elif self._tempo.rate is not None:
            self._due += 1 / self._tempo.rate
        else:
            self._due += max(0, time_ns - self._due_ns) / 1e9 / self._tempo.speed
        self._due_ns = max(self._due_ns, time_ns) if self._due != now else time_ns
        if self._due > now:
            self._rest(self._due - now)
        elif now - self._turn > _TURN:
            self._collect()

    def _rest(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            self._collect(min(left, _TURN))

    def _await_replies(self, played: Iterable[PlayedSocket]) -> None:
        waiting = list(played)
        self._await(lambda: not any(each.owes for each in waiting))

    def _await(self, is_so: Callable[[], bool], patience: float | None = None) -> bool:
        """Whether a condition holds, now or within the patience. Take the messages that come meanwhile."""
        if is_so():
            return True
        end = time.monotonic() + (self._tempo.patience if patience is None else patience)
        while time.monotonic() < end:
            self._collect(0.001)
            if is_so():
                return True
        return False

    def _collect(self, seconds: float = 0.0) -> None:
        """Take what has come; wait for the first for some seconds."""
        self._turn = time.monotonic()
        if not self._sockets:
            time.sleep(seconds)
        elif not self._poller.poll(math.ceil(seconds * 1000)):
            return
        came = [message for played in self._sockets.values() for message in played.receive()]
        if came:
            self._show(came)
