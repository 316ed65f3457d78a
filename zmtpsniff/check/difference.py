"""The records of ``zmtpsniff diff``: a difference between two captures, and the sum of the comparison."""

from collections.abc import Iterable
from typing import Annotated, Literal, get_args

import msgspec

from dissectors.records import meaning

Aspect = Literal[
    "services", "handshakes", "mechanisms", "problems", "sockets", "clients", "subscriptions", "topics", "latencies",
    "rates", "versions", "sizes"
]  # fmt: skip
Change = Literal["gone", "new", "changed"]
Effect = Literal["worse", "neutral", "better"]
_ASPECTS: tuple[Aspect, ...] = get_args(Aspect)  # the most harmful first
_EFFECTS: tuple[Effect, ...] = get_args(Effect)


class Difference(msgspec.Struct, tag_field="type", tag="difference", omit_defaults=True, gc=False):
    """Something that two captures differ in."""

    effect: Annotated[Effect, meaning("Whether that is worse, better, or neither.")]
    change: Annotated[Change, meaning("What happened to it.")]
    aspect: Annotated[Aspect, meaning("What of a service differs.")]
    service: Annotated[str, meaning("The address and port that is bound: before, or after for a new one.")]
    summary: Annotated[str, meaning("The difference in a sentence.")]
    now_at: Annotated[str | None, meaning("The service's address afterwards, if that is another one.")] = None
    subject: Annotated[
        str | None,
        meaning(
            "What exactly: a topic in quotes, a pair of socket types, the code of a problem, a percentile, or who "
            '"sends" the messages: service or clients.'
        ),
    ] = None
    before: Annotated[int | float | None, meaning("The number in the first capture.")] = None
    after: Annotated[int | float | None, meaning("The number in the second capture.")] = None
    unit: Annotated[str | None, meaning("The unit of both numbers.")] = None
    was: Annotated[list[str], meaning("The values that only the first capture has.")] = []
    now: Annotated[list[str], meaning("The values that only the second capture has.")] = []
    flow: Annotated[int | None, meaning("A connection of the second capture that shows it.")] = None
    time_ns: Annotated[int | None, meaning("When that connection began, since 1970.", "ns")] = None

    @property
    def factor(self) -> float:
        """By how much the number grew or shrank, at least 1; 1 without numbers."""
        if not self.before or not self.after:
            return 1 if self.before == self.after else float("inf")
        return max(self.before / self.after, self.after / self.before)


class ComparisonSum(msgspec.Struct, tag_field="type", tag="comparison", gc=False):
    """The sum of a comparison, its last record."""

    worse: Annotated[int, meaning("How many differences are worse.")]
    neutral: Annotated[int, meaning("How many are neither worse nor better.")]
    better: Annotated[int, meaning("How many are better.")]
    services: Annotated[int, meaning("How many services there are in both captures.")]
    alike: Annotated[int, meaning("How many of these have no difference.")]
    before_seconds: Annotated[float, meaning("How long the first capture lasts.", "s")]
    after_seconds: Annotated[float, meaning("How long the second one lasts.", "s")]
    not_compared: Annotated[list[str], meaning("What could not be compared, and why.")]


def harm(difference: Difference) -> tuple[int, int, float]:
    """The place of a difference in an order that begins with the worst."""
    return _EFFECTS.index(difference.effect), _ASPECTS.index(difference.aspect), -difference.factor


def by_harm(differences: Iterable[Difference]) -> list[Difference]:
    """The worst first; what is alike in that by service."""
    return sorted(differences, key=lambda one: (*harm(one), one.service, one.subject or ""))
