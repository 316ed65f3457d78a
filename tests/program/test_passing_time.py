"""A live capture says what reading its packets says, though its clock advances while none come."""

from operator import itemgetter
from random import Random

import pytest

from dissectors.events import Command, Connection
from tests.capture_point.oracle import sniff
from tests.support.live_packets import LivePackets, Stall, sniff_live
from tests.support.settings import RELATIONS
from tests.world.conversation import CLIENT, SERVER, pushes
from tests.world.events import complaints, told
from tests.world.network import SentSegment, packets, segments
from tests.world.octets import COMMAND, frame
from zmtpsniff.capture.block import Packet
from zmtpsniff.engine.sniffer import Collaborators, Sniffer
from zmtpsniff.net.segment import ACK, FIN, RST

SECOND = 1_000_000_000
_AT = itemgetter(0)
PING, PONG = frame(b"\4PING\0\0", COMMAND), frame(b"\4PONG", COMMAND)
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


def heartbeats(until: float, received: int, said: int) -> list[tuple[float, SentSegment]]:
    """PINGs of the server every 0.2 s, each of which the client's kernel acknowledges while it says nothing itself.

    Behind the first one the client has said ``said`` octets, of which the server has received ``received``.
    """
    sent = []
    for number in range(int(until / 0.2)):
        at, offset = 0.1 + 0.2 * number, number * len(PING)
        sent.append(server(at, offset, PING, received if number else 0))
        sent.append(client(at + 0.01, said if number else 0, seen=offset + len(PING)))
    return sent


def test_a_peer_whose_octets_the_network_loses_is_not_silent() -> None:
    """Captured beside the receiver: a PONG is there, and the message before it is lost twice."""
    lost = frame(b"lost")
    pongs = [
        client(3.1, 0, lost, 15 * len(PING)),
        client(3.11, len(lost + PONG), PONG * 14, 15 * len(PING)),
        server(3.12, 15 * len(PING), seen=len(lost + PONG * 15)),
    ]
    sent = sorted([*heartbeats(3, 0, len(lost + PONG)), client(0.12, len(lost), PONG, len(PING)), *pongs], key=_AT)
    given = passing(sent)
    assert complaints(sniff([given])) == complaints(sniff_live(given, SECOND)) == []


def test_a_peer_that_the_network_keeps_from_saying_more_is_not_silent() -> None:
    """Captured beside the sender: its first PONG does not get through, so TCP keeps back those that follow."""
    pongs = [client(0.12, 0, PONG, len(PING)), client(3.1, 0, PONG * 15, 15 * len(PING))]
    given = passing(sorted([*heartbeats(3, 0, len(PONG)), *pongs], key=_AT))
    assert complaints(sniff([given])) == complaints(sniff_live(given, SECOND)) == []


def test_a_peer_that_falls_silent_while_nothing_is_lost() -> None:
    given = passing(sorted([*heartbeats(3, len(PONG), len(PONG)), client(0.12, 0, PONG, len(PING))], key=_AT))
    assert complaints(sniff([given])) == complaints(sniff_live(given, SECOND)) == [("warning", "ping-unanswered")]


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


def test_what_waits_after_a_stall_of_the_machine_is_not_missing() -> None:
    """The PONG is captured while nothing runs. The clock is seconds ahead when it gets here."""
    given = passing([server(0.1, 0, PING), client(0.6, 0, PONG, len(PING)), server(0.61, len(PING), seen=len(PONG))])
    begin_ns = given[-3][0]
    events = sniff_live(given, 3 * SECOND, [Stall(begin_ns + 1, begin_ns + 5 * SECOND)])
    assert complaints(events) == []
    assert told(events) == told(sniff([given]))


@pytest.mark.parametrize("seconds", [1.5, 2.5])
def test_what_a_capture_keeps_while_it_stands_still_is_not_missing(seconds: float) -> None:
    """The program runs, and sees its clock advance; only the capture has not given what it holds."""
    given = passing([server(0.1, 0, PING), client(0.11, 0, PONG, len(PING)), server(0.12, len(PING), seen=len(PONG))])
    begin_ns = given[-3][0]
    events = sniff_live(given, 3 * SECOND, [Stall(begin_ns + 1, begin_ns + int(seconds * SECOND), of_capture=True)])
    assert complaints(events) == []
    assert told(events) == told(sniff([given]))


def test_a_peer_that_falls_silent_is_told_while_it_is() -> None:
    given = passing([server(0.1, 0, PING), client(0.11, 0, seen=len(PING))])
    assert complaints(sniff_live(given, 4 * SECOND)) == [("warning", "ping-unanswered")]
