"""Makes the dissector of each flow, by its addresses and the user's rules."""

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
    """Makes a dissector for each flow. All dissectors append to one list of events."""

    def __init__(
        self,
        events: list[AnyEvent],
        limits: Limits,
        rules: Sequence[DecodeAs] = (),
        doubts: Doubts | None = None,
        curve: Curve | None = None,
    ) -> None:
        """``events`` is the list that all dissectors append to. The first rule that matches a flow holds.

        ``doubts`` takes note of connections that may speak ZMTP and are not shown; None if nobody asks. ``curve``
        opens the boxes of CURVE, if there are keys.
        """
        self._events = events
        self._limits = limits
        self._rules = rules
        self._doubts = doubts
        self._curve = curve

    def connection(self, number: int, client: Address, server: Address, starts: tuple[bool, bool]) -> ZmtpConnection:
        """The dissector of flow ``number``; ``starts`` says for each side whether its beginning is known."""
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
        """The object that opens boxes; None as long as there are no keys, so that connections need not ask it."""
        return self._curve if self._curve is not None and self._curve.is_wanted else None

    def datagrams(self, number: int, kind: Kind, src: Address, dst: Address) -> Radio | Multicast | Beacons:
        """The dissector of flow ``number``: the datagrams of one sender to one destination."""
        if kind == "beacon":
            return Beacons(self._events, number, src.text, dst.text)
        if kind == "udp":
            return Radio(self._events, number, src.text, dst.text, self._limits)
        forced = kind == "epgm" and self.carries_datagrams(dst.port)
        return Multicast(self._events, number, kind, src.text, dst.text, self._limits, forced)

    def carries_datagrams(self, *ports: int) -> bool:
        """Whether a rule says that one of these UDP ports carries ZMTP's datagrams."""
        return first_match(self._rules, "udp", *ports) is not None

    def save(self, dissection: FlowDissection) -> bytes:
        """The snapshot of a dissector of :meth:`connection`."""
        assert isinstance(dissection, ZmtpConnection)
        return dissection.snapshot()

    def restored(self, snapshot: bytes) -> ZmtpConnection:
        """The dissector that goes on from a :meth:`save`; raises SnapshotError."""
        return ZmtpConnection.restore(snapshot, self._events, self._limits, self._doubts, self._wanted)
