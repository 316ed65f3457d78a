"""What a check found, as all report formats take it."""

from collections.abc import Sequence
from typing import NamedTuple

from dissectors.events import Capture
from zmtpsniff.check.model import Outcome


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
    def passed(self) -> bool:
        """Whether no rule failed; warnings do not count."""
        return not any(outcome.failed for outcome in self.outcomes)
