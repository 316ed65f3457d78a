"""Drops are found by comparing copies, and only drops."""

from collections.abc import Sequence
from itertools import permutations
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dissectors.events import Connection, Message, Peer, Problem, Sides, Subscription
from tests.support.examples import examples
from tests.support.footprint import entries, reachable
from zmtpsniff.analysis.dossier import Dossier
from zmtpsniff.analysis.findings.compared_copies import CopyStream
from zmtpsniff.analysis.findings.copies import Copies
from zmtpsniff.analysis.findings.finding import Claim
from zmtpsniff.analysis.findings.inquiry import Listener
from zmtpsniff.net.witness import Stall

PUBLISHER = "10.0.0.1:5556"
MS = 1_000_000


def _dossier(flow: int) -> Dossier:
    dossier = Dossier(flow, 0, 1)
    dossier.types = {PUBLISHER: "PUB", _subscriber(flow): "SUB"}
    return dossier


def _subscriber(flow: int) -> str:
    return f"10.0.0.2:{40_000 + flow}"


def _end(copies: Copies, flow: int, end_ns: int, got: int = 0) -> None:
    peers = Peer(_subscriber(flow)), Peer(PUBLISHER)
    copies.end(None, Connection(flow, "tcp", *peers, Sides(0, got), Sides(0, 0), 0, end_ns, "open"), end_ns)


def _subscribed(copies: Copies, flow: int, topic: bytes = b"") -> Listener:
    """Subscribe to a topic; returns the listener to the messages of that connection."""
    dossier = _dossier(flow)
    listener = copies.begin(dossier)
    assert listener is not None
    copies.subscription(dossier, Subscription(0, 1, flow, _subscriber(flow), PUBLISHER, "subscribe", topic, "command"))
    return listener


def _claims(
    streams: list[list[tuple[int, bytes]]],
    end_ns: int,
    blind: int | None = None,
    topics: Sequence[bytes] = (),
    stalls: Sequence[Stall] = (),
) -> list[Claim]:
    """Findings of dropped messages to subscribers, each with these at these times; all want all, or ``topics``."""
    copies = Copies()
    listeners = [_subscribed(copies, flow, topics[flow] if topics else b"") for flow in range(len(streams))]
    arrivals = sorted(
        (time_ns, flow, place) for flow, one in enumerate(streams) for place, (time_ns, _) in enumerate(one)
    )
    for number, (time_ns, flow, place) in enumerate(arrivals):
        if blind is not None and number == len(arrivals) // 2:
            copies.lose(_dossier(blind))
        body = streams[flow][place][1]
        ends = PUBLISHER, _subscriber(flow)
        listeners[flow](
            [Message(time_ns, number + 1, flow, *ends, [body], "PUB", matched=b"", offset=place * (len(body) + 2))]
        )
    for stall in stalls:
        copies.stall(stall)
    for flow, one in enumerate(streams):
        _end(copies, flow, end_ns, len(one))
    return [claim for claim in copies.claims(end_ns) if claim.code == "messages-dropped"]


def _dropped(
    streams: list[list[tuple[int, bytes]]], end_ns: int, blind: int | None = None, topics: Sequence[bytes] = ()
) -> dict[str, int]:
    """The counts of subscribers, as in _claims()."""
    return {next(iter(one.endpoints)): one.occurrences.count for one in _claims(streams, end_ns, blind, topics)}


def _streams(
    random: Random, count: int, subscribers: int, contents: int, drops: set[int], slow: int, lag_ns: int
) -> list[list[tuple[int, bytes]]]:
    """Copies of messages, all but one subscriber's on time, with those left out that were dropped for that one."""
    bodies = [b"%d" % random.randrange(contents) if contents else b"message %d" % number for number in range(count)]
    streams: list[list[tuple[int, bytes]]] = [[] for _ in range(subscribers)]
    last = [0] * subscribers
    for number, body in enumerate(bodies):
        for flow in range(subscribers):
            if flow == slow and number in drops:
                continue
            late = random.randrange(MS) + (min(lag_ns, number * 2 * MS) if flow == slow else 0)
            last[flow] = max(last[flow] + 1, number * MS + late)
            streams[flow].append((last[flow], body))
    return streams


seeds = st.integers(0, 10_000)
END_NS = 60_000 * MS


@settings(max_examples=examples(80))
@given(seeds, st.integers(2, 4), st.sets(st.integers(20, 190), max_size=60), st.sampled_from([0, 50 * MS, 3000 * MS]))
def test_all_that_is_dropped_is_counted(seed: int, subscribers: int, drops: set[int], lag_ns: int) -> None:
    random = Random(seed)
    slow = random.randrange(subscribers)
    streams = _streams(random, 200, subscribers, 0, drops, slow, lag_ns)
    assert _dropped(streams, END_NS) == ({_subscriber(slow): len(drops)} if drops else {})


