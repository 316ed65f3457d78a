"""Compares two captures service by service, and gives outcomes that every report format can show.

Only what is worse is a difference, not what is better or new. A value that one of the captures may lack is not
checked.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from zmtpsniff.check.endpoints import ClientCount, Complaint, Judgement, RequiredTopics
from zmtpsniff.check.globs import Glob, literal
from zmtpsniff.check.model import Offence, Outcome, Rule, not_checked
from zmtpsniff.check.services import NO_MECHANISM, ServiceProfile, Services, TopicCounter
from zmtpsniff.words.counts import plural
from zmtpsniff.words.durations import duration
from zmtpsniff.words.text import escape

_LEAST_ANSWERS = 10  # with fewer the longest latency is chance, and comparing says nothing
_LEAST_MESSAGES = 20
_LEAST_NS = 10_000_000  # a latency that is longer by less differs so from one run to the next
_OFTEN = 3  # times that a topic is published, so that it is one that comes again
_STRENGTHS = {"NULL": 0, "PLAIN": 1}  # of mechanisms; all others encrypt
_ENCRYPTED = 2
_TOLD = 3


class _Pair(NamedTuple):
    """A service in the old capture and in the new one."""

    old: ServiceProfile
    new: ServiceProfile
    before: Services
    after: Services
    factor: float  # by which rates and latencies may be worse


_Comparison = Callable[[_Pair], Iterator[Judgement]]


def compare(old: Services, new: Services, tolerance: float, shown: int) -> list[Outcome]:
    """An outcome for each value that can be compared. Its offences are what is worse, at most ``shown`` of them.

    Rates and latencies are worse if they change by more than ``tolerance`` percent.
    """
    factor = 1 + tolerance / 100
    pairs = [
        _Pair(service, new.services[address], old, new, factor)
        for address, service in sorted(old.services.items())
        if address in new.services
    ]
    within = f", within {tolerance:g} %"
    compared: list[tuple[str, str, _Comparison]] = [
        ("clients", "no service has fewer clients at the same time", _clients),
        ("sockets", "the same types of sockets talk to each other", _sockets),
        ("mechanisms", "no security mechanism is weaker", _mechanisms),
        ("versions", "no version is lower", _versions),
        ("handshakes", f"no more handshakes fail{within}", _handshakes),
        ("topics", "what was subscribed to and published still is", _topics),
        ("rates", f"no service sends or gets fewer messages a second{within}", _rates),
        ("latencies", f"no service replies more slowly{within} (and 10 ms)", _latencies),
        ("problems", f"no more problems of severity error and warning{within}", _problems),
    ]
    outcomes = [_outcome(Rule("services", "baseline", "no service is gone"), _gone(old, new), shown)]
    for name, text, comparison in compared:
        judgements = [judgement for pair in pairs for judgement in comparison(pair)]
        if judgements:
            outcomes.append(_outcome(Rule(name, "baseline", text), judgements, shown))
    return outcomes


def _outcome(rule: Rule, judgements: Iterable[Judgement], shown: int) -> Outcome:
    every = list(judgements)
    complaints = [complaint for judgement in every for complaint in judgement.complaints]
    if complaints:
        offences = [_offence(complaint) for complaint in complaints[:shown]]
        return Outcome(
            rule, False, f"{plural(len(complaints), 'thing')} worse", offences, len(complaints) - len(offences)
        )
    unknown = list(dict.fromkeys(judgement.unknown for judgement in every if judgement.unknown))
    if unknown:
        return not_checked(rule, "; ".join(unknown[:_TOLD]))
    return Outcome(rule, True, f"nothing worse, of {plural(len(every), 'thing')} compared")


def _offence(complaint: Complaint) -> Offence:
    connection = complaint.connection
    if connection is None:
        return Offence(complaint.text)
    return Offence(complaint.text, flow=connection.flow, time_ns=connection.start_ns)


def _gone(old: Services, new: Services) -> Iterator[Judgement]:
    for address, service in sorted(old.services.items()):
        if not service.working:
            continue
        there = new.services.get(address)
        if there is not None and there.connections:
            yield Judgement("")
        elif new.is_whole:
            kinds = " and ".join(service.pairs.known)
            yield Judgement("", [Complaint(f"{address} is gone{f' ({kinds})' if kinds else ''}")])
        else:
            yield Judgement("", (), f"nothing of {address} is in the new capture, which may lack it")


def _clients(pair: _Pair) -> Iterator[Judgement]:
    most = pair.old.most_clients()
    if len(pair.old.lifetimes) <= 2 * most and most:  # or else they come and go
        yield ClientCount(most, None).judge(pair.new, pair.after)


def _sockets(pair: _Pair) -> Iterator[Judgement]:
    address = pair.old.address
    missing = [kinds for kinds in pair.old.pairs.known if kinds not in pair.new.pairs.examples]
    if missing and (pair.new.pairs.unknown or not pair.after.is_whole):
        yield Judgement("", (), f"not all connections to {address} show what sockets they join")
    elif pair.old.pairs.known:
        now = " and ".join(pair.new.pairs.known) or "none"
        yield Judgement("", [Complaint(f"{address} had {kinds}, and has {now}") for kinds in missing])


def _mechanisms(pair: _Pair) -> Iterator[Judgement]:
    was, now = pair.old.mechanisms, pair.new.mechanisms
    address = pair.old.address
    if not was.known:
        return
    least = min(map(_strength, was.known))
    weaker = [value for value in now.known if _strength(value) < least]
    words = " or ".join(was.known)
    complaints = [Complaint(f"{address} was {words}, is {value}", now.examples[value][0]) for value in weaker]
    unknown = f"no handshake with {address} is in the new capture" if not now.known else ""
    if now.unknown and now.known:
        unknown = f"{now.unknown:,} of {plural(pair.new.working, 'connection')} to {address} do not show it"
    yield Judgement("", complaints, unknown)


def _strength(mechanism: str) -> int:
    return 0 if mechanism.startswith(NO_MECHANISM) else _STRENGTHS.get(mechanism, _ENCRYPTED)


def _versions(pair: _Pair) -> Iterator[Judgement]:
    was, now = pair.old.versions, pair.new.versions
    if not was.known:
        return
    address = pair.old.address
    lower = [value for value in now.known if value < was.known[0]]
    complaints = [
        Complaint(f"{address} was ZMTP {' or '.join(was.known)}, is ZMTP {value}", now.examples[value][0])
        for value in lower
    ]
    yield Judgement("", complaints, "" if now.known else f"no handshake with {address} is in the new capture")


def _handshakes(pair: _Pair) -> Iterator[Judgement]:
    before, after = (each.failures / max(each.connections, 1) for each in (pair.old, pair.new))
    complaints = []
    if after > before * pair.factor:
        words = f"{pair.new.failures:,} of {plural(pair.new.connections, 'connection')} to {pair.old.address} failed"
        complaints.append(Complaint(f"{words}, and {pair.old.failures:,} of {pair.old.connections:,} before",
                                    pair.new.failed[0] if pair.new.failed else None))  # fmt: skip
    yield Judgement("", complaints)


def _topics(pair: _Pair) -> Iterator[Judgement]:
    subscriptions = _patterns(pair.old.subscriptions, 1)
    topics = _patterns(pair.old.topics, _OFTEN)
    if subscriptions:
        yield RequiredTopics("subscriptions", subscriptions).judge(pair.new, pair.after)
    if topics:
        yield RequiredTopics("topics", topics).judge(pair.new, pair.after)


def _patterns(counter: TopicCounter, often: int) -> list[Glob]:
    if counter.is_cut:
        return []
    texts = [literal(topic) for topic, count in sorted(counter.counts.items()) if count >= often]
    return [Glob(text) for text in texts if text is not None]


def _rates(pair: _Pair) -> Iterator[Judgement]:
    seconds = pair.before.span.seconds, pair.after.span.seconds
    address = pair.old.address
    for words, was, now in (
        (f"{address} sent", pair.old.messages.server, pair.new.messages.server),
        (f"clients of {address} sent", pair.old.messages.client, pair.new.messages.client),
    ):
        before, after = was / seconds[0], now / seconds[1]
        if was < _LEAST_MESSAGES:
            continue
        if after * pair.factor >= before:
            yield Judgement("")
        elif pair.new.blind or pair.new.encrypted:
            yield Judgement("", (), f"what {address} says cannot be counted in the new capture")
        else:
            text = f"{words} {before:,.4g} messages a second, and now {after:,.4g}"
            yield Judgement("", [Complaint(text)])


def _latencies(pair: _Pair) -> Iterator[Judgement]:
    was, now = pair.old.latencies, pair.new.latencies
    if was.count < _LEAST_ANSWERS:
        return
    address = pair.old.address
    if now.count < _LEAST_ANSWERS:
        yield Judgement("", (), f"{address} has too few replies in the new capture")
        return
    complaints = []
    for percent in (50, 99):
        before, after = was.percentile(percent), now.percentile(percent)
        if after > before * pair.factor and after - before > _LEAST_NS:
            words = f"{address} replied with p{percent} {duration(before)}, and now {duration(after)}"
            complaints.append(Complaint(words))
    yield Judgement("", complaints)


def _problems(pair: _Pair) -> Iterator[Judgement]:
    seconds = pair.before.span.seconds, pair.after.span.seconds
    complaints = []
    for code, count in sorted(pair.new.problems.items()):
        was = pair.old.problems[code]
        if count / seconds[1] > was / seconds[0] * pair.factor:
            before = f"{was:,} times" if was else "never"
            complaints.append(Complaint(f"{pair.new.address}: {escape(code)} {count:,} times, and {before} before"))
    yield Judgement("", complaints)
