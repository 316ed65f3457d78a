"""What connections say together: peers that come and go, identities used twice, peers that are older than others."""

from collections import OrderedDict, defaultdict, deque

from dissectors.events import Command, Connection, Greeting
from zmtpsniff.patterns.conversation import Conversation, Findings

_STORM_CONNECTIONS = 5
_STORM_NS = 10_000_000_000
_SHORT_NS = 1_000_000_000
_REMEMBERED = 10_000  # pairs of peers, addresses


class Connections:
    """All connections of a capture."""

    def __init__(self, findings: Findings) -> None:
        """Start without any."""
        self._findings = findings
        self._short: OrderedDict[tuple[str, str], deque[int]] = OrderedDict()
        self._open: defaultdict[str, dict[int, Conversation]] = defaultdict(dict)  # by address
        self._newest: dict[str, str] = {}  # address of a server to the newest version that a client of it speaks
        self._told_older: set[tuple[str, str]] = set()
        self._refused: OrderedDict[str, int] = OrderedDict()
        self._servers: set[str] = set()

    def begin(self, conversation: Conversation, event: Command | Greeting) -> None:
        """Both sides of a connection have said which socket types they are."""
        for address, kind in conversation.types.items():
            others = self._open[address]
            if kind == "PAIR" and others:
                other = next(iter(others.values()))
                self._findings.report(
                    "pair-in-use",
                    event,
                    f"a second peer for the PAIR socket at {address}, which has one (flow {other.flow})",
                )
            if kind == "ROUTER":
                self._compare_identities(conversation, address, event)
        for address in conversation.types:
            self._open[address][conversation.flow] = conversation

    def _compare_identities(self, conversation: Conversation, router: str, event: Command | Greeting) -> None:
        identity = next((i for address, i in conversation.identities.items() if address != router), b"")
        if not identity:
            return
        for other in self._open[router].values():
            if identity in (i for address, i in other.identities.items() if address != router):
                self._findings.report(
                    "identity-in-use",
                    event,
                    f"a second peer of the ROUTER at {router} with the identity of the one in flow {other.flow}, "
                    "which is still connected",
                )
                return

    def refuse(self, server: str) -> None:
        """A TCP connection to this address was refused."""
        self._refused[server] = self._refused.get(server, 0) + 1
        if len(self._refused) > _REMEMBERED:
            self._refused.popitem(last=False)

    def end(self, event: Connection, conversation: Conversation | None) -> None:
        """A connection is over."""
        if conversation is not None:
            for address in conversation.types:
                flows = self._open[address]
                flows.pop(event.flow, None)
                if not flows:
                    del self._open[address]
        if len(self._servers) < _REMEMBERED:
            self._servers.add(event.server.address)
        self._look_for_storm(event)
        self._compare_versions(event)

    def _look_for_storm(self, event: Connection) -> None:
        if (
            event.end not in ("fin", "rst")
            or event.end_ns - event.start_ns > _SHORT_NS
            or event.messages.client
            or event.messages.server
            or event.handshake == "not-seen"
        ):
            return
        pair = (event.client.address.rpartition(":")[0], event.server.address)
        times = self._short.setdefault(pair, deque(maxlen=_STORM_CONNECTIONS))
        self._short.move_to_end(pair)
        if len(self._short) > _REMEMBERED:
            self._short.popitem(last=False)
        times.append(event.start_ns)
        if len(times) == _STORM_CONNECTIONS and times[-1] - times[0] <= _STORM_NS:
            seconds = (event.end_ns - times[0]) / 1e9
            times.clear()  # the next five are another report
            self._findings.report_of_none(
                "reconnect-storm",
                f"{pair[0]} connected to {pair[1]} {_STORM_CONNECTIONS} times within {seconds:.1f} s, and each time "
                f"the connection ended without a message (the last is flow {event.flow}, handshake {event.handshake})",
            )

    def _compare_versions(self, event: Connection) -> None:
        version, server = event.client.version, event.server.address
        if version is None or "." not in version or event.handshake != "complete":
            return
        newest = self._newest.get(server)
        if (newest is None or version > newest) and len(self._newest) < _REMEMBERED:
            self._newest[server] = version
        if newest is None or version == newest or (server, min(version, newest)) in self._told_older:
            return
        older, newer = sorted((version, newest))
        self._told_older.add((server, older))
        self._findings.report_of_none(
            "older-peer",
            f"{server} has peers of ZMTP {older} ({event.client.address} or one before it) and of ZMTP {newer}",
        )

    def finish(self) -> None:
        """Report what only the whole capture tells."""
        for server, count in self._refused.items():
            if server in self._servers:
                times = "once" if count == 1 else f"{count:,} times"
                self._findings.report_of_none("connection-refused", f"a connection to {server} was refused {times}")
