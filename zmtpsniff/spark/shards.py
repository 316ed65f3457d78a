"""The groups of a series in a map of Spark's state store, many to an entry: to get or put one costs half a millisecond.

Only entries are read that have a group of which something comes, or of which nothing may come any more.
"""

from collections.abc import Iterator
from typing import Protocol
from zlib import crc32

import msgspec

from zmtpsniff.spark.open_states import decode_state, encode_state
from zmtpsniff.spark.whole import State

COUNT = 1024
NEVER = (1 << 63) - 1
_MOST_OCTETS = 64 << 20  # of states in memory

_Shard = dict[bytes, tuple[int, bytes]]  # by name: when the group is over, and its State
_DECODER = msgspec.msgpack.Decoder(_Shard)


class Entries(Protocol):
    """A map from numbers to octets."""

    def get(self, number: int) -> bytes | None:
        """An entry."""
        ...

    def put(self, number: int, octets: bytes | None) -> None:
        """Change an entry, or remove it."""
        ...


class Shards:
    """The groups of one series."""

    def __init__(self, entries: Entries, over_ns: dict[int, int]) -> None:
        """Read and write ``entries``; ``over_ns`` says of each when the first of its groups is over, and is kept so."""
        self._entries = entries
        self.over_ns = over_ns
        self._shards: dict[int, _Shard] = {}  # that used last is the last one
        self._octets: dict[int, int] = {}
        self._total = 0
        self._changed: set[int] = set()

    def get(self, name: bytes) -> State | None:
        """What is kept of a group."""
        found = self.octets(name)
        return None if found is None else decode_state(found)

    def octets(self, name: bytes) -> bytes | None:
        """The same as octets, as :func:`encode_state` has them."""
        found = self.shard(_number(name)).get(name)
        return None if found is None else found[1]

    def put(self, name: bytes, state: State | None, over_ns: int = 0) -> None:
        """Keep this of a group, of which nothing is that comes from ``over_ns`` on; or nothing."""
        self.put_octets(name, None if state is None else encode_state(state), over_ns)

    def put_octets(self, name: bytes, octets: bytes | None, over_ns: int = 0) -> None:
        """The same with octets."""
        number = _number(name)
        shard = self.shard(number)
        before = shard.pop(name, None)
        if before is None and octets is None:
            return
        if octets is not None:
            shard[name] = over_ns, octets
            self.over_ns[number] = min(self.over_ns.get(number, NEVER), over_ns)
        self._changed.add(number)
        self._count(number, len(octets or b"") - (len(before[1]) if before else 0))

    def over(self, now_ns: int) -> Iterator[bytes]:
        """The names of groups that may be over; whoever gets one puts it anew, if it is not."""
        for number, over_ns in sorted(self.over_ns.items()):
            if over_ns <= now_ns:
                shard = self.shard(number)
                yield from [name for name, (group_ns, _) in shard.items() if group_ns <= now_ns]
                shard = self.shard(number)
                self.over_ns[number] = min((group_ns for group_ns, _ in shard.values()), default=NEVER)

    def clear(self) -> None:
        """Keep nothing of any group."""
        for number in self.over_ns:
            self._entries.put(number, None)
        self.over_ns.clear()
        self._shards.clear()
        self._octets.clear()
        self._changed.clear()
        self._total = 0

    def flush(self) -> None:
        """Write what was changed."""
        for number in sorted(self._changed):
            self._write(number)
        for number in [number for number, over_ns in self.over_ns.items() if over_ns == NEVER]:
            if not self.shard(number):
                del self.over_ns[number]

    def shard(self, number: int) -> _Shard:
        """The groups of an entry, by name: when each is over, and its state as octets."""
        shard = self._shards.pop(number, None)
        if shard is None:
            octets = self._entries.get(number) if number in self.over_ns else None
            shard = {} if octets is None else _DECODER.decode(octets)
            self._octets[number] = 0
            self._count(number, len(octets or b""))
        self._shards[number] = shard
        return shard

    def _count(self, number: int, octets: int) -> None:
        self._octets[number] += octets
        self._total += octets
        while self._total > _MOST_OCTETS and len(self._shards) > 1:
            oldest = next(one for one in self._shards if one != number)
            if oldest in self._changed:
                self._write(oldest)
            del self._shards[oldest]
            self._total -= self._octets.pop(oldest)

    def _write(self, number: int) -> None:
        shard = self._shards[number]
        self._entries.put(number, msgspec.msgpack.encode(shard) if shard else None)
        self._changed.discard(number)


def _number(name: bytes) -> int:
    return crc32(name) % COUNT
