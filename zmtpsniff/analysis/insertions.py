"""One way to insert into a batch of events.

A stage takes a batch in order, and finds things with an event: a problem, a notice. Each goes behind its event. A stage
keeps them with their places, and ends its batch with one call of :func:`inserted`. A place is the number of events of
the batch that come before.
"""

from collections.abc import Iterable, Sequence
from operator import itemgetter
from typing import Protocol, TypeVar

from dissectors.events import Problem, Severity
from dissectors.problems import PROBLEMS

_Event = TypeVar("_Event")
_Thing = TypeVar("_Thing")


def inserted(events: Sequence[_Event], found: Iterable[tuple[int, _Thing]]) -> list[_Event | _Thing]:
    """The events with the things that were found, each at its place. Things of one place keep their order."""
    out: list[_Event | _Thing] = []
    begin = 0
    for place, thing in sorted(found, key=itemgetter(0)):
        out += events[begin:place]
        out.append(thing)
        begin = place
    out += events[begin:]
    return out


class Subject(Protocol):
    """The event that a problem is about."""

    @property
    def time_ns(self) -> int: ...  # noqa: D102
    @property
    def packet(self) -> int: ...  # noqa: D102
    @property
    def flow(self) -> int: ...  # noqa: D102
    @property
    def src(self) -> str: ...  # noqa: D102
    @property
    def dst(self) -> str: ...  # noqa: D102


class Problems:
    """The problems that a stage finds. The loop over a batch gives the new ones their place."""

    def __init__(self) -> None:
        """Start without any."""
        self.new: list[Problem] = []

    def report(self, code: str, event: Subject, detail: str, severity: Severity | None = None) -> None:
        """Report a problem of the sender of ``event``. ``severity`` replaces the one of its code."""
        self.report_of_none(code, detail, severity, event)
        problem = self.new[-1]
        problem.flow, problem.src, problem.dst = event.flow, event.src, event.dst

    def report_of_none(
        self, code: str, detail: str, severity: Severity | None = None, event: Subject | None = None
    ) -> None:
        """Report a problem that belongs to no connection with a record, at the place of ``event`` if given."""
        problem = Problem(severity or PROBLEMS[code].severity, code, detail)
        if event is not None:
            problem.time_ns, problem.packet = event.time_ns, event.packet
        self.new.append(problem)

    def placed(self, place: int) -> list[tuple[int, Problem]]:
        """The problems since the last call, which all go to ``place``."""
        new, self.new = self.new, []
        return [(place, problem) for problem in new]
