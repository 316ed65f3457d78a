"""Events of sockets that say what a test lets them say, a millisecond after each other."""

from dissectors.events import AnyEvent, Command, Connection, Greeting, Message, Octets, Peer, Problem, Sides
from zmtpsniff.analysis.ways.way_connections import ProcessOf
from zmtpsniff.analysis.ways.way_records import Way
from zmtpsniff.analysis.ways.ways import Ways
from zmtpsniff.net.witness import Acknowledgment, Pause

MS = 1_000_000


class Scene:
    """Connections between sockets, and what they say."""

    def __init__(self) -> None:
        """Start without any."""
        self.events: list[AnyEvent] = []
        self.now_ns = 0
        self._packet = 0
        self._ends: dict[int, tuple[str, str]] = {}  # client and server by connection

    def connect(self, flow: int, client: str, server: str, *, types: tuple[str, str], far_ns: int = 0) -> None:
        """A client and a server greet each other; the answer of the client comes ``far_ns`` later."""
        self._ends[flow] = client, server
        for src, dst in ((client, server), (server, client)):
            self.events.append(Greeting(self.now_ns, 1, flow, src, dst, version="3.1", mechanism="NULL"))
        for src, dst, kind in zip((client, server), (server, client), types, strict=True):
            time_ns = self.now_ns + (far_ns if src == client else 0)
            self.events.append(Command(time_ns, 1, flow, src, dst, "READY", {"Socket-Type": kind.encode()}, kind))

    def join_late(self, flow: int, client: str, server: str) -> None:
        """A connection that began before the capture: the first message of each side is the first that is found."""
        self._ends[flow] = client, server
        for src, dst in ((client, server), (server, client)):
            self.events.append(Problem("note", "no-greeting", "", self.now_ns, 1, flow, src, dst))

    def greet(self, flow: int, client: str, server: str, kind: str, *, by_server: bool = False) -> None:
        """One side greets with its type, as peers of ZMTP 2.0 do."""
        self._ends[flow] = client, server
        src, dst = (server, client) if by_server else (client, server)
        self.events.append(Greeting(self.now_ns, 1, flow, src, dst, version="2.0", socket_type=kind))

    def upgrade(self, flow: int, client: str, server: str) -> None:
        """Both sides upgrade to a WebSocket without a mechanism, where no type is announced."""
        self._ends[flow] = client, server
        for src, dst in ((client, server), (server, client)):
            self.events.append(Greeting(self.now_ns, 1, flow, src, dst, version="ZWS2.0"))

    def say(
        self, flow: int, *frames: Octets, by_server: bool = False, answers: Message | None = None, after_ms: float = 1
    ) -> Message:
        """A message on a connection, so long after the one before; ``answers`` is the request of a reply."""
        self.now_ns += round(after_ms * MS)
        self._packet += 1
        client, server = self._ends[flow]
        src, dst = (server, client) if by_server else (client, server)
        message = Message(self.now_ns, self._packet, flow, src, dst, list(frames), offset=10 * self._packet)
        if answers is not None:
            message.request = answers.packet
        self.events.append(message)
        return message

    def close(self, flow: int, *, by_server: bool = False) -> None:
        """One side closes a connection."""
        client, server = (Peer(address) for address in self._ends[flow])
        zero = Sides(0, 0)
        closer = "server" if by_server else "client"
        self.events.append(Connection(flow, "tcp", client, server, zero, zero, 0, self.now_ns, "fin", closed_by=closer))  # type: ignore[arg-type]

    def ways(
        self,
        *,
        wait_ms: float = 10_000,
        acknowledged: list[Acknowledgment] | None = None,
        resent: Message | None = None,
        process_of: ProcessOf | None = None,
    ) -> list[Way]:
        """The ways so far, if nothing more comes for a while. None: it is not known what was acknowledged.

        The sender of the message ``resent`` sends it again twice.
        """
        ways = Ways()
        ways.connections.process_of = process_of
        if acknowledged is not None:
            ways.acknowledge(acknowledged)
        for after_ms in (200, 600):
            if resent is not None:
                again_ns = resent.time_ns + after_ms * MS
                ways.pause(Pause(resent.flow, resent.src, resent.time_ns, again_ns, 0, 0, resent.offset))
        found = ways.take(self.events) + ways.finish(self.now_ns + round(wait_ms * MS))
        return [record for way in found if (record := ways.record(way)) is not None]
