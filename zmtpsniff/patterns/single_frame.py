"""Socket types with rules of their own: messages of one frame, groups that must be joined."""

from dissectors.events import Command, Message, Octets, at_hand
from zmtpsniff.patterns.conversation import Conversation, Findings, Rules

# 41/CLISRV, 49/SCATTERGATHER, 51/P2P, 52/CHANNEL
SINGLE_FRAME = frozenset({"CLIENT", "SERVER", "SCATTER", "GATHER", "PEER", "CHANNEL"})
_REMEMBERED = 1000  # groups that were left or reported


class SingleFrame(Rules):
    """Messages between sockets that send one frame only."""

    def __init__(self, findings: Findings) -> None:
        """Look at the connection from its first message on."""
        self._findings = findings
        self.message = self._take

    def _take(self, event: Message) -> None:
        if len(event.frames) > 1:
            detail = (
                f"a message of {len(event.frames)} frames from a {event.socket_type} socket, which may send one only"
            )
            self._findings.report("multipart-not-allowed", event, detail)


class RadioDish(Rules):
    """Messages to groups (48/RADISH)."""

    def __init__(self, conversation: Conversation, findings: Findings) -> None:
        """Look at the connection from its first message on."""
        self._conversation = conversation
        self._findings = findings
        self._joined: set[bytes] = set()
        self._done: set[bytes] = set()  # groups that were left, whose messages may be on their way, or were reported
        self.message = self._take

    def command(self, event: Command) -> None:
        """Take note of the groups that are joined and left."""
        group = _whole(event.group)
        if group is None:
            return
        if event.name == "JOIN":
            self._joined.add(group)
        elif event.name == "LEAVE":
            self._joined.discard(group)
            if len(self._done) < _REMEMBERED:
                self._done.add(group)

    def _take(self, event: Message) -> None:
        group = at_hand(event.frames[0])
        if group in self._joined or group in self._done or self._conversation.blind or event.incomplete:
            return
        if len(self._done) < _REMEMBERED:
            self._done.add(group)
            self._findings.report("group-not-joined", event, "a message to a group that its receiver has not joined")


def _whole(octets: Octets | None) -> bytes | None:
    return octets if isinstance(octets, bytes) else None
