"""The parts of a policy: rules, and the bounds that they set."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple, get_args

from dissectors.events import AnyEvent
from zmtpsniff.check.sight import Unseen

if TYPE_CHECKING:
    from zmtpsniff.check.endpoints import EndpointDemand, Limits
    from zmtpsniff.check.numbers import Reader

Filter = Callable[[AnyEvent], bool]
Kind = Literal["expect", "forbid", "latency", "order", "sequence", "no_findings", "endpoint", "baseline"]
Per = Literal["capture", "connection", "second"]
By = Literal["sender", "connection", "topic"]
Level = Literal["error", "warning"]
Verdict = Literal["passed", "failed", "warning", "not checked"]
PATTERNS: dict[str, str] = {"request-reply": "replies", "heartbeats": "PONG commands"}  # and what has a latency there
PER: tuple[Per, ...] = get_args(Per)
BY: tuple[By, ...] = get_args(By)
LEVELS: tuple[Level, ...] = get_args(Level)


class Bounds(NamedTuple):
    """How many records there may be."""

    least: float | None = None
    most: float | None = None
    per: Per = "capture"
    mean: bool = False  # per second: over the capture as a whole, not in each second


_NONE = Bounds()


class Latency(NamedTuple):
    """How long answers may take."""

    pattern: str  # a key of PATTERNS
    limits: "Limits"


class SequenceOf(NamedTuple):
    """Numbers that count messages."""

    text: str  # where they are, as the policy has it
    read: "Reader"
    by: By


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule of a policy."""

    name: str
    kind: Kind
    text: str  # what it says, as the policy has it or in words
    filters: tuple[Filter, ...] = ()
    bounds: Bounds = _NONE
    latency: Latency | None = None
    connections: Filter | None = None  # which connections count, where each is looked at
    level: Level = "error"
    set_name: str | None = None  # the built-in set that it belongs to
    file: str | None = None  # where it stands
    line: int | None = None
    kinds: tuple[type, ...] | None = None  # of records, all that the filters may accept; None if that is not known
    unseen: Unseen | None = None
    endpoint: "EndpointDemand | None" = None  # a demand made of services
    group: str | None = None  # the name of what several rules speak of
    sequence: "SequenceOf | None" = None
    codes: tuple[str, ...] = ()  # of findings
    needs_patterns: bool = False  # it asks what messages mean to each other


class Offence(NamedTuple):
    """A record that breaks a rule, or a difference, on one line that is safe to show."""

    text: str
    packet: int | None = None  # its number as `read` counts them
    flow: int | None = None
    time_ns: int | None = None
    file: str | None = None  # the capture that has the packet, and its number there
    file_packet: int | None = None


class Outcome(NamedTuple):
    """The result of a rule."""

    rule: Rule
    passed: bool
    found: str  # what was found and what was wanted, as a sentence without its full stop
    offences: Sequence[Offence] = ()
    more: int = 0  # offences that are not kept
    checked: bool = True  # False: the capture does not show whether the rule is kept, and ``found`` says why
    strict: bool = False  # a rule that is not checked fails

    @property
    def verdict(self) -> Verdict:
        """The verdict on the rule."""
        if self.passed:
            return "passed"
        if not self.checked and not self.strict:
            return "not checked"
        return "failed" if self.rule.level == "error" else "warning"

    @property
    def failed(self) -> bool:
        """Whether this alone makes the check fail: a warning does not."""
        return self.verdict == "failed"


def not_checked(rule: Rule, reason: str) -> Outcome:
    """The outcome of a rule on what the capture does not show."""
    return Outcome(rule, False, f"not checked: {reason}", checked=False)
