"""A live capture says what reading its packets says, though its clock goes on while none come."""

from random import Random

import pytest

from dissectors.events import Command, Connection
from tests.capture_point.oracle import sniff
from tests.support.live_packets import LivePackets, sniff_live
from tests.support.made_up import frame, pushes
from tests.support.settings import RELATIONS
from tests.support.streams import CLIENT, SERVER, SentSegment, complaints, packets, segments, told
from zmtpsniff.capture.source import Packet
from zmtpsniff.net.segment import ACK, FIN, RST
from zmtpsniff.sniffer import Collaborators, Sniffer

SECOND = 1_000_000_000
PING, PONG = frame(b"\4PING\0\0", command=True), frame(b"\4PONG", command=True)
_BEGUN = segments(pushes(3, Random(1), 20), fin=False)
_CLIENT, _SERVER = (max(segment.end for segment in _BEGUN if segment.side == side) for side in (CLIENT, SERVER))


def passing(sent: list[tuple[float, SentSegment]]) -> list[Packet]:
    """A conversation, and these segments so many seconds after it."""
    begun = packets(_BEGUN)
    end_ns = begun[-1][0]
    return begun + [packet for at, one in sent for packet in packets([one], start_ns=end_ns + int(at * SECOND))]


def client(at: float, offset: int, payload: bytes = b"", seen: int = 0, flags: int = ACK) -> tuple[float, SentSegment]:
    return at, SentSegment(CLIENT, _CLIENT + offset, payload, _SERVER + seen, flags)


def server(at: float, offset: int, payload: bytes = b"", seen: int = 0, flags: int = ACK) -> tuple[float, SentSegment]:
    return at, SentSegment(SERVER, _SERVER + offset, payload, _CLIENT + seen, flags)


@pytest.mark.parametrize("flags", [RST, FIN | ACK], ids=["rst", "fin"])
def test_a_connection_that_has_ended_need_not_answer(flags: int) -> None:
    """The network loses the PONG and the connection ends before TCP can mend that."""
    given = passing(
        [
            server(0.01, 0, PING),
            client(0.02, len(PONG), seen=len(PING)),
            server(0.1, len(PING), flags=FIN | ACK),
            client(0.11, len(PONG), seen=len(PING) + 1, flags=FIN | ACK),
            server(0.12, len(PING) + 1, flags=flags),
        ]
    )
    events = sniff_live(given, after_ns=20 * SECOND)
    assert [event.name for event in events if isinstance(event, Command)][-1] == "PING"
    assert complaints(events) == complaints(sniff([given])) == []
    assert sum(isinstance(event, Connection) for event in events) == 1


def test_octets_that_tcp_sends_again_after_seconds_are_not_lost() -> None:
    """The network loses a message twice, and nobody acknowledges it."""
    lost, next_one = frame(b"lost"), frame(b"the next one")
    given = passing(
        [
            client(0.1, len(lost), next_one),
            server(0.11, 0),
            client(2.7, 0, lost),
            server(2.71, 0, seen=len(lost + next_one)),
        ]
    )
    events = sniff_live(given, after_ns=3 * SECOND)
    assert complaints(events) == []
    assert told(events) == told(sniff([given]))


@pytest.mark.parametrize("is_acknowledged", [True, False])
def test_octets_that_the_capture_lost_are_not_waited_for(is_acknowledged: bool) -> None:
    """They were received, or the capture has nothing of the side that would say so."""
    lost, next_one = frame(b"lost"), frame(b"the next one")
    given = passing([client(0.1, len(lost), next_one), server(0.11, 0, seen=len(lost + next_one))])
    if not is_acknowledged:
        given = [packet for packet in given if packet[2][26:30] == b"\x0a\0\0\1"]
    source = LivePackets(given, after_ns=3 * SECOND)
    *while_it_passes, _ = Sniffer(source, RELATIONS, Collaborators(clock=source.clock)).events()
    assert ("error", "capture-gap") in complaints(event for events in while_it_passes for event in events)
