"""``zmtpsniff check``."""

import io
import os
import time
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TextIO, cast

import click
from click.core import ParameterSource

from zmtpsniff import __version__
from zmtpsniff.check.defaults import FACTOR, SHOWN, TOLERANCE
from zmtpsniff.cli.files_or_live import CaptureSettings, capture_options, dissecting
from zmtpsniff.cli.help import OUTPUT, TASKS, CommandWithHelp
from zmtpsniff.cli.run import pump
from zmtpsniff.cli.shared_options import FilePath, FloatRange, IntRange, color, display_filter, utc

if TYPE_CHECKING:
    from collections.abc import Sequence

    from click.shell_completion import CompletionItem

    from dissectors.events import AnyEvent
    from zmtpsniff.analysis.findings import Diagnosis
    from zmtpsniff.check.check_report import Report
    from zmtpsniff.check.formats import Format
    from zmtpsniff.check.model import Rule
    from zmtpsniff.filters import Filter
    from zmtpsniff.render.color import Color

FORMAT_NAMES = ("text", "junit", "sarif", "github", "json")  # as in check/formats.py, which takes time to import
_ON_ONE_SCREEN = ("text", "github")  # that may follow each other on standard output
_STANDARD_OUTPUT = "-"


class ReportTarget(click.ParamType):  # type: ignore[type-arg]  # generic from click 8.4 on only
    """A value of ``-T``: a format, and the file to write it to."""

    name = "format"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, str]:
        """Take ``FORMAT`` or ``FORMAT=FILE`` apart."""
        if isinstance(value, tuple):
            return value
        output, equals, file = value.partition("=")
        if output not in FORMAT_NAMES:
            self.fail(f"{output!r} is none of {', '.join(FORMAT_NAMES)}", param, ctx)
        if equals and not file:
            self.fail(f"{value}: the name of a file is missing", param, ctx)
        return output, file or _STANDARD_OUTPUT

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> "list[CompletionItem]":
        """The formats; a file behind one is not completed."""
        from click.shell_completion import CompletionItem

        return [CompletionItem(name) for name in FORMAT_NAMES if name.startswith(incomplete)]


