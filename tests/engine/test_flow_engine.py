"""The engine takes datagrams in their places among segments, and a sample of connections as a whole."""

import pytest

from dissectors.events import AnyEvent, Connection, Greeting, Message
from tests.support.paths import FIXTURES
from tests.world.conversation import Conversation, Piece, greetings
from tests.world.network import packets, segments
from tests.world.octets import message
from zmtpsniff.capture.files import open_captures
from zmtpsniff.dissection import open_files
from zmtpsniff.engine.flow_engine import FlowEngine, in_sample
from zmtpsniff.engine.settings import Settings
from zmtpsniff.net.addresses import Address
from zmtpsniff.net.packets import HeaderDecoder
from zmtpsniff.net.witness import Acknowledgment


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


def test_acknowledgments_are_of_their_own_connection() -> None:
    """Two connections between the same ends, one after the other in one batch."""
    heard: list[Acknowledgment] = []
    engine = FlowEngine(Settings(patterns=False), acknowledge=heard.extend)
    given = Conversation("again", (*greetings(3, b"REQ", b"REP"), Piece(0, message(3, b"", b"?"))))
    twice = [
        packet
        for start_ns in (10**18, 10**18 + 10**10)
        for packet in packets(segments(given), (1, 2), (40_000, 5555), start_ns, 10**5)
    ]
    engine.take(HeaderDecoder().segments(twice, 1))
    sent = {(flow, sender): 0 for _, flow, sender, _ in heard}
    for _, flow, sender, offset in heard:
        sent[flow, sender] = max(sent[flow, sender], offset)
    assert {flow for flow, _ in sent} == {1, 2}
    assert [offset for (flow, _), offset in sent.items() if flow == 1] == [
        offset for (flow, _), offset in sent.items() if flow == 2
    ]


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
