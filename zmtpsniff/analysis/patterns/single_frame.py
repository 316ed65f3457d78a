"""Socket types with rules of their own: messages of one frame, groups that must be joined."""

from dissectors.events import Command, Connection, Message, Octets, at_hand
from zmtpsniff.analysis.dossier import Dossier
from zmtpsniff.analysis.insertions import Problems
from zmtpsniff.analysis.patterns.conversation import Room, RoomShare, Rules

# 41/CLISRV, 49/SCATTERGATHER, 51/P2P, 52/CHANNEL
_DONE = 100  # groups that were left or reported
_GROUP_COST = 150  # octets that a group takes beside its own


class SingleFrame(Rules):
    """Messages between sockets that send one frame only."""

    def __init__(self, problems: Problems) -> None:
        """Look at the connection from its first message on."""
        self._problems = problems
        self.message = self._take

    def _take(self, event: Message) -> None:
        if len(event.frames) > 1:
            detail = (
                f"a message of {len(event.frames)} frames from a {event.socket_type} socket, which may send one only"
            )
            self._problems.report("multipart-not-allowed", event, detail)


class RadioDish(Rules):
    """Messages to groups (48/RADISH)."""

    def __init__(self, dossier: Dossier, problems: Problems, room: Room) -> None:
        """Look at the connection from its first message on."""
        self._dossier = dossier
        self._problems = problems
        self._share = RoomShare(room)
        self._joined: set[bytes] = set()
        self._done: set[int] = set()  # groups that were left, whose messages may be on their way, or were reported
        self._gave_up = False  # there were too many groups
        self.message = self._take

    def command(self, event: Command) -> None:
        """Take note of the groups that are joined and left."""
        if event.name not in ("JOIN", "LEAVE") or self._gave_up:
            return
        group = _whole(event.group)
        if group is None or event.incomplete:
            self._gave_up = True
        elif event.name == "LEAVE":
            self._joined.discard(group)
            self._done.add(hash(group))
            self._gave_up = self._gave_up or len(self._done) > _DONE
        elif group not in self._joined:
            if self._share.hold(self._share.held + _GROUP_COST + len(group)):
                self._joined.add(group)
            else:
                self._gave_up = True

    def _take(self, event: Message) -> None:
        group = at_hand(event.frames[0])
        if group in self._joined or self._gave_up or self._dossier.blind or event.incomplete:
            return
        if hash(group) not in self._done and len(self._done) < _DONE:
            self._done.add(hash(group))
            self._problems.report("group-not-joined", event, "a message to a group that its receiver has not joined")

    def finish(self, event: Connection, now_ns: int) -> None:
        """Give back all room."""
        self._share.hold(0)


def _whole(octets: Octets | None) -> bytes | None:
    return octets if isinstance(octets, bytes) else None
