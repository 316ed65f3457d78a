"""The result of a check, as all report formats take it."""

from collections.abc import Sequence
from typing import NamedTuple, get_args

from dissectors.events import Capture
from zmtpsniff.check.model import Outcome, Verdict


class Report(NamedTuple):
    """The results of a check: the outcome of each rule, and what was checked."""

    outcomes: Sequence[Outcome]
    captures: Sequence[str]  # names of files, as given; none for live traffic
    subject: str  # what was checked, for people
    version: str  # of this program
    totals: Capture | None = None
    start_ns: int | None = None  # of the first record, Unix time
    seconds: float = 0.0  # that the check took

    @property
    def counts(self) -> dict[Verdict, int]:
        """How many rules came out how."""
        verdicts = [outcome.verdict for outcome in self.outcomes]
        return {verdict: verdicts.count(verdict) for verdict in get_args(Verdict)}

    @property
    def passed(self) -> bool:
        """Whether no rule failed; warnings, and rules that are not checked, do not count."""
        return not any(outcome.failed for outcome in self.outcomes)
