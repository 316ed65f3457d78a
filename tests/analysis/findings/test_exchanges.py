"""Counts of messages of one connection: whether one side answers the other."""

from collections import deque

import pytest

from dissectors.events import Connection, Message, Peer, Sides
from zmtpsniff.analysis.findings.exchanges import ExchangeCount, Suspect

ASKER, OTHER = "10.0.0.1:40000", "10.0.0.2:5555"


@pytest.mark.parametrize(
    ("said", "takes_turns"),
    [
        (">" + "<>" * 10, True),
        ("><" * 8 + ">>>", True),
        (">><<" * 8 + ">>>", True),
        ("><" * 3 + ">>>", False),  # too few
        ("><><<" * 8 + ">>>", False),  # a member of a chat, to whom others say something, too
        ("><" * 10 + "<" + "><" * 10 + ">>>", True),  # a heartbeat
    ],
)
def test_a_side_that_often_speaks_unasked_answers_nothing(said: str, takes_turns: bool) -> None:
    exchange = ExchangeCount(deque(), strict=False)
    for place, way in enumerate(said, 1):
        src, dst = (ASKER, OTHER) if way == ">" else (OTHER, ASKER)
        exchange.take([Message(place, place, 1, src, dst, [b"%d" % place])])
    peers = Peer(ASKER, socket_type="DEALER"), Peer(OTHER, socket_type="ROUTER")
    end = Connection(1, "tcp", *peers, Sides(9, 9), Sides(9, 9), 0, len(said), "open")
    assert Suspect(exchange, end, len(said)).took_turns == takes_turns
