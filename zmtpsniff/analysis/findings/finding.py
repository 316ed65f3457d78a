"""A finding: what is wrong in a system of programs, how that is known, and what to do about it."""

from collections.abc import Container, Iterable, Sequence
from typing import Annotated, Literal, NamedTuple

import msgspec

from dissectors.events import SEVERITIES, Severity
from dissectors.records import meaning, moment
from zmtpsniff.analysis.findings.catalogue import FINDINGS
from zmtpsniff.analysis.statistics.stats_records import PeerRow, record_of

Certainty = Literal["certain", "likely", "possible"]
NOT_ANSWERING = frozenset({"request-unanswered", "worker-silent", "not-passed-on"})
"""Findings about a socket that does not answer. It may wait for others; then the others are to blame."""
_MOST_EVIDENCE = 5
_CODES = list(FINDINGS)


class Evidence(msgspec.Struct, frozen=True, gc=False):
    """A packet to look at."""

    packet: Annotated[int, meaning("The number of the packet, from 1.")]
    flow: Annotated[
        int, meaning("The connection that it is of; 0 for a RST whose connection the capture does not have.")
    ]


class Finding(msgspec.Struct, tag_field="type", tag="finding", omit_defaults=True, repr_omit_defaults=True, gc=False):
    """Something that is wrong, or worth knowing, in a system of programs."""

    severity: Annotated[Severity, meaning("How bad it is.")]
    code: Annotated[str, meaning("Which finding this is: zmtpsniff explain lists all.")]
    summary: Annotated[str, meaning("What is wrong, in one sentence with names and numbers.")]
    known: Annotated[str, meaning("How that is known.")]
    advice: Annotated[str, meaning("What to do about it.")]
    count: Annotated[int, meaning("How often it happened.")]
    evidence: Annotated[list[Evidence], meaning("Packets to look at, the first ones and the last one.")]
    endpoints: Annotated[list[str], meaning("The sockets concerned, as address and port.")]
    certainty: Annotated[Certainty, meaning("How certain it is.")] = "certain"
    first_ns: Annotated[int | None, moment("When it happened first")] = None
    last_ns: Annotated[int | None, moment("When it happened last")] = None
    suggestion: Annotated[str | None, meaning("subscription-unmatched: the topic that was most likely meant.")] = None
    peers: Annotated[list[PeerRow], meaning("Of work that peers of one socket share: what each of them did.")] = []
    state: Annotated[
        Literal["comes", "worsens", "goes"] | None,
        meaning("While traffic passes: whether it is new, has a worse severity, or has not happened for a minute."),
    ] = None

    problem: Annotated[
        str | None, meaning("protocol-violated: the code of the problem that it repeats, as text shows it.")
    ] = None

    @property
    def name(self) -> str:
        """The code that says most to people: that of the problem, if the finding is nothing but one."""
        return self.problem or self.code

    @property
    def seen(self) -> str:
        """How it is known, behind its name: without the code that the name repeats."""
        known = self.known.removeprefix(f"problem {self.problem}: ")
        is_name = known[1:2] != " " and not known[1:2].islower()
        return known if is_name else known[0].lower() + known[1:]

    @property
    def doubts(self) -> tuple[str, ...]:
        """How certain it is, if it is not certain: ``("(likely)",)``."""
        return () if self.certainty == "certain" else (f"({self.certainty})",)

    @property
    def heading(self) -> str:
        """Its name, and how certain it is if it is not certain: ``not-passed-on (likely)``."""
        return " ".join((self.name, *self.doubts))

    @property
    def waits(self) -> bool:
        """Whether somebody waits, perhaps in vain, even if it is a note."""
        return FINDINGS[self.code].waits

    def waits_for(self, endpoint: str) -> bool:
        """Whether it is a note that its socket does not answer because it cannot reach ``endpoint``."""
        if self.severity != "note" or self.code not in NOT_ANSWERING or endpoint in self.endpoints:
            return False
        return endpoint in [word.strip(",;") for word in self.summary.split()]


class Occurrences(msgspec.Struct, eq=False):
    """How often something happened, when, and in which packets: the first few, and the last one."""

    count: int = 0
    first_ns: int | None = None
    last_ns: int | None = None
    _first: list[Evidence] = []
    _last: Evidence | None = None

    @classmethod
    def of(cls, times: Iterable[tuple[int | None, int | None, int | None]]) -> "Occurrences":
        """It happened at each of these times, in these packets of these flows."""
        made = cls()
        for one in times:
            made.add(*one)
        return made

    @classmethod
    def all_of(cls, several: Iterable["Occurrences"]) -> "Occurrences":
        """All of these happened."""
        made = cls()
        for one in several:
            made.merge(one)
        return made

    def add(self, time_ns: int | None, packet: int | None, flow: int | None, count: int = 1) -> None:
        """It happened ``count`` times more, the last time at that time and in that packet."""
        self.count += count
        if time_ns is not None:
            self.first_ns = time_ns if self.first_ns is None else min(self.first_ns, time_ns)
            self.last_ns = time_ns if self.last_ns is None else max(self.last_ns, time_ns)
        if packet is not None and flow is not None:
            if len(self._first) < _MOST_EVIDENCE - 1:
                self._first.append(Evidence(packet, flow))
            else:
                self._last = Evidence(packet, flow)

    def merge(self, other: "Occurrences") -> None:
        """The others happened, too."""
        self.count += other.count
        for time_ns in (other.first_ns, other.last_ns):
            self.add(time_ns, None, None, 0)
        for one in other.evidence:
            if one not in self._first:
                self.add(None, one.packet, one.flow, 0)

    def since(self, time_ns: int) -> None:
        """It began no later than then."""
        self.first_ns = time_ns if self.first_ns is None else min(self.first_ns, time_ns)

    @property
    def evidence(self) -> list[Evidence]:
        """Packets to look at."""
        return self._first if self._last is None else [*self._first, self._last]

    @property
    def span_ns(self) -> int:
        """The time between the first and the last."""
        return (self.last_ns or 0) - (self.first_ns or 0)


class Claim(NamedTuple):
    """The result of an inquiry, before it is written as a finding."""

    code: str
    summary: str
    known: str
    occurrences: Occurrences
    endpoints: Iterable[str]
    severity: Severity | None = None  # None: that of the code
    certainty: Certainty = "certain"
    suggestion: str | None = None
    advice: str | None = None  # None: that of the code
    subject: str | None = None  # further findings of it with the same code are left out
    problem: str | None = None  # the code of the problem that it repeats
    waiting: Container[str] = ()  # hosts that wait for the place that is named
    spells: Sequence[tuple[int, int]] = ()  # of its slowest messages: when the place took each, and was done with it

    @property
    def place(self) -> str:
        """The socket that it is about: the first of its endpoints; empty if it has none."""
        return next(iter(self.endpoints), "")


def finding(claim: Claim) -> Finding:
    """The finding of a claim."""
    kind = FINDINGS[claim.code]
    endpoints = list(dict.fromkeys(claim.endpoints))
    severity, advice = claim.severity or kind.severity, claim.advice or kind.advice
    return record_of(Finding, claim.occurrences, claim, severity=severity, advice=advice, endpoints=endpoints)


def by_harm(found: Iterable[Finding]) -> list[Finding]:
    """The most harmful first: by severity, then in the order of the catalogue, then by number."""
    return sorted(found, key=lambda one: (SEVERITIES.index(one.severity), _CODES.index(one.code), -one.count))
