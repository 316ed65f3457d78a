"""The formats of reports, and who writes each."""

from collections.abc import Callable
from pkgutil import resolve_name
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
    name = "as_json" if output == "json" else output
    write: Callable[..., str] = resolve_name(f"zmtpsniff.check.{output}:{name}")
    return write if palette is None else lambda report: write(report, palette)
