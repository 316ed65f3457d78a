"""``zmtpsniff check``."""

import io
import os
import time
from typing import TYPE_CHECKING, Any, NamedTuple, TextIO, cast

import click

from zmtpsniff import __version__
from zmtpsniff.capture.source import CaptureError
from zmtpsniff.check.defaults import FACTOR, SHOWN, TOLERANCE
from zmtpsniff.cli.help import CHECKS, OUTPUT, CommandWithHelp
from zmtpsniff.cli.live_capture import LiveSettings, files_or_live, live_options, settle_capture, start_capture
from zmtpsniff.cli.run import load_dissection
from zmtpsniff.cli.saver_options import SaverSettings, fail_if_unsaved, saver_options
from zmtpsniff.cli.shared_options import (
    FilePath,
    FloatRange,
    IntRange,
    color,
    display_filter,
    dissection_options_without_secrets,
    utc,
)
from zmtpsniff.cli.tshark_options import TsharkSettings, tshark_options
from zmtpsniff.engine.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from click.shell_completion import CompletionItem

    from dissectors.events import AnyEvent
    from zmtpsniff.analysis.findings import Diagnosis
    from zmtpsniff.capture.live import LiveSource
    from zmtpsniff.check.formats import Format
    from zmtpsniff.check.model import Rule
    from zmtpsniff.check.report import Report
    from zmtpsniff.check.rules import Check
    from zmtpsniff.check.trials import Place
    from zmtpsniff.cli.shared_options import Filter
    from zmtpsniff.dissection import Dissection
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
    """What to check, against what, and where the reports go."""

    captures: tuple[str, ...]
    policy: str | None  # a file
    include: tuple[str, ...]  # sets of rules
    init: bool
    baseline: bool
    factor: float
    tolerance: float  # percent
    is_live: bool
    targets: "tuple[tuple[Format, str], ...]"  # formats, each with its file
    file: str | None  # of formats that have none
    show: int  # records of each rule
    strict: bool
    color: "Color"
    passes: "Filter | None"  # None: all
    utc: bool
    verbosity: int
    live: LiveSettings
    tshark: TsharkSettings
    saver: SaverSettings
    dissection: Settings  # without secrets: reports go into logs that many can read


@click.command(cls=CommandWithHelp, short_help="Hold traffic against a policy.")
@click.argument("captures", nargs=-1, type=FilePath(), metavar="CAPTURE...")
@CHECKS.option(
    "--policy", type=FilePath(), metavar="FILE", help="The policy, a TOML file: docs/check.md describes its rules."
)
@CHECKS.option(
    "--include", multiple=True, metavar="SET", shell_complete=_complete_set,
    help="A set of rules: protocol, secure, complete, modern. Without or beside a policy. Repeatable.",
)  # fmt: skip
@CHECKS.option(
    "--init", "init", is_flag=True, help="Write a policy that this traffic passes. It goes to -o or standard output."
)
@CHECKS.option(
    "--baseline",
    is_flag=True,
    help="Compare two captures, OLD and NEW, by service. Says what is worse; exit status 1 if anything is.",
)
@CHECKS.rare(
    "--factor", type=FloatRange(1, min_open=True), default=FACTOR, show_default=True, metavar="N",
    help="By how much rates and latencies may change (--init).",
)  # fmt: skip
@CHECKS.rare(
    "--tolerance", type=FloatRange(0), default=TOLERANCE, show_default=True, metavar="PERCENT",
    help="By how much rates and latencies may be worse (--baseline).",
)  # fmt: skip
@CHECKS.option(
    "--live", "is_live", is_flag=True, help="Check traffic while it passes. From -i, until -a, -c or Ctrl-C."
)
@OUTPUT.option(
    "-T", "--format", "targets", type=ReportTarget(), multiple=True, default=["text"], metavar="FORMAT[=FILE]",
    help="text, junit, sarif, github or json. text is for people, junit JUnit XML, sarif SARIF 2.1.0, github "
    "annotations, json one object. Repeatable.",
)  # fmt: skip
@OUTPUT.option("-o", "file", type=FilePath(), metavar="FILE", help="Write to FILE, unless -T names a file.")
@CHECKS.rare(
    "--show", type=IntRange(0, 10_000), default=SHOWN, show_default=True, metavar="N",
    help="Offending records to show of each rule.",
)  # fmt: skip
@OUTPUT.option(
    "--strict", is_flag=True, help="Rules that cannot be checked fail, too: the capture lacks what they ask for."
)
@display_filter
@utc
@color
@OUTPUT.option("-v", "verbosity", count=True, help="Say what captures (--live).")
@live_options
@tshark_options
@saver_options
@dissection_options_without_secrets
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
    if settings.init:
        _write_policy(settings)
        return
    if settings.baseline:
        report, source = _compare(settings), None
    else:
        rules = _rules(settings)
        report, source = _check_live(rules, settings) if settings.is_live else _check_files(rules, settings)
    report = report._replace(outcomes=[outcome._replace(strict=settings.strict) for outcome in report.outcomes])
    _write_reports(report, settings)
    if source is not None:  # what was seen until it failed is in the reports
        if source.failure is not None:
            raise CaptureError(source.failure)
        fail_if_unsaved(source.saver)
    if not report.passed:
        context.exit(1)


