"""The demands of a policy on a service, and whether the capture keeps them.

A demand judges one service at a time, in words that need no policy beside them. If the capture may lack something, the
demand does not complain: it says why it cannot tell.
"""

from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple, Protocol

from dissectors.events import Connection, Side
from zmtpsniff.check.defaults import TOPIC_OCTETS
from zmtpsniff.check.globs import AddressPattern, Glob, any_matches
from zmtpsniff.check.services import NO_MECHANISM, VERBS, ServiceProfile, Services, TopicCounter, TopicKind, Values
from zmtpsniff.words.counts import plural
from zmtpsniff.words.durations import duration
from zmtpsniff.words.text import quote

Agreed = Literal["mechanism", "version", "socket_type", "client_socket_type"]
Limits = tuple[tuple[str, int, int], ...]
"""Percentiles of latencies, such as ("p99", 99, nanoseconds); 100 percent is the longest."""


class Complaint(NamedTuple):
    """A fault of a service, in words, and a connection that shows it."""

    text: str
    connection: Connection | None = None


class Judgement(NamedTuple):
    """The result of a demand at one service."""

    found: str  # what is there
    complaints: Sequence[Complaint] = ()
    unknown: str = ""  # without a complaint: why it cannot be told whether the demand is met


class Demand(Protocol):
    """One thing that a service must do or be."""

    def judge(self, service: ServiceProfile, capture: Services) -> Judgement:
        """Hold a service of a capture against it."""

    def absent(self, address: str) -> str | None:
        """The complaint if the capture has nothing of the service; None if that is no fault."""


class EndpointDemand(NamedTuple):
    """A demand, and the addresses that it is made of."""

    addresses: Sequence[AddressPattern]
    demand: Demand

    def matches(self, address: str) -> bool:
        """Whether the demand is made of the service at an address."""
        return any(pattern.matches(address) for pattern in self.addresses)

    @property
    def title(self) -> str:
        """The addresses, as the policy has them."""
        return ", ".join(pattern.text for pattern in self.addresses)


def limits_of(endpoints: Iterable[EndpointDemand]) -> list[int]:
    """All latencies, in nanoseconds, that demands have as limits."""
    times = [each.demand for each in endpoints if isinstance(each.demand, ReplyTime)]
    return [limit for each in times for _, _, limit in each.limits]


class AgreedOn(NamedTuple):
    """A property that both sides agree on, or that one side has, is one of some values."""

    what: Agreed
    wanted: Sequence[str]

    def judge(self, service: ServiceProfile, capture: Services) -> Judgement:
        """Complain of each other value."""
        values = self._values(service)
        complaints = [
            Complaint(self._words(service, value), values.examples[value][0])
            for value in values.known
            if not self._fits(value)
        ]
        if self.what == "mechanism":
            complaints += self._disagreements(service)
        address = service.address
        if not values.known and not complaints:
            return Judgement("", (), f"no handshake with {address} is in the capture")
        unknown = ""
        if values.unknown:
            unknown = f"{values.unknown:,} of {plural(service.working, 'connection')} to {address} do not show it"
        return Judgement(f"{self._subject(address)} {_or(values.known)}", complaints, unknown)

    def absent(self, address: str) -> str | None:
        """An absent service has agreed on nothing."""

    def _values(self, service: ServiceProfile) -> Values:
        return {
            "mechanism": service.mechanisms,
            "version": service.versions,
            "socket_type": service.socket_types,
            "client_socket_type": service.client_types,
        }[self.what]

    def _fits(self, value: str) -> bool:
        if self.what == "version":
            return any(_version_fits(value, wanted) for wanted in self.wanted)
        return value in self.wanted or ("NULL" in self.wanted and value.startswith(NO_MECHANISM))

    def _subject(self, address: str) -> str:
        return f"clients of {address} are" if self.what == "client_socket_type" else f"{address} is"

    def _words(self, service: ServiceProfile, value: str) -> str:
        address = service.address
        if self.what == "client_socket_type":
            client = service.client_types.examples[value][0].client.address
            return f"clients of {address} were {_or(self.wanted)}, {client} is {value}"
        prefix = "ZMTP " if self.what == "version" else ""
        return f"{address} was {prefix}{_or(self.wanted)}, is {prefix}{value}"

    def _disagreements(self, service: ServiceProfile) -> list[Complaint]:
        """Of sides that announce another mechanism, and so agree on none."""
        said = [
            Complaint(f"{service.address} was {_or(self.wanted)}, is {value}", service.announced.examples[value][0])
            for value in service.announced.known
            if not self._fits(value) and value not in service.mechanisms.examples
        ]
        for value in service.wanted.known:
            if not self._fits(value):
                example = service.wanted.examples[value][0]
                words = f"{service.address} was {_or(self.wanted)}, {example.client.address} wants {value}"
                said.append(Complaint(words, example))
        return said


