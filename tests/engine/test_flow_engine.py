"""The engine continues from a snapshot of another one, and takes datagrams in their places among segments."""

from random import Random

import pytest

from dissectors.events import AnyEvent, Connection, Greeting, Message
from tests.support.paths import FIXTURES
from tests.world.conversation import request_reply
from tests.world.network import packets, segments
from zmtpsniff.capture.files import open_captures
from zmtpsniff.dissection import open_files
from zmtpsniff.engine.flow_engine import FlowEngine, StateError, in_sample
from zmtpsniff.engine.settings import Settings
from zmtpsniff.net.addresses import Address
from zmtpsniff.net.packets import HeaderDecoder


def test_an_engine_continues_from_a_snapshot() -> None:
    """With the same events, wherever the first engine stops."""
    given = HeaderDecoder().segments(packets(segments(request_reply(3, Random(1)))), 1)
    whole = FlowEngine(Settings())
    whole.take(given)
    wanted, notices = whole.give()
    assert any(type(event) is Message for event in wanted)
    assert notices == []
    for place in range(len(given)):
        first, second = FlowEngine(Settings()), FlowEngine(Settings())
        first.take(given[:place])
        second.restore(first.snapshot())
        second.take(given[place:])
        assert first.give()[0] + second.give()[0] == wanted


@pytest.mark.parametrize("octets", [b"", b"\1", b"no state"])
def test_octets_that_are_no_snapshot_are_refused(octets: bytes) -> None:
    with pytest.raises(StateError):
        FlowEngine(Settings()).restore(octets)


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
