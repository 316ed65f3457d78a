"""What a check found, as all report formats take it."""

from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple, get_args

from dissectors.events import Capture
from zmtpsniff.check.model import Outcome

Format = Literal["text", "junit", "sarif", "github", "json"]
FORMATS: tuple[Format, ...] = get_args(Format)


class Report(NamedTuple):
    """The outcomes of a check, and what was checked."""

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


def make_report(output: Format) -> Callable[[Report], str]:
    """The function that writes a report in a format; each is imported when it is asked for."""
    if output == "text":
        from zmtpsniff.check.text import text

        return text
    if output == "junit":
        from zmtpsniff.check.junit import junit

        return junit
    if output == "sarif":
        from zmtpsniff.check.sarif import sarif

        return sarif
    if output == "github":
        from zmtpsniff.check.github import github

        return github
    from zmtpsniff.check.json import as_json

    return as_json
