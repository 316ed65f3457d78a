"""``zmtpsniff diagnose``."""

import time
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import click

from zmtpsniff.capture.source import CaptureError
from zmtpsniff.cli.help import CHECKS, OUTPUT, CommandWithHelp
from zmtpsniff.cli.live_capture import LiveSettings, files_or_live, live_options, settle_capture, start_capture
from zmtpsniff.cli.live_host import tell_sealed
from zmtpsniff.cli.output import PartialOutputError, fail_if_overwritten, open_output
from zmtpsniff.cli.run import load_dissection
from zmtpsniff.cli.saver_options import SaverSettings, fail_if_unsaved, saver_options
from zmtpsniff.cli.shared_options import FilePath, color, dissection_options_without_secrets, output_file, utc
from zmtpsniff.cli.tshark_options import TsharkSettings, open_packets, plan_tshark, tshark_options
from zmtpsniff.engine.settings import Settings

if TYPE_CHECKING:
    from zmtpsniff.analysis.findings import Diagnosis
    from zmtpsniff.capture.live import LiveSource
    from zmtpsniff.cli.progress_line import ProgressLine
    from zmtpsniff.dissection import Dissection
    from zmtpsniff.render.color import Color


class DiagnoseSettings(NamedTuple):
    """What to diagnose, and how to say what was found."""

    captures: tuple[str, ...]
    is_live: bool
    output_format: Literal["text", "json"]
    file: str | None
    utc: bool
    color: "Color"
    live: LiveSettings
    tshark: TsharkSettings
    saver: SaverSettings
    dissection: Settings


@click.command(cls=CommandWithHelp, short_help="Say what is wrong here, and what to do about it.")
@click.argument("captures", nargs=-1, type=FilePath(), metavar="CAPTURE...")
@CHECKS.option("--live", "is_live", is_flag=True, help="Diagnose traffic while it passes. From -i, until -a or Ctrl-C.")
@live_options
@tshark_options
@saver_options
@dissection_options_without_secrets
@OUTPUT.option(
    "-T", "output_format", type=click.Choice(["text", "json"]), default="text", show_default=True,
    help="text: for people; json: JSON Lines.",
)  # fmt: skip
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
    files_or_live(settings.captures, settings.is_live, settings.live, settings.saver)
    if settings.is_live:
        _diagnose_live(settings)
    else:
        _diagnose_files(settings)


def _diagnose_files(settings: DiagnoseSettings) -> None:
    from zmtpsniff.analysis.findings import Diagnosis
    from zmtpsniff.cli.progress_line import make_progress_line
    from zmtpsniff.dissection import Dissection
    from zmtpsniff.engine.sniffer import Collaborators

    fail_if_overwritten(settings.captures, settings.file)
    diagnosis = Diagnosis(settings.dissection.decode_as, settings.dissection.reply_seconds)
    plan = plan_tshark(settings.tshark, settings.live.engine, settings.captures)
    collaborators = Collaborators(tls=plan.tls, witness=diagnosis)
    capture = Dissection(open_packets(settings.captures, plan), settings.dissection, collaborators)
    line = make_progress_line(capture, settings.file)
    with open_output(settings.file, binary=settings.output_format == "json") as stream:
        try:
            _pump(capture, settings.dissection, diagnosis, line)
        except KeyboardInterrupt as interrupt:
            diagnosis.take(capture.finish())
            _write(diagnosis, stream, settings)
            raise PartialOutputError("interrupted: the findings are those of what was read until then") from interrupt
        _write(diagnosis, stream, settings)


def _diagnose_live(settings: DiagnoseSettings) -> None:
    from zmtpsniff.analysis.findings import Diagnosis
    from zmtpsniff.dissection import Dissection
    from zmtpsniff.engine.sniffer import Collaborators

    live, dissection = settings.live, settings.dissection
    dissectors = load_dissection(dissection)
    _load_renderer()
    started = start_capture(live, settings.tshark, settings.saver)
    settle_capture(started, live, settings.saver, records=settings.file, count=dissection.packets, verbosity=0)
    source: LiveSource = started.source
    diagnosis = Diagnosis(dissection.decode_as, dissection.reply_seconds)
    try:
        collaborators = Collaborators(clock=time.time_ns, tls=started.tls, witness=diagnosis, dissectors=dissectors)
        _pump(Dissection(source, dissection, collaborators), dissection, diagnosis, None)
    finally:
        source.close()
    with open_output(settings.file, binary=settings.output_format == "json") as stream:
        _write(diagnosis, stream, settings)
    if source.failure is not None:  # what was seen until then is told
        raise CaptureError(source.failure)
    fail_if_unsaved(source.saver)


def _load_renderer() -> None:
    """Import what _write() needs: once privileges are given up, where it is kept may be out of reach."""
    import io

    from zmtpsniff.render.findings_text import draw
    from zmtpsniff.render.jsonl import JsonlRenderer

    draw([], None, io.StringIO(), color="always")
    JsonlRenderer(io.BytesIO()).write([])


def _pump(capture: "Dissection", settings: "Settings", diagnosis: "Diagnosis", line: "ProgressLine | None") -> None:
    try:
        for events in capture.batches():
            diagnosis.take(events)
            if line is not None:
                line.draw()
    finally:
        if line is not None:
            line.erase()
        tell_sealed(capture, settings)


def _write(diagnosis: "Diagnosis", stream: Any, settings: DiagnoseSettings) -> None:
    findings = diagnosis.findings()
    if settings.output_format == "json":
        from zmtpsniff.render.jsonl import JsonlRenderer

        totals = [] if diagnosis.capture is None else [diagnosis.capture]
        JsonlRenderer(stream).write([*findings, *totals])  # type: ignore[list-item]  # it writes any struct
    else:
        from zmtpsniff.render.findings_text import draw

        draw(findings, diagnosis.capture, stream, settings.utc, settings.color)
