"""The engine takes datagrams in their places among segments, and a sample of connections as a whole."""

import pytest

from dissectors.events import AnyEvent, Connection, Greeting, Message
from tests.support.paths import FIXTURES
from zmtpsniff.capture.files import open_captures
from zmtpsniff.dissection import open_files
from zmtpsniff.engine.flow_engine import FlowEngine, in_sample
from zmtpsniff.engine.settings import Settings
from zmtpsniff.net.addresses import Address
from zmtpsniff.net.packets import HeaderDecoder


def test_a_batch_may_have_segments_and_datagrams() -> None:
    """Their flows share one count, and each datagram that has a flow is named."""
    begun: list[tuple[int, str]] = []

    def begin(number: int, transport: str, _: Address, __: Address) -> None:
        begun.append((number, transport))

    engine = FlowEngine(Settings(patterns=False), begin=begin)
    headers = HeaderDecoder()
    found: list[tuple[int, bytes]] = []
    events: list[AnyEvent] = []
    first = 1
    for batch in open_captures([str(FIXTURES / "app_zre.pcap")]).batches():
        found += engine.take(headers.segments(batch, first), headers.datagrams)
        first += len(batch)
    engine.finish()
    events += engine.give()[0]
    assert {kind for _, kind in begun} == {"tcp", "beacon"}
    assert {getattr(event, "flow", None) for event in events} == {number for number, _ in begun}
    beacons = [event.packet for event in events if type(event).__name__ == "Beacon"]  # type: ignore[union-attr]
    assert [packet for packet, _ in found] == beacons


@pytest.mark.parametrize("sample", [2, 3, 7])
def test_a_sample_has_whole_connections(sample: int) -> None:
    """Each connection that is looked at gives the records that it gives among all."""

    def told(settings: Settings) -> dict[str, list[AnyEvent]]:
        found: dict[str, list[AnyEvent]] = {}
        for event in open_files([FIXTURES / "rec_growing_connections.pcap"], settings):
            if isinstance(event, Connection | Message | Greeting):
                ends = (
                    (event.client.address, event.server.address)
                    if isinstance(event, Connection)
                    else (event.src, event.dst)
                )
                found.setdefault(" ".join(sorted(ends)), []).append(event)
        return found

    whole, some = told(Settings()), told(Settings(sample=sample))
    assert 0 < len(some) < len(whole)
    for ends in whole:
        one, other = ends.split()
        assert in_sample(one, other, sample) == in_sample(other, one, sample) == (ends in some)
    assert all(some[ends] == whole[ends] for ends in some)
