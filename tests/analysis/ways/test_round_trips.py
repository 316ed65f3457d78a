"""How far the ends of a connection are, where no READY tells it."""

import pytest

from dissectors.events import Greeting
from tests.analysis.ways.scenes import MS
from zmtpsniff.analysis.ways.round_trips import RoundTrips
from zmtpsniff.net.witness import Attempt

CLIENT, SERVER = "10.0.0.1:40000", "10.0.1.1:5555"


def connected(answer_ns: int | None = 30 * MS) -> RoundTrips:
    trips = RoundTrips()
    trips.attempt(Attempt("accepted", 1, CLIENT, SERVER, 1, 0, answer_ns or 0, 2, answer_ns))
    return trips


def greeting(at_ns: int, version: str | None, identity: bytes = b"", mechanism: str | None = None) -> Greeting:
    return Greeting(at_ns, 3, 1, CLIENT, SERVER, version=version, identity=identity, mechanism=mechanism)


@pytest.mark.parametrize(
    ("version", "identity", "at_ms"),
    [
        ("1.0", b"me", 30 + 20),  # at once
        (None, b"", 30 + 20),  # the server has ZMTP 1.0: the signature is all
        (None, b"me", 30 + 30 + 2 * 20),  # once the server has shown that it has ZMTP 1.0
        ("2.0", b"", 30 + 30 + 2 * 20),
        ("3", b"", 30 + 30 + 2 * 20),
    ],
)
def test_the_beginning_shows_how_far_both_ends_are(version: str | None, identity: bytes, at_ms: int) -> None:
    trips = connected()
    trips.greet(greeting(at_ms * MS, version, identity))
    assert (trips.to(1, SERVER), trips.to(1, CLIENT)) == (30 * MS, 20 * MS)
    trips.end(1)
    assert trips.to(1, SERVER) == 0


def test_a_short_time_may_be_that_of_the_program() -> None:
    trips = connected(900_000)
    trips.greet(greeting(1_800_000, "1.0"))
    assert (trips.to(1, SERVER), trips.to(1, CLIENT)) == (0, 0)


def test_a_syn_that_was_sent_again_tells_nothing() -> None:
    trips = connected(None)
    trips.greet(greeting(50 * MS, "1.0"))
    assert (trips.to(1, SERVER), trips.to(1, CLIENT)) == (0, 0)


def test_later_versions_have_a_ready_that_tells_it() -> None:
    trips = connected()
    trips.greet(greeting(50 * MS, "3.1", mechanism="NULL"))
    assert trips.to(1, SERVER) == 0
