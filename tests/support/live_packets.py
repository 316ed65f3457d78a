"""Packets that are at hand, given out as a live capture gives them: as they pass, while time passes.

Nothing waits here: the clock is one that the packets and the ticks of the capture move.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from dissectors.events import AnyEvent
from tests.support.settings import RELATIONS
from zmtpsniff.capture.block import NOTHING, Block, Packet
from zmtpsniff.capture.source import SourceState
from zmtpsniff.engine.sniffer import Collaborators, Sniffer

_TICK_NS = 50_000_000  # a live capture says that no packet has come so often


class Stall(NamedTuple):
    """The whole machine stands still for a while, or the capture alone; the kernel takes packets all the same."""

    begin_ns: int
    end_ns: int
    of_capture: bool = False


class LivePackets(SourceState):
    """A source of packets in the order of time, each of which comes when it is captured, and its clock."""

    def __init__(self, given: Sequence[Packet], after_ns: int = 0, stalls: Sequence[Stall] = ()) -> None:
        """Go on for ``after_ns`` after the last packet."""
        super().__init__()
        self._given = given
        self._after_ns = after_ns
        self._stalls = stalls
        self._now_ns = given[0][0]

    def clock(self) -> int:
        """The time, nanoseconds since the Unix epoch."""
        return self._now_ns

    def batches(self) -> Iterator[Block]:
        """Yield each packet by itself, and empty blocks in between. After a stall an empty one comes first."""
        for packet in self._given:
            yield from self._ticks(max([packet[0], *self._kept_until(packet)]))
            self._now_ns = max(self._now_ns, packet[0])
            yield Block.of([packet])
        yield from self._ticks(self._now_ns + self._after_ns)

    def _kept_until(self, packet: Packet) -> Iterator[int]:
        for stall in self._stalls:
            if stall.of_capture and stall.begin_ns <= packet[0] < stall.end_ns:
                yield stall.end_ns

    def _ticks(self, until_ns: int) -> Iterator[Block]:
        while self._now_ns + _TICK_NS < until_ns:
            self._now_ns += _TICK_NS
            for stall in self._stalls:
                if stall.begin_ns <= self._now_ns < stall.end_ns and not stall.of_capture:
                    self._now_ns = stall.end_ns
            yield NOTHING


def sniff_live(given: Sequence[Packet], after_ns: int = 0, stalls: Sequence[Stall] = ()) -> list[AnyEvent]:
    """All events of packets that pass, with what messages mean to each other."""
    source = LivePackets(given, after_ns, stalls)
    sniffer = Sniffer(source, RELATIONS, Collaborators(clock=source.clock))
    return [event for some in sniffer.events() for event in some]
