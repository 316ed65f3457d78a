"""Boxes of CURVE connections that no key has opened, with enough of each connection to look for its key."""

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from dissectors.events import AnyEvent, Command, Greeting
from dissectors.zmtp.curve_keys import KEY_SIZE
from zmtpsniff.host.memory_keys import LONGEST_BOX, CapturedBox, SearchTarget

MOST_CONNECTIONS = 4096  # that are remembered; the one without news for longest gives way

_PREFIXES = {"INITIATE": "CurveZMQINITIATE", "READY": "CurveZMQREADY---", "MESSAGE": "CurveZMQMESSAGE"}


@dataclass(slots=True)
class UnopenedConnection:
    """A connection under CURVE of which a box has not been opened."""

    flow: int
    src: str  # one of its ends
    dst: str
    curve_client: str | None = None  # which end is the client of CURVE, if that is known
    client_key: bytes | None = None  # C'
    command: Command | None = None  # the one with the box that costs least to try
    next_search: float | None = None  # for its key, if one is planned
    searches: int = 0

    @property
    def target(self) -> SearchTarget:
        """The parts that a search needs."""
        command = self.command
        if command is None or not isinstance(command.nonce, bytes) or not isinstance(command.box, bytes):
            return SearchTarget(self.client_key)
        prefixes = [_PREFIXES[command.name]]
        if command.name == "MESSAGE":
            sides = "CS" if self.curve_client is None else "C" if command.src == self.curve_client else "S"
            prefixes = [prefixes[0] + side for side in sides]
        boxes = [CapturedBox(prefix.encode() + command.nonce, command.box) for prefix in prefixes]
        return SearchTarget(self.client_key, boxes)


class UnopenedBoxes:
    """Collects from events the connections that wait for a key."""

    def __init__(self) -> None:
        """There is none yet."""
        self._connections: OrderedDict[int, UnopenedConnection] = OrderedDict()

    def take(self, events: Iterable[AnyEvent]) -> list[UnopenedConnection]:
        """Look at events. Returns the connections of those with a box that no key has opened."""
        missing = {}
        for event in events:
            if isinstance(event, Command):
                if event.encrypted:
                    self.forget(event.flow)
                elif self._has_box(event):
                    missing[event.flow] = self._connections[event.flow]
            elif isinstance(event, Greeting) and event.mechanism == "CURVE" and event.as_server:
                self._connection(event).curve_client = event.dst  # libzmq's servers do not say so
        return list(missing.values())

    def connections(self) -> Sequence[UnopenedConnection]:
        """Those that have a box, or at least their HELLO."""
        return [each for each in self._connections.values() if each.command or each.client_key]

    def forget(self, flow: int) -> None:
        """A connection needs no key any more."""
        self._connections.pop(flow, None)

    def _has_box(self, event: Command) -> bool:
        """Whether a command has a box that nobody opened."""
        if event.name == "HELLO" and isinstance(event.client_key, bytes) and len(event.client_key) == KEY_SIZE:
            connection = self._connection(event)
            connection.client_key, connection.curve_client = event.client_key, event.src
            return False
        if (
            event.name in _PREFIXES
            and isinstance(event.box, bytes)
            and isinstance(event.nonce, bytes)
            and not event.incomplete
            and len(event.nonce) == 8
            and len(event.box) <= LONGEST_BOX
        ):
            connection = self._connection(event)
            least = connection.command
            if least is None or len(event.box) < len(least.box or b""):
                connection.command = event
            return True
        return False

    def _connection(self, event: Command | Greeting) -> UnopenedConnection:
        connection = self._connections.get(event.flow)
        if connection is None:
            connection = self._connections[event.flow] = UnopenedConnection(event.flow, event.src, event.dst)
            if len(self._connections) > MOST_CONNECTIONS:
                self._connections.popitem(last=False)
        self._connections.move_to_end(event.flow)
        return connection