def _fail_on_contradiction(settings: CheckSettings) -> None:
    """Raise click.UsageError for options that do not go together."""
    given = {"--init": settings.init, "--baseline": settings.baseline, "--live": settings.is_live}
    modes = [name for name, is_given in given.items() if is_given]
    if len(modes) > 1:
        raise click.UsageError(f"{' and '.join(modes)}: one of them only")
    files_or_live(settings.captures, settings.is_live, settings.live, settings.saver)
    _fail_on_targets(settings)
    if settings.baseline and len(settings.captures) != 2:
        raise click.UsageError(f"--baseline: needs two captures, OLD and NEW, not {len(settings.captures)}")
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
    inputs = [name for name in (*settings.captures, settings.policy) if name is not None and os.path.exists(name)]
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
    """All rules asked for, each once."""
    from zmtpsniff.check.policy import PolicyError, built_in, fail_if_twice, read_policy

    try:
        rules = built_in(settings.include)
    except PolicyError as error:
        raise click.UsageError(f"--include: {error}") from error
    if settings.policy is not None:
        try:
            given = read_policy(settings.policy)
            rules = [rule for rule in rules if rule not in given] + given
            fail_if_twice(rules)
        except PolicyError as error:
            raise click.ClickException(str(error)) from error
    if not settings.dissection.patterns and any(rule.needs_patterns for rule in rules):
        raise click.UsageError("--no-patterns: the policy has a rule that needs them, such as one on latency")
    return rules


def _check_files(rules: "list[Rule]", settings: CheckSettings) -> "tuple[Report, None]":
    from zmtpsniff.check.rules import Check

    diagnosis = _diagnosis(rules, settings)
    capture, place = _open(settings.captures, settings.dissection, diagnosis)
    trial = Check(rules, settings.show, settings.utc, place, settings.passes, diagnosis)
    started = time.monotonic()
    _pump(capture, trial.take)
    return _report(trial, settings.captures, ", ".join(settings.captures), started), None


def _diagnosis(rules: "list[Rule]", settings: CheckSettings) -> "Diagnosis | None":
    """What rules on findings ask, if there are any."""
    if not any(rule.kind == "no_findings" for rule in rules):
        return None
    from zmtpsniff.analysis.findings import Diagnosis

    return Diagnosis(settings.dissection.decode_as, settings.dissection.reply_seconds)


def _open(
    captures: tuple[str, ...], settings: Settings, witness: "Diagnosis | None" = None
) -> "tuple[Dissection, Place | None]":
    """The captures read as one, and what tells which of several has a packet."""
    from zmtpsniff.dissection import Dissection, open_files
    from zmtpsniff.engine.sniffer import Collaborators

    collaborators = Collaborators(witness=witness)

    if len(captures) > 1:
        from zmtpsniff.cli.capture_places import Places

        places = Places(captures)
        return Dissection(places, settings, collaborators), places.of
    return open_files(captures, settings, collaborators), None