class RequiredTopics(NamedTuple):
    """Topics that must be subscribed to or published."""

    kind: TopicKind
    topics: Sequence[Glob]

    def judge(self, service: ServiceProfile, capture: Services) -> Judgement:
        """Complain of each that is not there."""
        counter = service.counter(self.kind)
        missing = [glob for glob in self.topics if not any(map(glob.matches, counter.counts))]
        found = f"{plural(len(self.topics), 'topic')} at {service.address}, as expected"
        if missing and (unknown := topics_unknown(service, counter, self.kind, of_all=False)):
            return Judgement(found, (), unknown)
        return Judgement(found, [Complaint(topic_gone(self.kind, glob.text, service.address)) for glob in missing])

    def absent(self, address: str) -> str | None:
        """The service is absent."""
        return topic_gone(self.kind, self.topics[0].text, address) if self.topics else None


class AllowedTopics(NamedTuple):
    """Topics of which no others may be subscribed to or published."""

    kind: TopicKind
    topics: Sequence[Glob]

    def judge(self, service: ServiceProfile, capture: Services) -> Judgement:
        """Complain of each other topic."""
        counter = service.counter(self.kind)
        others = sorted(topic for topic in counter.counts if not any_matches(self.topics, topic))
        verb = VERBS[self.kind]
        complaints = [
            Complaint(f"{quote(topic, TOPIC_OCTETS)} is {verb} at {service.address}, and was not before")
            for topic in others
        ]
        found = f"{plural(len(counter.counts), 'topic')} {verb} at {service.address}, all of them known"
        return Judgement(found, complaints, topics_unknown(service, counter, self.kind, of_all=True))

    def absent(self, address: str) -> str | None:
        """An absent service has no topic."""


class AllowedClients(NamedTuple):
    """Hosts that may connect."""

    hosts: Sequence[Glob]

    def judge(self, service: ServiceProfile, capture: Services) -> Judgement:
        """Complain of each other host."""
        others = [
            (host, example)
            for host, example in sorted(service.clients.items())
            if not any_matches(self.hosts, host.encode("utf-8", "surrogateescape"))
        ]
        complaints = [Complaint(f"{service.address} has a new client {host}", example) for host, example in others]
        unknown = f"{service.address} has more hosts as clients than are told apart" if service.clients_cut else ""
        found = f"{service.address} has clients on {plural(len(service.clients), 'host')}, all of them known"
        return Judgement(found, complaints, unknown)

    def absent(self, address: str) -> str | None:
        """An absent service has no clients."""


class ClientCount(NamedTuple):
    """How many clients there are at the same time."""

    least: float | None
    most: float | None

    def judge(self, service: ServiceProfile, capture: Services) -> Judgement:
        """Complain of too few and of too many."""
        seen = service.most_clients()
        has = f"{seen:,}" if seen else "none"
        found = f"{service.address} has {plural(seen, 'client')}"
        unknown = "" if capture.is_whole else f"{found} in the capture, which may lack others"
        if self.most is not None and seen > self.most:
            words = f"{service.address} had {self._bound(self.most, 'at most ')}, has {has}"
            new = service.beyond(int(self.most))
            return Judgement(found, [Complaint(f"{words}: {new.client.address} is new" if new else words, new)])
        if self.least is not None and seen < self.least:
            return _too_few(found, f"{service.address} had {self._bound(self.least, 'at least ')}, has {has}", unknown)
        return Judgement(found, (), unknown if self.most is not None else "")

    def absent(self, address: str) -> str | None:
        """The service is absent."""
        return f"{address} had {self._bound(self.least, 'at least ')}, has none" if self.least else None

    def _bound(self, bound: float, words: str) -> str:
        return f"{'' if self.least == self.most else words}{plural(int(bound), 'client')}"