@settings(max_examples=examples(80))
@given(seeds, st.integers(2, 4), st.sampled_from([1, 2, 5, 50, 500]), st.sampled_from([0, 50 * MS, 3000 * MS]))
def test_nothing_is_counted_where_nothing_was_dropped(seed: int, subscribers: int, contents: int, lag_ns: int) -> None:
    random = Random(seed)
    streams = _streams(random, 300, subscribers, contents, set(), random.randrange(subscribers), lag_ns)
    assert _dropped(streams, END_NS) == {}


@settings(max_examples=examples(60))
@given(seeds, st.sampled_from([3, 10, 50]), st.sets(st.integers(20, 280), max_size=60))
def test_equal_messages_never_make_it_too_many(seed: int, contents: int, drops: set[int]) -> None:
    random = Random(seed)
    streams = _streams(random, 300, 2, contents, drops, 1, 0)
    counted = _dropped(streams, END_NS)
    assert counted.get(_subscriber(1), 0) <= len(drops)


@settings(max_examples=examples(40))
@given(seeds, st.integers(0, 150), st.sampled_from([1, 3, 40, 0]))
def test_who_joins_later_has_lost_nothing(seed: int, missed: int, contents: int) -> None:
    random = Random(seed)
    streams = _streams(random, 300, 2, contents, set(), 0, 0)
    streams[1] = streams[1][missed:]
    assert _dropped(streams, END_NS) == {}


@pytest.mark.parametrize(
    ("every", "lag_ns", "is_stalled", "severity"),
    [
        (5, 0, False, "note"),
        (5, 0, True, None),
        (5, 3000 * MS, False, None),
        (50, 0, False, None),  # a queue from which messages are dropped has to be half empty before it takes more
    ],
)
def test_a_queue_that_is_meant_to_be_short_is_a_note(
    every: int, lag_ns: int, is_stalled: bool, severity: str | None
) -> None:
    """Of ZMQ_CONFLATE a subscriber gets the latest message only, whenever there is one."""
    streams = _streams(Random(1), 400, 2, 0, set(range(20, 380, every)), 1, lag_ns)
    stall = Stall(1, _subscriber(1), PUBLISHER, "window", 5 * MS, 9 * MS, 3, 1, True)
    (claim,) = _claims(streams, END_NS, stalls=[stall] if is_stalled else [])
    assert (claim.severity, claim.occurrences.count) == (severity, len(range(20, 380, every)))


def test_a_hole_in_the_capture_accuses_nobody() -> None:
    streams = _streams(Random(1), 200, 2, 0, set(range(110, 140)), 1, 0)
    assert _dropped(streams, END_NS, blind=1) == {}
    assert _dropped(streams, END_NS) == {_subscriber(1): 30}


def test_several_publishers_behind_one_address_are_not_compared() -> None:
    """A balancer in front of two publishers of the same data, which do not send in one order."""
    random = Random(3)
    bodies = [b"message %d" % number for number in range(300)]
    other = list(bodies)
    for place in range(0, 298, 3):
        if random.random() < 0.5:
            other[place], other[place + 1] = other[place + 1], other[place]
    streams = [[(number * MS, body) for number, body in enumerate(one)] for one in (bodies, other)]
    assert _dropped(streams, END_NS) == {}


_TOPICS = (b"EUR", b"GBP", b"EUR", b"")


@pytest.mark.parametrize("order", [*permutations(range(4))])
def test_drops_of_a_subscriber_to_all_are_counted_by_those_who_want_a_part_each(order: tuple[int, ...]) -> None:
    """Two want the same part: what they show counts once. The connections begin in any order."""
    bodies = [(b"EUR", b"GBP")[number % 2] + b" %d" % number for number in range(400)]
    drops = set(range(50, 250))
    topics = [_TOPICS[place] for place in order]
    streams = [
        [
            (number * MS + flow, body)
            for number, body in enumerate(bodies)
            if body.startswith(topic) and (topic or number not in drops)
        ]
        for flow, topic in enumerate(topics)
    ]
    assert _dropped(streams, END_NS, topics=topics) == {_subscriber(order.index(3)): len(drops)}


def test_drops_of_a_part_that_nobody_else_wants_are_not_known() -> None:
    bodies = [(b"EUR", b"GBP")[number % 2] + b" %d" % number for number in range(400)]
    streams = [
        [(number * MS, body) for number, body in enumerate(bodies) if body.startswith(b"EUR")],
        [(number * MS + 1, body) for number, body in enumerate(bodies) if not 50 <= number < 250],
    ]
    assert _dropped(streams, END_NS, topics=[b"EUR", b""]) == {_subscriber(1): 100}


