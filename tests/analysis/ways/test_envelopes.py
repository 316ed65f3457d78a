"""Messages that hosts have taken: those of other connections are found without a look at each of one's own."""

import inspect

from zmtpsniff.analysis.ways.envelopes import Custody
from zmtpsniff.analysis.ways.hops import Hop, Line, Manners, Receipts, Turns

BODY = b"the same again"


def taken(custody: Custody, flow: int, count: int = 1) -> list[Hop]:
    """Messages of a connection that end with the same frame."""
    line = Line("PUSH", "PULL", "10.0.0.1", "10.0.0.2", Turns(), Manners(), Receipts())
    hops = [Hop("10.0.0.1:1", "10.0.0.2:5555", flow, packet, packet, 1, line, [BODY]) for packet in range(count)]
    for hop in hops:
        custody.add(hop)
    return hops


def elsewhere(custody: Custody, flow: int) -> list[Hop]:
    return list(custody.elsewhere(BODY, flow))


def test_those_of_other_connections_in_their_order() -> None:
    custody = Custody()
    assert elsewhere(custody, 1) == []
    first, second, third = taken(custody, 1), taken(custody, 2, 3), taken(custody, 3)
    assert elsewhere(custody, 2) == first + third
    assert elsewhere(custody, 9) == first + second + third
    custody.remove(third[0])
    assert elsewhere(custody, 2) == first
    for hop in first + second:
        custody.remove(hop)
    assert elsewhere(custody, 9) == []


def test_one_sender_that_says_the_same_again_and_again() -> None:
    custody = Custody()
    taken(custody, 1, 500)
    found = custody.elsewhere(BODY, 1)
    assert not inspect.isgenerator(found), "it would look at each of them"
    assert list(found) == []
    for hop in [*custody[hash(BODY)]]:
        custody.remove(hop)
    taken(custody, 2)
    assert not inspect.isgenerator(custody.elsewhere(BODY, 2)), "none of the first one is left"
