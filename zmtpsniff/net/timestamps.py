"""How much time passed between two packets by the clock of their sender, as TCP's timestamps tell (RFC 7323)."""

from collections.abc import Iterable
from typing import NamedTuple

from zmtpsniff.capture.block import Packet
from zmtpsniff.net.packets import HeaderDecoder
from zmtpsniff.net.segment import Segment

_END, _PADDING, _TIMESTAMPS = 0, 1, 8  # kinds of options
_SIZE = 10  # of the option, with its kind and its length
_MODULO = 1 << 32
_FASTEST_NS, _SLOWEST_NS = 1_000_000, 1_000_000_000  # a tick is no shorter, and no longer (RFC 7323, section 5.4)


class Stamp(NamedTuple):
    """When a packet was captured, and the number of ticks that its sender wrote into it."""

    time_ns: int
    ticks: int


class TimestampReader:
    """Reads the timestamps of packets."""

    def __init__(self) -> None:
        """Start without any."""
        self._headers = HeaderDecoder(self._tcp)
        self._found: dict[bytes, int] = {}

    def stamps(self, packets: Iterable[Packet]) -> dict[bytes, Stamp]:
        """The last stamp of each direction of a connection in these packets."""
        stamps = {}
        for time_ns, link, octets, wire, _ in packets:
            self._found.clear()
            self._headers.segment(time_ns, 0, link, octets, wire)
            for key, ticks in self._found.items():
                stamps[key] = Stamp(time_ns, ticks)
        return stamps

    def _tcp(
        self, _time: int, _number: int, addresses: bytes, data: bytes, start: int, have: int, _stop: int
    ) -> Segment | None:
        begin = start + ((data[start + 12] & 0xF0) >> 2) if have >= start + 20 else 0
        place = start + 20
        while place + 1 < min(begin, have) and data[place] != _END:
            kind, length = data[place], data[place + 1]
            if kind == _TIMESTAMPS and length == _SIZE and place + _SIZE <= have:
                self._found[addresses + data[start : start + 4]] = int.from_bytes(data[place + 2 : place + 6])
                break
            place += 1 if kind == _PADDING else max(length, 2)
        return None


def jump_ns(before: dict[bytes, Stamp], after: dict[bytes, Stamp]) -> int:
    """By how much the clock of the capture was set forward between the last packets before and the first after that.

    It is 0 unless the senders' clocks prove it: a direction says that less than half of that time has passed, even if
    its ticks are the slowest that there may be, and no other one that more has passed, if its ticks are the fastest.
    The time between the packets is counted as short as it can be.
    """
    proved: list[int] = []
    for key in before.keys() & after.keys():
        ticks = (after[key].ticks - before[key].ticks) % _MODULO
        if ticks >= _MODULO // 2:  # it was sent before the other
            continue
        apart_ns = after[key].time_ns - before[key].time_ns
        if 2 * ticks * _FASTEST_NS >= apart_ns:
            return 0
        if 2 * (ticks + 1) * _SLOWEST_NS <= apart_ns:
            proved.append(apart_ns - ticks * _FASTEST_NS)
    return min(proved, default=0)
