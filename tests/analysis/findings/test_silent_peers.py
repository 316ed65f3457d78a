"""Peers of a ROUTER that fall silent while others do not."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import pytest

from dissectors.events import AnyEvent, Capture, Command, Connection, Message, Octets, Peer, Problem, Sides
from tests.analysis.findings.diagnoses import diagnose_events, faults
from zmtpsniff.analysis.findings.finding import Finding

SECOND = 1_000_000_000
ROUTER = "10.0.0.1:5555"
END = 20.0


class Said(NamedTuple):
    """A message; the time is in seconds."""

    time: float
    by_router: bool
    size: int = 20


class Talk(NamedTuple):
    """The messages between a DEALER and the ROUTER, and when the DEALER closed the connection."""

    messages: Sequence[Said]
    closed: float = 0
    kind: str = "DEALER"
    is_blind: bool = False


def beats(until: float = END, each: float = 0.5, since: float = 0, last_size: int = 0) -> list[Said]:
    """The messages that a DEALER sends by itself at a steady pace, behind its name."""
    count = round((until - since) / each)
    sizes = [20 + place % 2 for place in range(count)]
    sizes[-1] = last_size or sizes[-1]
    return [Said(since, False, 40)] + [
        Said(since + each * (1 + place), False, size) for place, size in enumerate(sizes)
    ]


def jobs(until: float = END, each: float = 0.4, takes: float = 0.1, given_until: float = END) -> list[Said]:
    """Work that a ROUTER gives, and its results until some time."""
    given = [Said(1 + each * place, True) for place in range(round((given_until - 1) / each))]
    return [Said(0.5, False), *given, *(Said(one.time + takes, False) for one in given if one.time + takes < until)]


def events(talks: Sequence[Talk]) -> Iterator[AnyEvent]:
    """The events of a capture."""
    heads: list[AnyEvent] = []
    said: list[Message] = []
    ends: list[AnyEvent] = []
    for flow, talk in enumerate(talks, 1):
        dealer = f"10.0.0.2:{40_000 + flow}"
        for src, dst, kind in ((dealer, ROUTER, talk.kind), (ROUTER, dealer, "ROUTER")):
            heads.append(Command(0, 1, flow, src, dst, "READY", {"Socket-Type": kind.encode()}, kind))
        offsets = [0, 0]
        for time, by_router, size in talk.messages:
            offsets[by_router] += size
            ends_at = (ROUTER, dealer) if by_router else (dealer, ROUTER)
            frames: list[Octets] = [b"%d" % (7919 * len(said)) if said and said[-1].flow == flow else b"hello"]
            said.append(Message(round(time * SECOND), 1, flow, *ends_at, frames, offset=offsets[by_router]))
        if talk.is_blind:
            ends.append(Problem("warning", "capture-gap", "", SECOND, 1, flow, dealer, ROUTER))
        begun_ns = round(min(one.time for one in talk.messages) * SECOND)
        until_ns = round((talk.closed or END) * SECOND)
        end = Connection(
            flow, "tcp", Peer(dealer, socket_type=talk.kind), Peer(ROUTER, socket_type="ROUTER"), Sides(9, 9),
            Sides(9, 9), begun_ns, until_ns, "fin" if talk.closed else "open",
            closed_by="client" if talk.closed else None,
        )  # fmt: skip
        ends.append(end)
    said.sort(key=lambda one: one.time_ns)
    for number, one in enumerate(said, 2):
        one.packet = number
    yield from heads
    yield from said
    yield from ends
    yield Capture(len(said), 0, len(talks), len(talks), len(said), 0, round(END * SECOND))


def found(*talks: Talk) -> list[Finding]:
    return faults(diagnose_events(events(talks)))


WORKS = Talk(jobs())
BEATS = Talk(beats())


def test_work_piles_up_at_a_worker_that_says_nothing_any_more() -> None:
    (one,) = found(WORKS, Talk(jobs(until=10)), WORKS)
    assert (one.name, one.severity, one.certainty) == ("worker-silent", "error", "likely")
    assert one.endpoints == ["10.0.0.2:40002", ROUTER]
    assert one.summary.startswith("the worker 10.0.0.2:40002 of 10.0.0.1:5555 says nothing any more: 25 messages went")
    assert one.count == 25


def test_it_closes_with_the_pile_in_hand() -> None:
    (one,) = found(WORKS, Talk(jobs(until=10, given_until=14), closed=14), WORKS)
    assert one.name == "worker-closed"
    assert "closed its connection with 9 messages in hand, after it had said nothing for" in one.summary


def test_heartbeats_stop() -> None:
    (one,) = found(BEATS, Talk(beats(until=10)), BEATS)
    assert (one.name, one.severity, one.certainty) == ("heartbeat-lost", "warning", "likely")
    assert one.endpoints == ["10.0.0.2:40002", ROUTER]
    assert "says nothing to 10.0.0.1:5555 any more, for 10 s, while 2 others of the same ROUTER do" in one.summary


def test_it_closes_in_the_middle_of_its_steady_messages() -> None:
    def notes(*talks: Talk) -> list[tuple[str, str]]:
        return [(one.code, one.certainty) for one in diagnose_events(events(talks)) if one.severity == "note"]

    assert notes(BEATS, Talk(beats(until=10), closed=10.2), BEATS) == [("worker-closed", "possible")]
    assert notes(BEATS, Talk(beats(until=10, last_size=33), closed=10.2), BEATS) == []  # it takes its leave
    assert notes(BEATS, Talk(beats(until=10), closed=15), BEATS) == []  # it had nothing to say any more
    assert notes(BEATS, *[Talk(beats(until=10), closed=10.2)] * 2, BEATS) == []  # a part of them is stopped
    assert notes(BEATS, Talk(beats(until=10), closed=10.2)) == []


@pytest.mark.parametrize(
    "talks",
    [
        (WORKS, WORKS),
        (WORKS, Talk(jobs(until=10), is_blind=True), WORKS),
        (Talk(jobs(until=10)), Talk(jobs(until=10))),  # all stop
        (WORKS, Talk(jobs(until=16)), WORKS),  # not for long
        (WORKS, Talk(jobs(takes=6)), WORKS),  # it always had a long queue
        (WORKS, Talk(jobs(given_until=10)), WORKS),  # there is no more work for it
        (WORKS, Talk(jobs(given_until=10), closed=12), WORKS),  # and it leaves
        (Talk([*jobs(), *(Said(1.1 + place / 5, True) for place in range(90))]),) * 2
        + (Talk([*jobs(until=10), *(Said(1.1 + place / 5, True) for place in range(90))]),),  # news for subscribers
        (BEATS, Talk(beats(until=10)), Talk(beats(until=10))),
        (BEATS, Talk(beats(until=10))),  # one other is too few
        (BEATS, Talk(beats(until=10), is_blind=True), BEATS),
        (BEATS, Talk(beats(until=10, last_size=33)), BEATS),  # the result of a job whose progress it told
        (BEATS, Talk(beats(until=10), closed=10.2), BEATS),
        (BEATS, Talk(beats(until=10)), BEATS, Talk([Said(1, False)])),  # another one that is quiet
        (Talk(beats(since=11)), Talk(beats(until=10)), Talk(beats(since=11))),  # the others came later
        (BEATS, Talk(beats(until=17)), BEATS),
    ],
)  # fmt: skip
def test_others_are_not_accused(talks: Sequence[Talk]) -> None:
    assert found(*talks) == []
