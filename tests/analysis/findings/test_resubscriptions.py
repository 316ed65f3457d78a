"""Subscriptions before and after a connection came back."""

from typing import NamedTuple

import pytest

from dissectors.events import Connection, Peer, Sides, Subscription
from tests.analysis.findings.diagnoses import diagnose
from tests.support.paths import FIXTURES
from zmtpsniff.analysis.dossier import Dossier
from zmtpsniff.analysis.findings.finding import Claim
from zmtpsniff.analysis.findings.resubscriptions import Resubscriptions

SECOND = 1_000_000_000
SERVER = "10.0.0.5:5555"
MANY = [b"%03d" % number for number in range(40)]


class Link(NamedTuple):
    """A connection of a SUB, or of a PUB that connects to it, in seconds."""

    start: float
    end: float
    topics: list[bytes]
    closed: bool = True
    host: str = "10.0.0.9"
    kinds: tuple[str, str] = ("SUB", "PUB")
    is_blind: bool = False
    cancels: bool = False


def claimed(*links: Link) -> list[Claim]:
    inquiry = Resubscriptions()
    for flow, link in enumerate(links, 1):
        dossier = Dossier(flow, packet=flow, blind=link.is_blind)
        if link.cancels:
            address = f"{link.host}:{flow}"
            inquiry.subscription(dossier, Subscription(0, 1, flow, address, SERVER, "cancel", b"", "message"))
        client, server = (
            Peer(address, socket_type=kind)
            for address, kind in zip((f"{link.host}:{flow}", SERVER), link.kinds, strict=True)
        )
        over = Connection(
            flow, "tcp", client, server, Sides(0, 0), Sides(9, 9), round(link.start * SECOND), round(link.end * SECOND),
            "fin" if link.closed else "open", handshake="complete", subscriptions=[*link.topics],
        )  # fmt: skip
        inquiry.end(dossier, over, over.end_ns)
    return list(inquiry.claims(99 * SECOND))


BEFORE, AFTER = Link(0, 10, MANY), Link(11, 20, MANY[:10], closed=False)


def test_a_real_subscriber_that_exceeds_its_mark() -> None:
    (found,) = (one for one in diagnose(FIXTURES / "rec_returning_publisher.pcap") if one.severity != "note")
    assert found.summary == (
        "127.0.0.1 had 60 subscriptions at 127.0.0.1:5560, and 20 after it had connected again: 40 are lost"
    )


def test_both_sides_may_be_the_one_that_connects() -> None:
    (claim,) = claimed(BEFORE, AFTER)
    assert claim.summary.startswith("10.0.0.9 had 40 subscriptions at 10.0.0.5:5555, and 10 after ")
    (claim,) = claimed(*(link._replace(kinds=("PUB", "SUB")) for link in (BEFORE, AFTER)))
    assert claim.summary.startswith("10.0.0.5:5555 had 40 subscriptions at 10.0.0.9, and 10 after ")


@pytest.mark.parametrize(
    "links",
    [
        (BEFORE, AFTER._replace(topics=MANY)),
        (BEFORE, AFTER._replace(topics=[*MANY[:10], b"new"])),  # a program that wants something else
        (BEFORE, AFTER._replace(topics=MANY[9::-1])),  # in its own order
        (BEFORE, AFTER._replace(topics=MANY[:2])),
        (BEFORE, AFTER._replace(cancels=True)),
        (BEFORE, AFTER._replace(end=11.5)),  # the others may be on their way
        (BEFORE, AFTER._replace(is_blind=True)),  # they may be in the hole
        (BEFORE._replace(is_blind=True), AFTER),
        (BEFORE, AFTER._replace(host="10.0.0.8")),
        (BEFORE, AFTER._replace(start=5)),  # two at a time
        (BEFORE, BEFORE, AFTER),  # whose it was, nobody knows
        (BEFORE._replace(closed=False), AFTER),
    ],
)
def test_others_have_lost_nothing(links: tuple[Link, ...]) -> None:
    assert claimed(*links) == []
