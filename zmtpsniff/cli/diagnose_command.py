"""``zmtpsniff diagnose``."""

from functools import partial
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import click

from zmtpsniff.cli.files_or_live import CaptureSettings, capture_options, dissecting
from zmtpsniff.cli.help import TASKS, CommandWithHelp
from zmtpsniff.cli.observers import FindingTeller, end_calls, load_calls, on_finding_option, start_calls
from zmtpsniff.cli.output import open_output, tell
from zmtpsniff.cli.run import pump_and_write, write_structs
from zmtpsniff.cli.shared_options import Parsed, color, output_file, records_format, utc
from zmtpsniff.cli.window_options import WindowSettings, window_options

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from dissectors.events import AnyEvent
    from zmtpsniff.analysis.findings import Diagnosis
    from zmtpsniff.analysis.findings.finding import Finding
    from zmtpsniff.analysis.findings.numbering import NumberPlace
    from zmtpsniff.cli.status_line import StatusLine
    from zmtpsniff.host.local import LocalHost
    from zmtpsniff.render.color import Color


class DiagnoseSettings(NamedTuple):
    """The options of diagnose: captures, and the form of the output."""

    output_format: Literal["text", "json"]
    file: str | None
    utc: bool
    color: "Color"
    capture: CaptureSettings
    window: WindowSettings
    sequence: "NumberPlace | None"
    on_finding: str | None


def _number_place(text: str) -> "NumberPlace":
    """The place of a number; raises ValueError."""
    from zmtpsniff.analysis.findings.numbering import NumberPlace
    from zmtpsniff.check.numbers import number_reader

    return NumberPlace(text, number_reader(text))


@click.command(cls=CommandWithHelp, short_help="Find what is wrong, and what to do about it.")
@capture_options("Diagnose")
@window_options
@TASKS.option(
    "--sequence",
    type=Parsed("place", _number_place),
    metavar="PATH",
    help="Publishers number their messages there: frames[1], frames[1].uint, body.NAME. By default it is found.",
)
@on_finding_option
@records_format("text", "for people")
@output_file
@utc
@color
def diagnose(**options: Any) -> None:
    """Say what is wrong here, how that is known, and what to do about it; the most harmful first.

    \b
    zmtpsniff diagnose capture.pcap
    sudo zmtpsniff diagnose --live -i any -a duration:30
    zmtpsniff diagnose -T json capture.pcap | jq -r .summary
    """
    settings = DiagnoseSettings(**options)
    settings.capture.fail_on_contradiction(settings.file)
    from zmtpsniff.analysis.findings import Diagnosis

    if settings.on_finding is not None and not settings.capture.is_live:
        raise click.UsageError("--on-finding: only with --live")
    dissection, file = settings.capture.dissection, settings.file
    diagnosis = Diagnosis(dissection.decode_as, dissection.reply_seconds, settings.sequence)

    def meet(host: "LocalHost") -> None:
        diagnosis.know_processes(host.owners.process)
        diagnosis.know_queues(host.queues.of)

    with (
        dissecting(
            settings.capture,
            records=file,
            window=settings.window,
            batches=True,
            load=partial(_load, settings.on_finding),
            with_one_clock=True,
            meet=meet,
            witness=diagnosis,
        ) as capture,
        open_output(file, binary=settings.output_format == "json") as stream,
    ):
        take: Callable[[Sequence[AnyEvent]], object] = diagnosis.take
        calls = start_calls(settings.on_finding)
        teller = status = None
        if settings.capture.is_live:
            from zmtpsniff.analysis.findings.finding_watch import FindingWatch
            from zmtpsniff.cli.status_line import make_status_line

            status = make_status_line(capture, file)
            tell_changes = partial(_tell, stream, settings, status)
            teller = FindingTeller(take, FindingWatch(diagnosis.findings), calls, tell_changes)
            take = teller.take

        def write() -> None:
            if teller is not None:
                # For people the findings follow whole.
                teller.finish(tells=settings.output_format == "json")
            _write(diagnosis, stream, settings, capture.is_mostly_sealed)

        try:
            pump_and_write(capture, dissection, take, write, "findings", file, status)
        finally:
            end_calls(calls)
    if settings.sequence is not None and not diagnosis.has_sequence:
        tell(f"--sequence {settings.sequence.name}: no message of a publisher has a number there")


def _tell(stream: Any, settings: DiagnoseSettings, status: "StatusLine", findings: "Sequence[Finding]") -> None:
    """Write the findings that come or go."""
    status.see((), findings)
    if settings.output_format == "json":
        write_structs(stream, findings)
    else:
        from zmtpsniff.render.findings_text import draw_changes

        draw_changes(findings, stream, settings.utc, settings.color)
    stream.flush()


def _load(command: str | None) -> None:
    """Import what is needed while traffic passes: once privileges are given up, it may be out of reach."""
    import io

    import zmtpsniff.analysis.findings.finding_watch
    import zmtpsniff.cli.status_line  # noqa: F401
    from zmtpsniff.render.findings_text import draw

    load_calls(command)
    draw([], None, io.StringIO(), color="always")
    write_structs(io.BytesIO(), [])


def _write(diagnosis: "Diagnosis", stream: Any, settings: DiagnoseSettings, is_mostly_sealed: bool) -> None:
    findings = diagnosis.findings()
    if settings.output_format == "json":
        write_structs(stream, findings if diagnosis.capture is None else [*findings, diagnosis.capture])
    else:
        from zmtpsniff.render.findings_text import draw

        draw(findings, diagnosis.capture, stream, settings.utc, settings.color, is_mostly_sealed=is_mostly_sealed)
