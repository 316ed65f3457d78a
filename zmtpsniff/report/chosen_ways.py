"""The ways that a report shows, and the programs that they join."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from heapq import heappush, heappushpop

from dissectors.address import host_of, is_loopback
from dissectors.events import AnyEvent, Connection
from zmtpsniff.analysis.ways.way_records import Way, lasted_ns
from zmtpsniff.analysis.ways.ways import Ways
from zmtpsniff.net.witness import Acknowledgment, Witness

_SLOWEST = 5
_LOST = 5
_SAME = 2  # of those that ended at one place for one reason, while there are others
_PLACES = 1000  # where ways ended
_BOUND = 10_000  # addresses


class ChosenWays:
    """Takes all events of captures in batches, and keeps the slowest ways and some of those that were lost."""

    def __init__(self, keep: Callable[[AnyEvent], bool] | None = None) -> None:
        """With ``keep``, ways one of whose messages it wants."""
        self._ways = Ways(keep, in_order=False)
        self.witness: Witness = self._ways
        self._slowest: list[tuple[int, int, Way]] = []  # a heap of how long they took, a number, and the way
        self._lost: dict[tuple[str, str], list[Way]] = {}  # by the place, and why
        self._count = 0
        self._bound: dict[str, None] = {}
        self._asks: Counter[str] = Counter()  # by socket: its messages that go on, without those that go back

    def acknowledge(self, acknowledgments: Iterable[Acknowledgment]) -> None:
        """Receivers have acknowledged octets; the events of the same packets come with the next call of take()."""
        self._ways.acknowledge(acknowledgments)

    def take(self, events: Sequence[AnyEvent]) -> None:
        """Follow the messages of a batch of all events."""
        for event in events:
            if type(event) is Connection and len(self._bound) < _BOUND:
                self._bound[event.server.address] = None
        for way in self._ways.take(events):
            self._offer(self._ways.record(way))

    def _offer(self, way: Way | None) -> None:
        """Keep a way if it is among the slowest, or was lost where few others were."""
        if way is None:
            return
        self._count += 1
        for leg in way.legs:
            if leg.src in self._asks or len(self._asks) < _BOUND:
                self._asks[leg.src] += -1 if leg.reply else 1
        if way.ended is not None:
            end = (way.ended.at, way.ended.why)
            if end in self._lost or len(self._lost) < _PLACES:
                found = self._lost.setdefault(end, [])
                if len(found) < _LOST:
                    found.append(way)
        elif way.answered or (way.kind != "request" and len(way.legs) > 1):
            entry = (lasted_ns(way), -self._count, way)
            (heappush if len(self._slowest) < _SLOWEST else heappushpop)(self._slowest, entry)

    def finish(self) -> list[Way]:
        """The capture is over: the slowest first, then what was lost, in the order of time."""
        for way in self._ways.finish():
            self._offer(self._ways.record(way))
        few = [way for found in self._lost.values() for way in found[:_SAME]]
        more = [way for found in self._lost.values() for way in found[_SAME:]]
        lost = sorted([*few, *more][:_LOST], key=lambda way: way.time_ns)
        return [*(way for *_, way in sorted(self._slowest, reverse=True)), *lost]

    # ------------------------------------------------------------------ programs

    def joins(self, address: str) -> bool:
        """Whether a way has shown that the program of this socket has other sockets, too."""
        program = self._ways.programs.get(address)
        return program is not None and len(program.sockets) > 1

    def program(self, address: str) -> str | None:
        """The addresses that the program of a socket is bound to, if ways show that it has more sockets.

        As in ``10.0.0.5:5555, 5556``. A program that is bound nowhere has the name of its host, or on the loopback
        interface, where all programs have one address, of its first socket.
        """
        if not self.joins(address):
            return None
        sockets = self._ways.programs[address].sockets
        bound = sorted(each for each in sockets if each in self._bound)
        if not bound:
            return sockets[0] if is_loopback(address) else None
        host = host_of(bound[0])
        return ", ".join([bound[0], *(each.removeprefix(f"{host}:") for each in bound[1:])])

    def asks(self, address: str) -> bool | None:
        """Whether a socket sends requests, jobs or publications rather than replies; None if it is in no way."""
        return self._asks[address] > 0 if address in self._asks else None
