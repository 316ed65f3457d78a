"""Compares the services of two captures, for ``diff`` and for ``check --baseline``.

Each comparison looks at one aspect of one service. It says what differs, or why that cannot be told: one of the
captures may lack it. Chance is no difference: a number of messages in some time is a Poisson variable, and so is the
number of replies beyond a percentile. Both must differ by a factor, and by some standard deviations.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import product
from math import sqrt
from typing import Any, NamedTuple

from dissectors.address import host_of, port_of
from dissectors.events import Connection
from zmtpsniff.analysis.statistics.sketch import Sketch
from zmtpsniff.check.defaults import TOPIC_OCTETS
from zmtpsniff.check.difference import Aspect, Change, ComparisonSum, Difference, Effect
from zmtpsniff.check.endpoints import ClientCount, topic_gone, topics_unknown
from zmtpsniff.check.globs import literal
from zmtpsniff.check.services import NO_MECHANISM, VERBS, ServiceProfile, Services, TopicCounter
from zmtpsniff.words.counts import often, plural
from zmtpsniff.words.durations import duration
from zmtpsniff.words.text import escape, quote

LEAST_MESSAGES = 20
_STRENGTHS = {"NULL": 0, "PLAIN": 1}  # of mechanisms; all others encrypt
_ENCRYPTED = 2


class Tolerance(NamedTuple):
    """How much may differ without being a difference."""

    factor: float  # of rates, latencies, sizes, shares
    replies: tuple["Percentile", ...]
    often: int  # times that a topic is published, so that it is one that comes again
    deviations: float = 0  # standard deviations that are chance
    only_worse: bool = True  # else also what is better or new, and services whose address is another one


class Percentile(NamedTuple):
    """A percentile of latencies that is compared."""

    percent: int
    least: int  # replies that both captures must have
    apart_ns: int  # by which it must differ
    seconds: int = 0  # that must have such a slow reply: several slow ones at once have one cause


def tolerance_of_diff(percent: float) -> Tolerance:
    """The tolerance for all differences that are no chance."""
    replies = Percentile(50, 20, 1_000_000), Percentile(99, 100, 10_000_000, 3)
    return Tolerance(1 + percent / 100, replies, often=5, deviations=3, only_worse=False)


class Compared(NamedTuple):
    """One aspect of a service, compared."""

    aspect: Aspect
    differences: Sequence[Difference] = ()
    unknown: str = ""  # without a difference: why it cannot be told whether there is one


class _Pair(NamedTuple):
    """A service in the old capture and in the new one."""

    old: ServiceProfile
    new: ServiceProfile
    before: Services
    after: Services
    tolerance: Tolerance

    @property
    def is_moved(self) -> bool:
        """Whether its address is another one."""
        return self.old.address != self.new.address

    @property
    def seconds(self) -> tuple[float, float]:
        """How long both captures last."""
        return self.before.span.seconds, self.after.span.seconds

    @property
    def back(self) -> "_Pair":
        """The same, looked at from the new capture."""
        return _Pair(self.new, self.old, self.after, self.before, self.tolerance)

    def difference(
        self,
        aspect: Aspect,
        effect: Effect,
        summary: str,
        connection: Connection | None = None,
        change: Change = "changed",
        **values: Any,
    ) -> Difference:
        """A difference of this service."""
        return _difference(
            self.old.address, aspect, effect, change, summary, connection,
            now_at=self.new.address if self.is_moved else None, **values,
        )  # fmt: skip


def _difference(
    address: str, aspect: Aspect, effect: Effect, change: Change, summary: str, connection: Connection | None = None,
    **values: Any,
) -> Difference:  # fmt: skip
    flow, time_ns = (None, None) if connection is None else (connection.flow, connection.start_ns)
    return Difference(
        effect=effect, change=change, aspect=aspect, service=address, summary=summary, flow=flow, time_ns=time_ns,
        **values,
    )  # fmt: skip


def compare_services(old: Services, new: Services, tolerance: Tolerance) -> list[Compared]:
    """All aspects of all services, one aspect after the other; the first is whether a service is there at all."""
    there = partners(old, new, tolerance)
    pairs = [
        _Pair(service, new.services[there[address]], old, new, tolerance)
        for address, service in sorted(old.services.items())
        if address in there
    ]
    compared = list(_services(old, new, there, tolerance))
    for comparison in _COMPARISONS:
        compared += [one for pair in pairs for one in comparison(pair)]
    return compared


def partners(old: Services, new: Services, tolerance: Tolerance) -> dict[str, str]:
    """The address in the new capture of each service that both have, by that in the old one.

    A service that is gone and one that is new are taken for the same if both join the same types of sockets, else if
    their own type is the same, and no other one that is gone or new does: on the same host, else at the same port, else
    anywhere.
    """
    found_at = {address: address for address in old.services if address in new.services}
    if tolerance.only_worse:
        return found_at
    gone, come = (
        [each for address, each in services.services.items() if address not in found_at and each.socket_types.known]
        for services in (old, new)
    )
    places: tuple[Callable[[str], object], ...] = (host_of, port_of, lambda address: "")
    types: tuple[Callable[[ServiceProfile], list[str]], ...] = (
        lambda service: service.pairs.known,
        lambda service: service.socket_types.known,
    )
    for types_of, place in product(types, places):
        lost, found = (_alone([(place(one.address), *types_of(one)) for one in left], left) for left in (gone, come))
        for key, service in lost.items():
            if key in found and not _topics_contradict(service, found[key]):
                found_at[service.address] = found[key].address
        gone = [each for each in gone if each.address not in found_at]
        come = [each for each in come if each.address not in found_at.values()]
    return found_at


def sum_up(
    old: Services, new: Services, tolerance: Tolerance, compared: Sequence[Compared], shown: Sequence[Difference]
) -> ComparisonSum:
    """The sum of a comparison, of whose differences those ``shown`` count."""
    both = partners(old, new, tolerance)
    effects = [one.effect for one in shown]
    return ComparisonSum(
        worse=effects.count("worse"),
        neutral=effects.count("neutral"),
        better=effects.count("better"),
        services=len(both),
        alike=len(both.keys() - {one.service for one in shown}),
        before_seconds=old.span.seconds,
        after_seconds=new.span.seconds,
        not_compared=list(dict.fromkeys(one.unknown for one in compared if one.unknown)),
    )


def _alone(keys: Sequence[object], services: Sequence[ServiceProfile]) -> dict[object, ServiceProfile]:
    """The services that share their key with no other one."""
    return {key: service for key, service in zip(keys, services, strict=True) if keys.count(key) == 1}


def _topics_contradict(old: ServiceProfile, new: ServiceProfile) -> bool:
    pairs = (old.topics, new.topics), (old.subscriptions, new.subscriptions)
    return any(a.counts and b.counts and a.counts.keys().isdisjoint(b.counts) for a, b in pairs)


def _services(old: Services, new: Services, partners: dict[str, str], tolerance: Tolerance) -> Iterator[Compared]:
    for address, service in sorted(old.services.items()):
        if not service.working:
            continue
        there = new.services.get(partners.get(address, ""))
        kinds = " and ".join(service.pairs.known)
        if there is not None and there.connections:
            moved = []
            if there.address != address:
                words = (
                    f"{address} is now {there.address}: taken for the same, as no other new one has its socket types"
                )
                moved = [_difference(address, "services", "neutral", "changed", words, now_at=there.address)]
            yield Compared("services", moved)
        elif new.is_whole:
            words = f"{address} is gone{f' ({kinds})' if kinds else ''}"
            gone = _difference(address, "services", "worse", "gone", words, was=service.pairs.known)
            yield Compared("services", [gone])
        else:
            yield Compared("services", (), f"nothing of {address} is in the new capture, which may lack it")
    known = set(partners.values())
    for address, service in sorted(new.services.items()):
        if tolerance.only_worse or address in known:
            continue
        if not service.working:
            yield _failing(service)
            continue
        if old.is_whole:
            kinds = " and ".join(service.pairs.known)
            words = f"{address} is new{f' ({kinds})' if kinds else ''}"
            example = next(iter(service.clients.values()), None)
            come = _difference(address, "services", "neutral", "new", words, example, now=service.pairs.known)
            yield Compared("services", [come])
        else:
            yield Compared("services", (), f"nothing of {address} is in the old capture, which may lack it")


def _failing(service: ServiceProfile) -> Compared:
    """A service that is new, and that nobody gets through to."""
    count = service.failures
    words = f"all of {plural(count, 'connection')} to {service.address} failed, and there were none before"
    found = _difference(service.address, "handshakes", "worse", "new", words, service.failed[0], after=count)
    return Compared("handshakes", [found])


def _clients(pair: _Pair) -> Iterator[Compared]:
    most, now = pair.old.most_clients(), pair.new.most_clients()
    if not most or len(pair.old.lifetimes) > 2 * most:  # they come and go
        return
    hosts: dict[str, Any] = {}
    if not pair.tolerance.only_worse and now:
        hosts = {"was": _missing_clients(pair), "now": _missing_clients(pair.back)}
    counts = {"before": most, "after": now, "unit": "clients", **hosts}
    judgement = ClientCount(most, None).judge(pair.new, pair.after)
    found = [
        pair.difference("clients", "worse", complaint.text, complaint.connection, **counts)
        for complaint in judgement.complaints
    ]
    if not pair.tolerance.only_worse and not found and not judgement.unknown:
        grows = now > most and len(pair.new.lifetimes) <= 2 * now and pair.before.is_whole
        if grows or hosts.get("was") or hosts.get("now"):
            words = f"{pair.new.address} has {plural(now, 'client')}, and had {most:,}"
            if now == most:
                words = f"{pair.new.address} has other clients"
            found.append(pair.difference("clients", "neutral", words, **counts))
    yield Compared("clients", found, judgement.unknown)


def _missing_clients(pair: _Pair) -> list[str]:
    """The hosts of clients that are gone, and their identities; not those that each run makes up anew."""
    old, new = pair.old, pair.new
    if not pair.after.is_whole or new.clients_cut or len(old.lifetimes) > 2 * old.most_clients():
        return []
    hosts = set() if pair.is_moved else old.clients.keys() - new.clients.keys()
    names, others = old.names.examples.keys(), new.names.examples.keys()
    made_up = names.isdisjoint(others) or old.names.is_full or new.names.is_full
    return [*sorted(hosts), *sorted(set() if made_up else names - others)]


def _sockets(pair: _Pair) -> Iterator[Compared]:
    address = pair.new.address
    missing = _missing_pairs(pair)
    if missing and (pair.new.pairs.unknown or not pair.after.is_whole):
        yield Compared("sockets", (), f"not all connections to {address} show what sockets they join")
    elif pair.old.pairs.known:
        now = " and ".join(pair.new.pairs.known) or "none"
        found = [
            pair.difference("sockets", "worse", f"{address} had {kinds}, and has {now}", change="gone", subject=kinds)
            for kinds in missing
        ]
        if not pair.tolerance.only_worse and pair.before.is_whole and not pair.old.pairs.unknown:
            found += [
                pair.difference(
                    "sockets", "neutral", f"{address} has {kinds}, and had not", pair.new.pairs.examples[kinds][0],
                    "new", subject=kinds,
                )
                for kinds in _missing_pairs(pair.back)
            ]  # fmt: skip
        yield Compared("sockets", found)


def _missing_pairs(pair: _Pair) -> list[str]:
    return [kinds for kinds in pair.old.pairs.known if kinds not in pair.new.pairs.examples]


def _mechanisms(pair: _Pair) -> Iterator[Compared]:
    was, now = pair.old.mechanisms, pair.new.mechanisms
    address = pair.new.address
    if not was.known:
        return
    least = min(map(_strength, was.known))
    words = " or ".join(was.known)
    found = [
        pair.difference("mechanisms", "worse", f"{address} was {words}, is {value}", now.examples[value][0],
                        was=was.known, now=[value])
        for value in now.known
        if _strength(value) < least
    ]  # fmt: skip
    unknown = f"no handshake with {address} is in the new capture" if not now.known else ""
    if now.unknown and now.known:
        unknown = f"{now.unknown:,} of {plural(pair.new.working, 'connection')} to {address} do not show it"
    if not pair.tolerance.only_worse and not found and not unknown and was.known != now.known:
        effect: Effect = "better" if min(map(_strength, now.known)) > least else "neutral"
        text = f"{address} was {words}, is {' or '.join(now.known)}"
        example = now.examples[now.known[0]][0]
        found.append(pair.difference("mechanisms", effect, text, example, was=was.known, now=now.known))
    yield Compared("mechanisms", found, unknown)


def _strength(mechanism: str) -> int:
    return 0 if mechanism.startswith(NO_MECHANISM) else _STRENGTHS.get(mechanism, _ENCRYPTED)


def _versions(pair: _Pair) -> Iterator[Compared]:
    was, now = pair.old.versions, pair.new.versions
    if not was.known:
        return
    address, words = pair.new.address, " or ".join(was.known)
    found = [
        pair.difference("versions", "worse", f"{address} was ZMTP {words}, is ZMTP {value}", now.examples[value][0],
                        was=was.known, now=[value])
        for value in now.known
        if value < was.known[0]
    ]  # fmt: skip
    if not pair.tolerance.only_worse and not found and now.known and now.known != was.known and not now.unknown:
        text = f"{address} was ZMTP {words}, is ZMTP {' or '.join(now.known)}"
        found.append(pair.difference("versions", "neutral", text, was=was.known, now=now.known))
    yield Compared("versions", found, "" if now.known else f"no handshake with {address} is in the new capture")


def _handshakes(pair: _Pair) -> Iterator[Compared]:
    old, new = pair.old, pair.new
    worse = _more_often(pair, (old.failures, max(old.connections, 1)), (new.failures, max(new.connections, 1)))
    better = not pair.tolerance.only_worse and _more_often(
        pair, (new.failures, max(new.connections, 1)), (old.failures, max(old.connections, 1)), is_new=False
    )
    found = []
    if worse or better:
        words = f"{new.failures:,} of {plural(new.connections, 'connection')} to {new.address} failed"
        found.append(
            pair.difference(
                "handshakes", "worse" if worse else "better",
                f"{words}, and {old.failures:,} of {old.connections:,} before", new.failed[0] if new.failed else None,
                before=old.failures, after=new.failures, unit="failed",
            )
        )  # fmt: skip
    yield Compared("handshakes", found)


def _more_often(pair: _Pair, few: tuple[int, float], many: tuple[int, float], *, is_new: bool = True) -> bool:
    """Whether events are more frequent in ``many`` than in ``few``: each is a number of events and of chances.

    If it ``is_new``, an event that was never there counts once it is so frequent that the other capture would have had
    one.
    """
    (least, room), (most, space) = few, many
    if most / space <= least / room * pair.tolerance.factor:
        return False
    if not pair.tolerance.deviations:
        return True
    if is_new and not least and most / space * room >= 1:
        return True
    return _is_beyond_chance(pair, few, many)


def _is_beyond_chance(pair: _Pair, one: tuple[int, float], other: tuple[int, float]) -> bool:
    """Whether two rates of Poisson processes, each as events and seconds, differ by more than their deviations."""
    (count, seconds), (events, time) = one, other
    deviation = sqrt(count / seconds**2 + events / time**2)
    return abs(count / seconds - events / time) >= pair.tolerance.deviations * deviation


def _topics(pair: _Pair) -> Iterator[Compared]:
    for kind, verb in VERBS.items():
        often = 1 if kind == "subscriptions" else pair.tolerance.often
        was, now = pair.old.counter(kind), pair.new.counter(kind)
        wanted = _regular(pair, was, often)
        come = [] if pair.tolerance.only_worse else _absent(_regular(pair.back, now, often), was)
        if not wanted and not come:
            continue
        missing = _absent(wanted, now)
        unknown = topics_unknown(pair.new, now, kind, of_all=False) if missing else ""
        if come and (blind := topics_unknown(pair.old, was, kind, of_all=False)):
            come, unknown = [], unknown or blind
        found = [
            pair.difference(kind, "worse", topic_gone(kind, text, pair.new.address), change="gone",
                            subject=quote(topic, TOPIC_OCTETS), before=was.counts[topic])
            for topic, text in ({} if unknown else missing).items()
        ]  # fmt: skip
        for topic in come:
            shown = quote(topic, TOPIC_OCTETS)
            words = f"{shown} is {verb} at {pair.new.address}, and was not before"
            found.append(pair.difference(kind, "neutral", words, change="new", subject=shown,
                                         after=now.counts[topic]))  # fmt: skip
        yield Compared(kind, found, unknown)


def _regular(pair: _Pair, counter: TopicCounter, often: int) -> dict[bytes, str]:
    """The topics that are text and come so often, also in the time of the other capture, with their patterns."""
    if counter.is_cut:
        return {}
    seconds, others = pair.seconds
    share = 1 if pair.tolerance.only_worse or often == 1 else min(1, others / seconds)
    texts = {topic: literal(topic) for topic, count in sorted(counter.counts.items()) if count * share >= often}
    return {topic: text for topic, text in texts.items() if text is not None}


def _absent(topics: dict[bytes, str], counter: TopicCounter) -> dict[bytes, str]:
    return {topic: text for topic, text in topics.items() if topic not in counter.counts}


def _rates(pair: _Pair) -> Iterator[Compared]:
    address, tolerance = pair.new.address, pair.tolerance
    for side, words, was, now in (
        ("service", f"{address} sent", pair.old.messages.server, pair.new.messages.server),
        ("clients", f"clients of {address} sent", pair.old.messages.client, pair.new.messages.client),
    ):
        before, after = was / pair.seconds[0], now / pair.seconds[1]
        if max(was, 0 if tolerance.only_worse else now) < LEAST_MESSAGES:
            continue
        falls, grows = after * tolerance.factor < before, before * tolerance.factor < after
        sure = _is_beyond_chance(pair, (was, pair.seconds[0]), (now, pair.seconds[1]))
        blind = pair.new if falls else pair.old
        if not sure or not (falls or (grows and not tolerance.only_worse)):
            yield Compared("rates")
        elif blind.blind or blind.encrypted:
            which = "new" if falls else "old"
            yield Compared("rates", (), f"what {blind.address} says cannot be counted in the {which} capture")
        else:
            text = f"{words} {before:,.4g} messages a second, and now {after:,.4g}"
            effect: Effect = "worse" if falls else "neutral"
            found = pair.difference("rates", effect, text, subject=side, before=before, after=after, unit="messages/s")
            yield Compared("rates", [found])


def _latencies(pair: _Pair) -> Iterator[Compared]:
    was, now, tolerance = pair.old.latencies, pair.new.latencies, pair.tolerance
    wanted = [percentile for percentile in tolerance.replies if was.count >= percentile.least]
    if not wanted:
        return
    address = pair.new.address
    if now.count < wanted[0].least:
        yield Compared("latencies", (), f"{address} has too few replies in the new capture")
        return
    found = []
    for percentile in wanted:
        slower = _is_slower(percentile, tolerance, pair.old, pair.new)
        if slower or (not tolerance.only_worse and _is_slower(percentile, tolerance, pair.new, pair.old)):
            name = f"p{percentile.percent}"
            before, after = was.percentile(percentile.percent), now.percentile(percentile.percent)
            words = f"{address} replied with {name} {duration(before)}, and now {duration(after)}"
            found.append(pair.difference("latencies", "worse" if slower else "better", words, subject=name,
                                         before=before, after=after, unit="ns"))  # fmt: skip
    yield Compared("latencies", found)


def _is_slower(percentile: Percentile, tolerance: Tolerance, old: ServiceProfile, new: ServiceProfile) -> bool:
    """Whether a percentile is longer in the new profile, and no chance.

    Of the new replies so many percent should be within the old percentile. The number of others is a Poisson variable.
    """
    was, now = old.latencies, new.latencies
    before, after = was.percentile(percentile.percent), now.percentile(percentile.percent)
    if now.count < percentile.least or after - before <= percentile.apart_ns or after <= before * tolerance.factor:
        return False
    if not tolerance.deviations:
        return True
    if percentile.percent == 50 and not _are_apart(was, now):
        return False
    expected = now.count * (100 - percentile.percent) / 100
    likely = expected + tolerance.deviations * sqrt(expected * percentile.percent / 100)
    limit = round(max(before * tolerance.factor, before + percentile.apart_ns))
    times = sum(latency_ns > limit for latency_ns in new.slowest.values())
    return now.above(limit) >= likely and times >= percentile.seconds


def _sizes(pair: _Pair) -> Iterator[Compared]:
    """The medians of how long messages are."""
    if pair.tolerance.only_worse:
        return
    for side, was, now in (
        ("service", pair.old.sizes["server"], pair.new.sizes["server"]),
        ("clients", pair.old.sizes["client"], pair.new.sizes["client"]),
    ):
        if min(was.count, now.count) < LEAST_MESSAGES:
            continue
        before, after = was.percentile(50), now.percentile(50)
        if not _are_apart(was, now) or max(before, after) <= (min(before, after) + 1) * pair.tolerance.factor:
            yield Compared("sizes")
            continue
        who = pair.new.address if side == "service" else f"clients of {pair.new.address}"
        words = f"{who} sent messages of {before:,} octets (median), and now of {after:,}"
        yield Compared("sizes", [pair.difference("sizes", "neutral", words, subject=side, before=before,
                                                 after=after, unit="octets")])  # fmt: skip


def _are_apart(one: Sketch, other: Sketch) -> bool:
    """Whether the median of each is outside the middle half of the other."""
    return all(not a.percentile(25) <= b.percentile(50) <= a.percentile(75) for a, b in ((one, other), (other, one)))


def _problems(pair: _Pair) -> Iterator[Compared]:
    seconds, found = pair.seconds, []
    codes = pair.new.problems if pair.tolerance.only_worse else pair.new.problems | pair.old.problems
    for code in sorted(codes):
        was, now = pair.old.problems[code], pair.new.problems[code]
        worse = _more_often(pair, (was, seconds[0]), (now, seconds[1]))
        better = not pair.tolerance.only_worse and _more_often(pair, (now, seconds[1]), (was, seconds[0]), is_new=False)
        if worse or better:
            words = f"{pair.new.address}: {escape(code)} {often(now)}, and {often(was)} before"
            found.append(pair.difference("problems", "worse" if worse else "better", words, subject=code,
                                         before=was, after=now, unit="times"))  # fmt: skip
    yield Compared("problems", found)


_COMPARISONS: tuple[Callable[[_Pair], Iterator[Compared]], ...] = (
    _clients, _sockets, _mechanisms, _versions, _handshakes, _topics, _rates, _latencies, _sizes, _problems
)  # fmt: skip