def _check_live(rules: "list[Rule]", settings: CheckSettings) -> "tuple[Report, LiveSource]":
    from zmtpsniff.check.formats import make_report
    from zmtpsniff.check.rules import Check
    from zmtpsniff.dissection import Dissection
    from zmtpsniff.engine.sniffer import Collaborators
    from zmtpsniff.render.palette import make_palette

    for output, _ in settings.targets:
        make_report(output)  # imports it, while that can be done
    make_palette(io.StringIO(), "always")
    diagnosis = _diagnosis(rules, settings)
    trial = Check(rules, settings.show, settings.utc, None, settings.passes, diagnosis)
    begun = time.monotonic()
    live, dissection = settings.live, settings.dissection
    dissectors = load_dissection(dissection)
    capture = start_capture(live, settings.tshark, settings.saver)
    settle_capture(
        capture,
        live,
        settings.saver,
        records=settings.file,
        count=dissection.packets,
        verbosity=settings.verbosity,
        keys=dissection.curve_keys,
    )
    try:
        collaborators = Collaborators(clock=time.time_ns, tls=capture.tls, dissectors=dissectors, witness=diagnosis)
        _pump(Dissection(capture.source, dissection, collaborators), trial.take)
    finally:
        capture.source.close()
    subject = f"live traffic on {', '.join(live.interfaces)}"
    return _report(trial, (), subject, begun), capture.source


def _write_policy(settings: CheckSettings) -> None:
    """Look at the captures and write what they are like as a policy."""
    from zmtpsniff.check.builtin import SETS
    from zmtpsniff.check.init import policy_text
    from zmtpsniff.check.rules import Check
    from zmtpsniff.check.services import Services
    from zmtpsniff.cli.output import open_output

    services = Services()
    trial = Check([rule for rules in SETS.values() for rule in rules], 0)

    def take(events: "Sequence[AnyEvent]") -> None:
        trial.take(events)
        services.take(events)

    _pump(_open(settings.captures, settings.dissection)[0], take)
    outcomes = trial.finish()
    left_out = {outcome.rule.set_name for outcome in outcomes if not outcome.passed}
    sets = [name for name in SETS if name not in left_out]
    if not services.services and not any(outcome.failed for outcome in outcomes):
        sets = ["protocol"]  # a policy needs a rule, and whatever comes should keep this one
    names = ", ".join(os.path.basename(name) for name in settings.captures)
    with open_output(settings.file, binary=False) as stream:
        stream.write(policy_text(services, sets, names, settings.factor))


def _compare(settings: CheckSettings) -> "Report":
    """Compare two captures; the totals are those of the new one."""
    from zmtpsniff.check.baseline import compare
    from zmtpsniff.check.report import Report
    from zmtpsniff.check.services import Services
    from zmtpsniff.dissection import open_files

    started = time.monotonic()
    every = []
    for name in settings.captures:
        services = Services()
        _pump(open_files([name], settings.dissection), services.take)
        every.append(services)
    old, new = every
    outcomes = compare(old, new, settings.tolerance, settings.show)
    subject = f"{settings.captures[1]} compared with {settings.captures[0]}, within {settings.tolerance:g} %"
    seconds = time.monotonic() - started
    return Report(outcomes, settings.captures, subject, __version__, new.totals, new.span.start_ns, seconds)


def _pump(capture: "Dissection", take: "Callable[[Sequence[AnyEvent]], None]") -> None:
    for events in capture.batches():
        take(events)


def _report(trial: "Check", captures: tuple[str, ...], subject: str, started: float) -> "Report":
    from zmtpsniff.check.report import Report

    outcomes = trial.finish()
    seconds = time.monotonic() - started
    return Report(outcomes, captures, subject, __version__, trial.totals, trial.span.start_ns, seconds)


def _write_reports(report: "Report", settings: CheckSettings) -> None:
    """Write the report in every format asked for."""
    from zmtpsniff.check.formats import make_report
    from zmtpsniff.cli.output import open_output
    from zmtpsniff.render.palette import make_palette
    from zmtpsniff.words.text import encodable

    for output, file in settings.targets:
        name = file if file != _STANDARD_OUTPUT else settings.file
        with open_output(name, binary=False) as stream:
            change = encodable(getattr(stream, "encoding", None))
            palette = make_palette(cast("TextIO", stream), settings.color) if output == "text" else None
            text = make_report(output, palette)(report)
            stream.write(change(text) if change else text)
