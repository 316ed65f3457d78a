"""The formats of reports, and who writes each."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Literal, get_args

from zmtpsniff.check.check_report import Report

if TYPE_CHECKING:
    from zmtpsniff.render.palette import Palette

Format = Literal["text", "junit", "sarif", "github", "json"]
FORMATS: tuple[Format, ...] = get_args(Format)


def make_report(output: Format, palette: "Palette | None" = None) -> Callable[[Report], str]:
    """The function that writes a report in a format; each is imported when it is asked for.

    ``palette`` has the colours of the stream that the report is for: text has some.
    """
    if output == "text":
        from zmtpsniff.check.text_report import text

        return text if palette is None else lambda report: text(report, palette)
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
