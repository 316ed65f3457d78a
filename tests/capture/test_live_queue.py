"""The queue between an engine and those who dissect: bounded, and honest about what it drops."""

import re
import threading
import time
from collections.abc import Iterator

import pytest

from zmtpsniff.capture import live
from zmtpsniff.capture.block import Block, Packet
from zmtpsniff.capture.engines.engine import Piece, piece_of
from zmtpsniff.capture.live import LiveSource
from zmtpsniff.capture.source import SourceState

PACKET: Packet = (1, 1, bytes(800), 800, None)


class Burst(SourceState):
    """An engine that has a burst of packets and then waits to be stopped."""

    name = "burst"

    def __init__(self, batches: int) -> None:
        super().__init__()
        self.failure: str | None = None
        self.all_out = threading.Event()
        self._stopped = threading.Event()
        self._batches = batches

    def start(self) -> None:
        pass

    def pieces(self) -> Iterator[Piece]:
        for _ in range(self._batches):
            yield piece_of(Block.of([PACKET] * 10))
        self.all_out.set()
        self._stopped.wait(60)
        self.dropped = 7

    def count_drops(self) -> None:
        pass

    def packets(self, payloads: Iterator[Block]) -> Iterator[Block]:
        return payloads

    def stop(self) -> None:
        self._stopped.set()

    def close(self) -> None:
        self.stop()


def test_what_a_slow_reader_leaves_is_bounded_and_counted_apart() -> None:
    engine = Burst(100)
    source = LiveSource(engine, queue_octets=100_000)  # room for ten batches
    batches = source.batches()
    seen = next(batches).packets()
    assert engine.all_out.wait(60)
    source.stop()
    seen += [packet for batch in batches for packet in batch]
    assert len(seen) + source.overrun == 1000
    assert 100 <= len(seen) <= 120
    assert source.dropped == source.overrun + 7
    assert {fault.code for fault in source.faults} == {"packets-dropped"}
    assert any("kernel" in fault.detail for fault in source.faults)
    assert any("waited to be read" in fault.detail for fault in source.faults)


def test_a_duration_ends_the_capture() -> None:
    source = LiveSource(Burst(1), seconds=0.1)
    assert sum(map(len, source.batches())) == 10


def test_a_second_stop_drops_what_waits_and_counts_it() -> None:
    engine = Burst(50)
    source = LiveSource(engine)
    batches = source.batches()
    seen = len(next(batches))
    assert engine.all_out.wait(60)
    source.stop()
    source.stop()
    seen += sum(map(len, batches))
    assert seen + source.overrun == 500
    assert source.overrun >= 480


class Losing(Burst):
    """An engine that loses a packet every ten milliseconds for about a second."""

    def pieces(self) -> Iterator[Piece]:
        for _ in range(100):
            time.sleep(0.01)
            self.dropped += 1
            yield piece_of(Block.of([PACKET]))


def test_losses_are_told_at_once_and_then_once_in_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "_TELL_SECONDS", 0.25)
    begin = time.monotonic()
    source = LiveSource(Losing(0))
    for _ in source.batches():
        pass
    lost = [int(re.findall(r"\d+", fault.detail)[0]) for fault in source.faults]
    assert sum(lost) == source.dropped == 100
    assert 2 <= len(lost) <= (time.monotonic() - begin) / 0.25 + 2