def test_subscribers_that_come_and_go_cost_bounded_memory() -> None:
    """Also those that lost messages; and the numbers of their streams do not grow."""
    copies = Copies()
    sizes = []
    for pair in range(1, 4501):
        flows = 2 * pair, 2 * pair + 1
        listeners = {flow: _subscribed(copies, flow) for flow in flows}
        for number in range(20):
            for flow, listen in listeners.items():
                if flow == flows[0] or number != 15:
                    message = Message(number, number, flow, PUBLISHER, _subscriber(flow), [b"%d %d" % (pair, number)])
                    message.matched = b""
                    listen([message])
        for flow in flows:
            _end(copies, flow, 9000, 30)
        if pair % 2250 == 0:
            sizes.append(entries(copies))
    assert sizes[1] < 1.02 * sizes[0]
    numbers = [one for one in reachable(copies) if isinstance(one, int)]
    assert max(number.bit_length() for number in numbers) < 2000
    assert 0 < len([*copies.claims(0)]) <= 2000


def test_a_subscriber_with_nobody_to_compare_looks_once_until_something_changes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    copies, looks = Copies(), 0
    for flow in range(1, 50):
        copies.begin(_dossier(flow))
    listen = _subscribed(copies, 0)
    choose = CopyStream.choose_partners

    def counting(stream: CopyStream) -> None:
        nonlocal looks
        looks += 1
        choose(stream)

    monkeypatch.setattr(CopyStream, "choose_partners", counting)
    for number in range(100):
        message = Message(number, number, 0, PUBLISHER, _subscriber(0), [b"%d" % number])
        message.matched = b""
        listen([message])
    assert looks == 1


def _late(flow: int, time_ns: int, *frames: bytes, by_subscriber: bool = False) -> Message:
    ends = (_subscriber(flow), PUBLISHER) if by_subscriber else (PUBLISHER, _subscriber(flow))
    return Message(time_ns, time_ns // MS, flow, *ends, list(frames), "PUB", True, "XPUB", offset=time_ns)


def _late_drops(says_something: bool, topics: Sequence[bytes], gap: bool = False) -> dict[str, int]:
    """Messages dropped for the second subscriber of a late capture, with these topics in turns.

    It lacks the messages 100 to 109, and the last ones.
    """
    copies = Copies()
    first, second = (copies.begin_late(_late(flow, MS, b"", b"")) for flow in (0, 1))
    for number in range(200):
        frames = topics[number % len(topics)], b"%d" % number
        first([_late(0, 2 * number * MS, *frames)])
        if number == 105 and says_something:
            second([_late(1, 2 * number * MS, b"\0" + topics[0], by_subscriber=True)])
        if number == 105 and gap:
            copies.problem(Problem("note", "capture-gap", "", 2 * number * MS, 1, 1, PUBLISHER, _subscriber(1)))
        if not 100 <= number < 110 and number < 190:
            second([_late(1, (2 * number + 1) * MS, *frames)])
    for flow in (0, 1):
        _end(copies, flow, 400 * MS)
    claims = list(copies.claims(400 * MS))
    assert all(one.certainty == "likely" and "came before the capture" in one.known for one in claims)
    return {next(iter(one.endpoints)): one.occurrences.count for one in claims}


def test_joined_late_what_a_subscriber_got_shows_what_it_wants() -> None:
    """It wants all with the same first frame, until it says something, or octets are missing."""
    assert _late_drops(False, [b"news"]) == _late_drops(False, [b"news", b"news.sport"]) == {_subscriber(1): 10}
    assert _late_drops(True, [b"news"]) == {}
    assert _late_drops(False, [b"news"], gap=True) == {}
    assert _late_drops(False, [b"%d" % number for number in range(200)]) == {}, "each may be a topic of its own"


def test_joined_late_a_topic_that_a_subscriber_never_got_is_not_missed() -> None:
    copies = Copies()
    everything, news = (copies.begin_late(_late(flow, MS, b"", b"")) for flow in (0, 1))
    for number in range(200):
        everything([_late(0, 2 * number * MS, b"news" if number % 3 else b"news.sport", b"%d" % number)])
        if number % 3:  # perhaps a RADIO, whose groups must match as a whole
            news([_late(1, (2 * number + 1) * MS, b"news", b"%d" % number)])
    for flow in (0, 1):
        _end(copies, flow, 400 * MS)
    assert list(copies.claims(400 * MS)) == []
