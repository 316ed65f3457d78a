"""``zmtpsniff diagnose``."""

from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import click

from zmtpsniff.cli.files_or_live import CaptureSettings, capture_options, dissecting
from zmtpsniff.cli.help import CHECKS, CommandWithHelp
from zmtpsniff.cli.output import open_output, tell
from zmtpsniff.cli.run import pump_and_write, write_structs
from zmtpsniff.cli.shared_options import Parsed, color, output_file, records_format, utc
from zmtpsniff.cli.window_options import WindowSettings, window_options

if TYPE_CHECKING:
    from zmtpsniff.analysis.findings import Diagnosis
    from zmtpsniff.analysis.findings.numbering import NumberPlace
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


def _number_place(text: str) -> "NumberPlace":
    """The place of a number; raises ValueError."""
    from zmtpsniff.analysis.findings.numbering import NumberPlace
    from zmtpsniff.check.numbers import number_reader

    return NumberPlace(text, number_reader(text))


@click.command(cls=CommandWithHelp, short_help="Find what is wrong, and what to do about it.")
@capture_options("Diagnose")
@window_options
@CHECKS.option(
    "--sequence",
    type=Parsed("place", _number_place),
    metavar="PATH",
    help="Publishers number their messages there: frames[1], frames[1].uint, body.NAME. By default it is found.",
)
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

    dissection, file = settings.capture.dissection, settings.file
    diagnosis = Diagnosis(dissection.decode_as, dissection.reply_seconds, settings.sequence)

    def meet(host: "LocalHost") -> None:
        diagnosis.know_processes(host.process)
        diagnosis.know_queues(host.queues.of)

    with (
        dissecting(
            settings.capture,
            records=file,
            window=settings.window,
            batches=True,
            load=_load_renderer,
            meet=meet,
            witness=diagnosis,
        ) as capture,
        open_output(file, binary=settings.output_format == "json") as stream,
    ):
        pump_and_write(
            capture, dissection, diagnosis.take, lambda: _write(diagnosis, stream, settings), "findings", file
        )
    if settings.sequence is not None and not diagnosis.has_sequence:
        tell(f"--sequence {settings.sequence.name}: no message of a publisher has a number there")


def _load_renderer() -> None:
    """Import what _write() needs: once privileges are given up, where it is kept may be out of reach."""
    import io

    from zmtpsniff.render.findings_text import draw

    draw([], None, io.StringIO(), color="always")
    write_structs(io.BytesIO(), [])


def _write(diagnosis: "Diagnosis", stream: Any, settings: DiagnoseSettings) -> None:
    findings = diagnosis.findings()
    if settings.output_format == "json":
        write_structs(stream, findings if diagnosis.capture is None else [*findings, diagnosis.capture])
    else:
        from zmtpsniff.render.findings_text import draw

        draw(findings, diagnosis.capture, stream, settings.utc, settings.color)