def _complete_set(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    from zmtpsniff.check.builtin import SETS

    return [name for name in SETS if name.startswith(incomplete)]


class CheckSettings(NamedTuple):
    """The options of check: captures, rules, and files for reports."""

    policy: str | None  # a file
    include: tuple[str, ...]  # sets of rules
    init: bool
    baseline: bool
    factor: float
    tolerance: float  # percent
    targets: "tuple[tuple[Format, str], ...]"  # formats, each with its file
    file: str | None  # of formats that have none
    show: int  # records of each rule
    strict: bool
    color: "Color"
    passes: "Filter | None"  # None: all
    utc: bool
    verbosity: int
    capture: CaptureSettings


@click.command(cls=CommandWithHelp, short_help="Check traffic against a policy.")
@TASKS.option("--policy", type=FilePath(), metavar="FILE", help="The policy, a TOML file; --init writes one.")
@TASKS.option(
    "--include", multiple=True, metavar="SET", shell_complete=_complete_set,
    help="A set of rules: protocol, secure, complete, modern. Without or beside a policy. Repeatable.",
)  # fmt: skip
@TASKS.option(
    "--init", "init", is_flag=True, help="Write a policy that this traffic passes. It goes to -o or standard output."
)
@TASKS.option(
    "--baseline",
    is_flag=True,
    help="Compare two captures, OLD and NEW, by service. Says what is worse; exit status 1 if anything is.",
)
@TASKS.rare(
    "--factor", type=FloatRange(1, min_open=True), default=FACTOR, show_default=True, metavar="N",
    help="By how much rates and latencies may change (--init).",
)  # fmt: skip
@TASKS.rare(
    "--tolerance", type=FloatRange(0), default=TOLERANCE, show_default=True, metavar="PERCENT",
    help="By how much rates and latencies may be worse (--baseline).",
)  # fmt: skip
@capture_options("Check")
@OUTPUT.option(
    "-T", "--format", "targets", type=ReportTarget(), multiple=True, default=["text"], metavar="FORMAT[=FILE]",
    help="text, junit, sarif, github or json. text is for people, junit JUnit XML, sarif SARIF 2.1.0, github "
    "annotations, json one object. Repeatable.",
)  # fmt: skip
@OUTPUT.option("-o", "file", type=FilePath(), metavar="FILE", help="Write to FILE, unless -T names a file.")
@TASKS.rare(
    "--show", type=IntRange(0, 10_000), default=SHOWN, show_default=True, metavar="N",
    help="Offending records to show of each rule.",
)  # fmt: skip
@OUTPUT.option(
    "--strict", is_flag=True, help="Rules that cannot be checked fail, too: the capture lacks what they ask for."
)
@display_filter
@utc
@color
@OUTPUT.option("-v", "verbosity", count=True, help="With --live, name the engine that captures.")
@click.pass_context
def check(context: click.Context, /, **options: Any) -> None:
    """Hold traffic against a policy: exit status 0 if it passes, 1 if it fails.

    \b
    zmtpsniff check capture.pcap --include protocol --include secure -T github
    sudo zmtpsniff check --live -i lo -a duration:30 --policy policy.toml
    zmtpsniff check --init capture.pcap -o policy.toml
    zmtpsniff check --baseline before.pcap after.pcap
    """
    settings = CheckSettings(**options)
    _fail_on_contradiction(settings)
    for option, mode in (("factor", "init"), ("tolerance", "baseline")):
        if context.get_parameter_source(option) is not ParameterSource.DEFAULT and not getattr(settings, mode):
            raise click.UsageError(f"--{option}: only with --{mode}")
    if settings.init:
        _write_policy(settings)
        return
    passed = _write_reports(_compare(settings), settings) if settings.baseline else _check(_rules(settings), settings)
    if not passed:
        context.exit(1)


def _fail_on_contradiction(settings: CheckSettings) -> None:
    """Raise click.UsageError for options that do not go together."""
    given = {"--init": settings.init, "--baseline": settings.baseline, "--live": settings.capture.is_live}
    modes = [name for name, is_given in given.items() if is_given]
    if len(modes) > 1:
        raise click.UsageError(f"{' and '.join(modes)}: one of them only")
    settings.capture.fail_on_contradiction()
    _fail_on_targets(settings)
    if settings.baseline and len(settings.capture.captures) != 2:
        raise click.UsageError(f"--baseline: needs two captures, OLD and NEW, not {len(settings.capture.captures)}")
    if settings.init or settings.baseline:
        if settings.policy is not None or settings.include or settings.passes is not None:
            raise click.UsageError(f"{modes[0]}: takes no --policy, no --include and no -Y")
        return
    if settings.policy is None and not settings.include:
        raise click.UsageError(
            "nothing to check: give --policy FILE or --include SET; --init writes a policy to begin with"
        )


def _fail_on_targets(settings: CheckSettings) -> None:
    """Raise click.UsageError if a report would overwrite what is read, or another report."""
    read = (*settings.capture.captures, settings.policy)
    inputs = [name for name in read if name is not None and os.path.exists(name)]
    taken: dict[str, str] = {}
    for output, file in settings.targets:
        name = settings.file or file if file == _STANDARD_OUTPUT else file
        if os.path.exists(name) and any(os.path.samefile(name, other) for other in inputs):
            raise click.UsageError(f"-T {output}: {name} is one of the files to read")
        other = taken.setdefault(os.path.realpath(name) if name != _STANDARD_OUTPUT else name, output)
        lines = name == _STANDARD_OUTPUT and {output, other} == set(_ON_ONE_SCREEN)
        if (other is not output and not lines) or list(settings.targets).count((output, file)) > 1:
            raise click.UsageError(f"-T {output}: goes to the same place as {other}; give it a file: -T {output}=FILE")


def _rules(settings: CheckSettings) -> "list[Rule]":
    """All rules asked for, each once. Raises PolicyError."""
    from zmtpsniff.check.policy import PolicyError, built_in, fail_if_twice, read_policy

    try:
        rules = built_in(settings.include)
    except PolicyError as error:
        raise click.UsageError(f"--include: {error}") from error
    if settings.policy is not None:
        given = read_policy(settings.policy)
        rules = [rule for rule in rules if rule not in given] + given
        fail_if_twice(rules)
    if not settings.capture.dissection.patterns and any(rule.needs_patterns for rule in rules):
        raise click.UsageError("--no-patterns: the policy has a rule that needs them, such as one on latency")
    return rules


def _check(rules: "list[Rule]", settings: CheckSettings) -> bool:
    """Hold captures, or what passes, against rules, and write the reports; returns whether all passed."""
    from zmtpsniff.capture.files import open_captures
    from zmtpsniff.check.check_report import Report
    from zmtpsniff.check.rules import Check
    from zmtpsniff.cli.capture_places import Places

    capture, diagnosis = settings.capture, _diagnosis(rules, settings)
    several = open_captures(capture.captures) if len(capture.captures) > 1 else None
    place_of = None if several is None else Places(several).of
    trial = Check(rules, settings.show, settings.utc, place_of, settings.passes, diagnosis)
    started = time.monotonic()
    with dissecting(
        capture,
        records=settings.file,
        verbosity=settings.verbosity,
        load=partial(_load_formats, settings),
        source=several,
        witness=diagnosis,
    ) as dissection:
        pump(dissection, capture.dissection, trial.take, settings.file)
        outcomes = trial.finish()
        subject = ", ".join(capture.captures) or f"live traffic on {', '.join(capture.live.interfaces)}"
        seconds = time.monotonic() - started
        begun_ns = trial.span.start_ns
        report = Report(outcomes, capture.captures, subject, __version__, trial.totals, begun_ns, seconds)
        return _write_reports(report, settings)


def _load_formats(settings: CheckSettings) -> None:
    """Import what writes the reports."""
    from zmtpsniff.check.formats import make_report
    from zmtpsniff.render.palette import make_palette

    for output, _ in settings.targets:
        make_report(output)
    make_palette(io.StringIO(), "always")


def _diagnosis(rules: "list[Rule]", settings: CheckSettings) -> "Diagnosis | None":
    """The diagnosis for rules on findings, None if there are no such rules."""
    if not any(rule.kind == "no_findings" for rule in rules):
        return None
    from zmtpsniff.analysis.findings import Diagnosis

    return Diagnosis(settings.capture.dissection.decode_as, settings.capture.dissection.reply_seconds)


def _write_policy(settings: CheckSettings) -> None:
    """Look at the captures and write what they are like as a policy."""
    from zmtpsniff.check.builtin import SETS
    from zmtpsniff.check.init import policy_text
    from zmtpsniff.check.rules import Check
    from zmtpsniff.check.services import Services
    from zmtpsniff.cli.output import open_output
    from zmtpsniff.dissection import open_files

    services = Services()
    trial = Check([rule for rules in SETS.values() for rule in rules], 0)

    def take(events: "Sequence[AnyEvent]") -> None:
        trial.take(events)
        services.take(events)

    captures, dissection = settings.capture.captures, settings.capture.dissection
    pump(open_files(captures, dissection), dissection, take, settings.file)
    outcomes = trial.finish()
    left_out = {outcome.rule.set_name for outcome in outcomes if not outcome.passed}
    sets = [name for name in SETS if name not in left_out]
    if not services.services and not any(outcome.failed for outcome in outcomes):
        sets = ["protocol"]  # a policy needs a rule, and whatever comes should keep this one
    names = ", ".join(os.path.basename(name) for name in captures)
    with open_output(settings.file, binary=False) as stream:
        stream.write(policy_text(services, sets, names, settings.factor))


def _compare(settings: CheckSettings) -> "Report":
    """Compare two captures; the totals are those of the new one."""
    from zmtpsniff.check.baseline import compare
    from zmtpsniff.check.check_report import Report
    from zmtpsniff.check.services import Services
    from zmtpsniff.dissection import open_files

    started = time.monotonic()
    captures, dissection = settings.capture.captures, settings.capture.dissection
    every = []
    for name in captures:
        services = Services()
        pump(open_files([name], dissection), dissection, services.take, settings.file)
        every.append(services)
    old, new = every
    outcomes = compare(old, new, settings.tolerance, settings.show)
    subject = f"{captures[1]} compared with {captures[0]}, within {settings.tolerance:g} %"
    seconds = time.monotonic() - started
    return Report(outcomes, captures, subject, __version__, new.totals, new.span.start_ns, seconds)


def _write_reports(report: "Report", settings: CheckSettings) -> bool:
    """Write the report in every format asked for; returns whether all rules passed."""
    from zmtpsniff.check.formats import make_report
    from zmtpsniff.cli.output import open_output
    from zmtpsniff.render.palette import make_palette
    from zmtpsniff.words.text import encodable

    report = report._replace(outcomes=[outcome._replace(strict=settings.strict) for outcome in report.outcomes])
    for output, file in settings.targets:
        name = file if file != _STANDARD_OUTPUT else settings.file
        with open_output(name, binary=False) as stream:
            change = encodable(getattr(stream, "encoding", None))
            palette = make_palette(cast("TextIO", stream), settings.color) if output == "text" else None
            text = make_report(output, palette)(report)
            stream.write(change(text))
    return report.passed