class Rate(NamedTuple):
    """How many messages a second one side sends, on average over the capture."""

    side: Side
    least: float | None
    most: float | None

    def judge(self, service: ServiceProfile, capture: Services) -> Judgement:
        """Complain of too few and of too many."""
        count = service.messages.server if self.side == "server" else service.messages.client
        rate = count / capture.span.seconds
        found = f"{self._subject(service.address)} {rate:,.4g} messages a second"
        if self.most is not None and rate > self.most:
            return Judgement(found, [Complaint(f"{found}, and {self.most:,g} at most before")])
        unknown = _unreadable(service)
        if self.least is not None and rate < self.least:
            return _too_few(found, f"{found}, and {self.least:,g} at least before", unknown)
        return Judgement(found, (), unknown if self.most is not None else "")

    def absent(self, address: str) -> str | None:
        """The service is absent."""
        return f"{self._subject(address)} no messages" if self.least else None

    def _subject(self, address: str) -> str:
        return f"{address} sends" if self.side == "server" else f"clients of {address} send"


class ReplyTime(NamedTuple):
    """How long replies may take."""

    limits: Limits

    def judge(self, service: ServiceProfile, capture: Services) -> Judgement:
        """Complain of each percentile over its limit."""
        latencies = service.latencies
        if not latencies.count:
            return Judgement("", (), f"no reply at {service.address} is in the capture")
        words, complaints = [], []
        for name, percent, limit in self.limits:
            took = f"{name} {duration(latencies.percentile(percent))}"
            if not latencies.keeps(percent, limit):
                complaints.append(
                    Complaint(f"{service.address} replied with {name} within {limit / 1e6:g} ms, and now {took}")
                )
            words.append(took)
        return Judgement(f"{service.address} replies with {', '.join(words)}", complaints)

    def absent(self, address: str) -> str | None:
        """An absent service is not slow."""


class OnlyThese(NamedTuple):
    """No service is at an address that no endpoint of the policy has."""

    known: Sequence[AddressPattern]

    def judge(self, service: ServiceProfile, capture: Services) -> Judgement:
        """Complain of a service at another address that somebody talks to."""
        if any(pattern.matches(service.address) for pattern in self.known):
            return Judgement(f"{service.address} is known")
        example = next(iter(service.clients.values()), None)
        if example is None:  # nobody got through
            return Judgement(f"nobody talks to {service.address}")
        return Judgement("", [Complaint(f"{service.address} is new: {example.client.address} talks to it", example)])

    def absent(self, address: str) -> str | None:
        """Without services there is no new one."""


def _too_few(found: str, words: str, unknown: str) -> Judgement:
    """The judgement on a number that is too small, unless the capture may lack the others."""
    return Judgement(found, () if unknown else [Complaint(words)], unknown)


def _version_fits(value: str, wanted: str) -> bool:
    if not wanted.startswith(">="):
        return value == wanted
    try:
        return tuple(map(int, value.split("."))) >= tuple(map(int, wanted[2:].strip().split(".")))
    except ValueError:  # of another kind, such as that of ws
        return False


def _unreadable(service: ServiceProfile) -> str:
    """Why what a service says cannot be counted; empty if it can."""
    if service.encrypted:
        return f"what {service.address} says is encrypted"
    return f"octets of {service.address} are missing from the capture" if service.blind else ""


def topic_gone(kind: TopicKind, topic: str, address: str) -> str:
    """The words for a topic that is not there any more; ``topic`` is its pattern."""
    shown = quote(topic.encode("utf-8", "surrogateescape"), TOPIC_OCTETS)
    return f"{shown} was {VERBS[kind]} at {address}, and is not any more"


def topics_unknown(service: ServiceProfile, counter: TopicCounter, kind: TopicKind, *, of_all: bool) -> str:
    """Why there may be topics that were not seen, for a demand about all topics, or about some that are missing."""
    if unreadable := _unreadable(service):
        return unreadable
    if counter.is_cut:
        return f"{service.address} has more topics than are told apart"
    if service.unseen and (kind == "subscriptions" or service.socket_types.unknown or service.client_types.unknown):
        return f"{service.unseen:,} of {plural(service.working, 'connection')} to {service.address} began before"
    if of_all and not counter.counts:
        return f"there is no topic at {service.address}"
    return ""


def _or(values: Sequence[str]) -> str:
    return " or ".join(values)
