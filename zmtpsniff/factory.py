"""Who dissects what flows carry: dissectors made by what addresses and the user's rules say."""

from collections.abc import Sequence

from dissectors.beacon import Beacons
from dissectors.events import AnyEvent
from dissectors.zmtp.connection import ZmtpConnection
from dissectors.zmtp.curve import Curve
from dissectors.zmtp.datagrams import Multicast, Radio
from dissectors.zmtp.evidence import Doubts
from dissectors.zmtp.limits import Limits
from zmtpsniff.decode_as import DecodeAs, first_match
from zmtpsniff.net.addresses import Address
from zmtpsniff.net.datagrams import Kind
from zmtpsniff.net.dissection import FlowDissection


class DissectorFactory:
    """Makes a dissector for each flow, which adds what it finds to one list of events."""

    def __init__(
        self,
        events: list[AnyEvent],
        limits: Limits,
        rules: Sequence[DecodeAs] = (),
        doubts: Doubts | None = None,
        curve: Curve | None = None,
    ) -> None:
        """``events`` is the list that all dissectors add to; the first rule that matches a flow holds.

        ``doubts`` takes note of connections that may speak ZMTP and are not shown; None for nobody who asks.
        ``curve`` opens the boxes of CURVE, if there are keys.
        """
        self._events = events
        self._limits = limits
        self._rules = rules
        self._doubts = doubts
        self._curve = curve

    def connection(self, number: int, client: Address, server: Address, starts: tuple[bool, bool]) -> ZmtpConnection:
        """The dissector of flow ``number``; ``starts`` says of both sides whether their beginning is known."""
        rule = first_match(self._rules, "tcp", server.port, client.port) if self._rules else None
        doubts = self._doubts if client.transport == "tcp" else None  # what they advise is a rule, which names a port
        return ZmtpConnection(
            self._events,
            number,
            client.text,
            server.text,
            starts,
            self._limits,
            None if rule is None else rule.version,
            client.transport,
            doubts,
            self._wanted,
        )

    @property
    def _wanted(self) -> Curve | None:
        """What opens boxes, None as long as nobody has given keys: then a connection has nothing to do with it."""
        return self._curve if self._curve is not None and self._curve.is_wanted else None

    def datagrams(self, number: int, kind: Kind, src: Address, dst: Address) -> Radio | Multicast | Beacons:
        """The dissector of flow ``number``, which is what one sender sends to one destination."""
        if kind == "beacon":
            return Beacons(self._events, number, src.text, dst.text)
        if kind == "udp":
            return Radio(self._events, number, src.text, dst.text, self._limits)
        forced = kind == "epgm" and self.carries_datagrams(dst.port)
        return Multicast(self._events, number, kind, src.text, dst.text, self._limits, forced)

    def carries_datagrams(self, *ports: int) -> bool:
        """Whether a rule says of one of these UDP ports that it carries ZMTP's datagrams."""
        return first_match(self._rules, "udp", *ports) is not None

    def save(self, dissection: FlowDissection) -> bytes:
        """The snapshot of a dissector of :meth:`connection`."""
        assert isinstance(dissection, ZmtpConnection)
        return dissection.snapshot()

    def restored(self, snapshot: bytes) -> ZmtpConnection:
        """The dissector that goes on from a :meth:`save`; raises SnapshotError."""
        return ZmtpConnection.restore(snapshot, self._events, self._limits, self._doubts, self._wanted)
