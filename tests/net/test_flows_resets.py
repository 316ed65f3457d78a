"""RSTs: which end a connection, which do not count, and what is lost with those that come before their octets."""

from random import Random

from dissectors.events import Connection, Message
from tests.net.test_flows import SECOND, Wire, connected
from tests.world.conversation import CLIENT, SERVER, pushes
from tests.world.events import complaints, sniff
from tests.world.network import SentSegment, packets, segments
from zmtpsniff.net.segment import ACK, FIN, RST, SYN


def test_reset_ends_a_connection_unless_it_is_forged() -> None:
    wire = connected()
    wire.send(False, 1001, b"data")
    wire.send(True, 5001 + 2**31 - 5, flags=RST)
    assert wire.only.end == ""
    wire.send(True, 5001, flags=RST)
    assert wire.only.end == "rst"


def test_octets_in_a_reset_are_a_text() -> None:
    wire = connected()
    wire.send(True, 5001, b"data")
    wire.send(True, 5005, b"\0\5Go away", flags=RST | ACK, ack=1001)
    assert (wire.only.server.data, wire.only.server.gaps, wire.only.end) == (b"data", [], "rst")


def test_a_reset_right_after_the_syn_that_was_sent_later() -> None:
    """The capture point has put it before everything else: it waits for what its numbers say was sent before."""
    for ack in (0, 5003):  # without an acknowledgment, its own number tells
        wire = Wire()
        wire.send(False, 1000, flags=SYN)
        wire.send(False, 1004, flags=RST | ACK if ack else RST, ack=ack)
        wire.send(True, 5000, flags=SYN | ACK, ack=1001)
        wire.send(False, 1001, b"one", ack=5001)
        wire.send(True, 5001, b"ok", ack=1004)
        wire.table.finish()
        assert (wire.only.client.data, wire.only.server.data, wire.only.end) == (b"one", b"ok" if ack else b"", "rst")


def test_octets_before_a_reset_that_never_come_are_lost() -> None:
    wire = connected()
    wire.send(False, 1001, b"one")
    wire.send(False, 1007, flags=RST)
    wire.table.finish()
    assert (wire.only.client.data, wire.only.client.gaps, wire.only.end) == (b"one???", [(3, False)], "rst")


def test_a_reset_after_a_fin() -> None:
    wire = connected()
    wire.send(False, 1001, b"one")
    wire.send(False, 1004, flags=FIN | ACK)
    wire.send(True, 5001, b"late", ack=1005)
    wire.send(False, 1005, flags=RST)
    assert (wire.only.end, wire.only.client.gaps, wire.only.server.data) == ("rst", [], b"late")


def test_a_reset_of_which_the_fin_is_not_in_the_capture() -> None:
    wire = connected()
    wire.send(False, 1001, b"one")
    wire.send(False, 1005, flags=RST)
    wire.table.finish()
    assert (wire.only.client.data, wire.only.end) == (b"one", "rst")


def test_what_follows_a_reset_that_does_not_count() -> None:
    """Its sender sends more octets, acknowledges some that came later, says its FIN elsewhere, or much later speaks."""
    for kind in ("octets", "acknowledgment", "FIN", "much later"):
        wire = connected()
        wire.send(False, 1001, b"one")
        wire.send(True, 5500 if kind != "octets" else 4900, flags=RST)
        wire.send(False, 1004, b"two", ack=5001)
        if kind == "octets":
            wire.send(True, 5001, b"more", ack=1004)
        elif kind == "acknowledgment":
            wire.send(True, 5001, ack=1007)
        elif kind == "FIN":
            wire.send(True, 5001, flags=FIN | ACK, ack=1004)
        else:
            wire.pause(0.2)
            wire.send(True, 5001, ack=1004)
        wire.pause(60)
        wire.send(False, 1007, b"three", ack=5001)
        wire.table.finish()
        assert (wire.only.client.data, wire.only.server.gaps, wire.only.end) == (b"onetwothree", [], "open"), kind
        assert wire.table.register.count == 1


def test_a_connection_ends_with_a_reset_that_nothing_speaks_against() -> None:
    """Where the capture has more of its sender than the other side had when it sent what the RST answers."""
    wire = connected()
    wire.send(False, 1001, b"onetwo")
    wire.send(False, 1004, flags=RST)
    wire.pause(6)
    wire.send(True, 5001, b"another", ack=1)
    assert (wire.dissections[0].end, wire.table.register.count) == ("rst", 2)


def test_a_lost_fin_is_no_lost_octet() -> None:
    talk = pushes(3, Random(1), 20)
    sent = segments(talk, fin=False)
    ends = {side: max(one.end for one in sent if one.side == side) for side in (CLIENT, SERVER)}
    answers = [SentSegment(SERVER, ends[SERVER], b"", ends[CLIENT] + 1, FIN | ACK)]
    answers += [SentSegment(CLIENT, ends[CLIENT] + 1, b"", ends[SERVER] + 1, ACK)] * 60
    events = sniff(packets([*sent, *answers], step_ns=10_000_000))
    assert complaints(events) == []
    (connection,) = (event for event in events if isinstance(event, Connection))
    assert connection.octets.client == ends[CLIENT]
    assert sum(isinstance(event, Message) for event in events) == 20


def test_what_waits_behind_a_hole_is_not_forgotten_for_a_forged_reset() -> None:
    """The connection survives a RST that did not count, so a later hole is one like any other."""
    wire = connected()
    wire.send(False, 1001, b"one", ack=5001)
    wire.send(True, 5500, flags=RST)
    wire.send(True, 5001, b"two", ack=1004)
    wire.send(False, 1009, b"three", ack=5004)
    wire.now += 3 * SECOND
    wire.table.settle(wire.now)
    wire.send(True, 5004, b"four", ack=1014)
    wire.table.finish()
    assert wire.only.client.data == b"one?????three"
