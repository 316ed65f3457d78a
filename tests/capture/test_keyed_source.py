"""Packets wait for the keys that were made before them."""

from collections.abc import Iterator

from tests.world.tap import Packets
from zmtpsniff.capture.block import Block, Packet
from zmtpsniff.capture.keyed_source import KeyedSource


class FakeTeller:
    """It has told before what it sees."""

    def __init__(self) -> None:
        self.watches = True
        self.seen_ns = 0

    def see(self, seconds: float) -> None:
        """Nothing new."""


class Ticks(Packets):
    """Packets, a batch at a time, with empty ones while nothing comes."""

    def __init__(self, batches: list[list[Packet]], keys: FakeTeller, seen: list[int]) -> None:
        super().__init__([])
        self._ticks = batches
        self._keys = keys
        self._seen = seen

    def batches(self) -> Iterator[Block]:
        for batch, seen_ns in zip(self._ticks, self._seen, strict=True):
            self._keys.seen_ns = seen_ns
            yield Block.of(batch)


def batches(source: Ticks, keys: FakeTeller) -> list[list[Packet]]:
    return [block.packets() for block in KeyedSource(source, keys).batches()]


def packet(time_ns: int) -> Packet:
    return time_ns, 1, b"", 0, None


def test_packets_wait_until_the_keys_before_them_are_known() -> None:
    keys = FakeTeller()
    source = Ticks([[packet(10)], [packet(20)], [], [], []], keys, [5, 15, 15, 25, 25])
    assert batches(source, keys) == [[], [packet(10)], [], [packet(20)], []]
    keys.watches = False  # nobody says any more what is known
    source = Ticks([[packet(10)], [packet(20)]], keys, [5, 5])
    assert batches(source, keys) == [[packet(10)], [packet(20)]]
