"""The formats of reports, and who writes each."""

from collections.abc import Callable
from typing import Literal, get_args

from zmtpsniff.check.report import Report

Format = Literal["text", "junit", "sarif", "github", "json"]
FORMATS: tuple[Format, ...] = get_args(Format)


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
