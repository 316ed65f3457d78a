"""``zmtpsniff diff``."""

import io
import os
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TextIO, cast

import click

from zmtpsniff.check.defaults import SHOWN, TOLERANCE
from zmtpsniff.cli.files_or_live import CaptureSettings, capture_options, dissecting
from zmtpsniff.cli.help import OUTPUT, TASKS, CommandWithHelp
from zmtpsniff.cli.output import fail_if_overwritten, open_output
from zmtpsniff.cli.run import load_dissection, pump, write_structs
from zmtpsniff.cli.shared_options import FloatRange, IntRange, color, output_file, records_format
from zmtpsniff.words.counts import plural
from zmtpsniff.words.durations import about

if TYPE_CHECKING:
    from zmtpsniff.check.services import Services
    from zmtpsniff.render.color import Color

_STANDARD_INPUT = "-"


class DiffSettings(NamedTuple):
    """The options of diff: both captures, and how much may differ."""

    fail: bool
    worse: bool
    tolerance: float  # percent
    show: int
    output_format: Literal["text", "json"]
    file: str | None
    color: "Color"
    verbosity: int
    capture: CaptureSettings


@click.command(cls=CommandWithHelp, short_help="Show what changed between two captures.")
@TASKS.option("--fail", is_flag=True, help="Exit status 1 if there is a difference.")
@TASKS.option("--worse", is_flag=True, help="Only what is worse: not what is new, better, or just other.")
@TASKS.option(
    "--tolerance", type=FloatRange(0), default=TOLERANCE, show_default=True, metavar="PERCENT",
    help="By how much rates, reply times and sizes may differ.",
)  # fmt: skip
@TASKS.rare(
    "--show", type=IntRange(1, 10_000), default=SHOWN, show_default=True, metavar="N",
    help="Differences of one kind to show of each service (-T text).",
)  # fmt: skip
@capture_options("Compare", "BEFORE AFTER")
@records_format("text", "for people")
@output_file
@color
@OUTPUT.rare("-v", "verbosity", count=True, help="With --live, name the engine that captures.")
@click.pass_context
def diff(context: click.Context, /, **options: Any) -> None:
    """Say what changed from BEFORE to AFTER: services, clients, topics, rates, reply times; the worst first.

    Each is a capture, a folder of captures, or a glob in quotes. With --live only BEFORE is given.

    \b
    zmtpsniff diff yesterday.pcap today.pcap
    zmtpsniff diff 'monday/*.pcap' tuesday/
    zmtpsniff diff --worse --fail before.pcap after.pcap
    sudo zmtpsniff diff --live -i lo -a duration:30 before.pcap
    """
    settings = DiffSettings(**options)
    _fail_on_contradiction(settings)
    if _compare(settings) and settings.fail:
        context.exit(1)


def _fail_on_contradiction(settings: DiffSettings) -> None:
    """Raise click.UsageError for options that do not go together."""
    capture, captures = settings.capture, settings.capture.captures
    if capture.is_live and len(captures) != 1:
        raise click.UsageError(f"--live: needs one capture, BEFORE, to compare with, not {len(captures)}")
    if not capture.is_live and len(captures) != 2:
        words = "put a glob in quotes, or name a folder"
        raise click.UsageError(f"needs two captures, BEFORE and AFTER, not {len(captures)}; {words}")
    if captures == (_STANDARD_INPUT, _STANDARD_INPUT):
        raise click.UsageError("-: only one of both captures can be standard input")
    (capture._replace(captures=()) if capture.is_live else capture).fail_on_contradiction()
    for name in captures:
        fail_if_overwritten(_files(name), settings.file)


def _files(name: str) -> tuple[str, ...]:
    """The captures of one side. Raises LocationError for a folder or a glob without files."""
    if name == _STANDARD_INPUT or "://" in name or os.path.isfile(name):
        return (name,)
    from zmtpsniff.capture.file_list import list_files

    return tuple(file.path for file in list_files([name]))


def _compare(settings: DiffSettings) -> bool:
    """Compare, and write the differences; returns whether there are any."""
    from zmtpsniff.check.comparison import compare_services, sum_up, tolerance_of_diff
    from zmtpsniff.check.difference import by_harm
    from zmtpsniff.check.differences_text import DifferencesText, Titles
    from zmtpsniff.check.services import Services

    capture = settings.capture
    files = [capture._replace(captures=_files(name), is_live=False) for name in capture.captures]
    before, after = Services(measures=True), Services(measures=True)
    open_side = partial(dissecting, records=settings.file, verbosity=settings.verbosity, load=_load)
    with ExitStack() as opened:
        if capture.is_live:
            dissectors = load_dissection(capture.dissection)  # for the file, too, while packages can be read
            with open_side(capture._replace(captures=())) as passing:
                # Root is given up. The file is read afterwards: what passes would not wait.
                recorded = opened.enter_context(open_side(files[0], dissectors=dissectors))
                pump(passing, capture.dissection, after.take, settings.file)
        else:
            recorded, changed = (opened.enter_context(open_side(side)) for side in files)
        pump(recorded, capture.dissection, before.take, settings.file)
        if not capture.is_live:
            pump(changed, capture.dissection, after.take, settings.file)
    tolerance = tolerance_of_diff(settings.tolerance)
    compared = compare_services(before, after, tolerance)
    differences = by_harm(one for each in compared for one in each.differences)
    if settings.worse:
        differences = [one for one in differences if one.effect == "worse"]
    comparison = sum_up(before, after, tolerance, compared, differences)
    with open_output(settings.file, binary=settings.output_format == "json") as stream:
        if settings.output_format == "json":
            write_structs(stream, [*differences, comparison])
        else:
            names = [*capture.captures, f"live traffic on {', '.join(capture.live.interfaces)}"]
            titles = Titles(_title(names[0], before), _title(names[1], after))
            DifferencesText(cast("TextIO", stream), settings.color, settings.show).write(
                titles, differences, comparison
            )
    return bool(differences)


def _load() -> None:
    """Import what _compare() needs: once privileges are given up, where it is kept may be out of reach."""
    from zmtpsniff.check.difference import ComparisonSum
    from zmtpsniff.check.differences_text import DifferencesText, Titles

    nothing = ComparisonSum(0, 0, 0, 0, 0, 0, 0, [])
    DifferencesText(io.StringIO(), "always").write(Titles("", ""), [], nothing)
    write_structs(io.BytesIO(), [])


def _title(name: str, services: "Services") -> str:
    totals = services.totals
    if totals is None:
        return name
    flows, messages = plural(totals.zmtp_flows, "ZMTP connection"), plural(totals.messages, "message")
    return f"{name}: {about(totals.duration_ns)}, {flows}, {messages}"
