"""``zmtpsniff report``."""

from pathlib import PurePath
from typing import TYPE_CHECKING

import click

from zmtpsniff.analysis.defaults import PAGE_ROWS
from zmtpsniff.cli.help import COUNTS, OUTPUT, CommandWithHelp
from zmtpsniff.cli.one_clock import open_with_one_clock
from zmtpsniff.cli.output import fail_if_overwritten, open_output
from zmtpsniff.cli.run import pump
from zmtpsniff.cli.shared_options import FilePath, IntRange, display_filter, dissection_options
from zmtpsniff.cli.window_options import WindowSettings, window_options
from zmtpsniff.engine.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Sequence

    from zmtpsniff.filters import Filter
    from zmtpsniff.report.capture_report import CaptureReport

_BODY_OCTETS = 1024  # octets of each body to keep: ladders show a few dozen, and payload dissectors need some more


@click.command(cls=CommandWithHelp, short_help="Write the results as one HTML page.")
@click.argument("captures", nargs=-1, required=True, type=FilePath(), metavar="CAPTURE...")
@OUTPUT.option(
    "-o",
    "file",
    type=FilePath(),
    required=True,
    metavar="FILE",
    help='Write the page to FILE; until complete it is FILE.partial. "-" is standard output.',
)
@click.option("--title", metavar="TEXT", help="The title of the page; by default it names the captures.")
@COUNTS.option(
    "--top", type=IntRange(1, 5000), default=PAGE_ROWS, show_default=True, metavar="N", help="Rows of each table."
)
@window_options
@dissection_options
@display_filter
def report(
    captures: "Sequence[str]",
    file: str,
    title: str | None,
    top: int,
    window: WindowSettings,
    dissection: Settings,
    passes: "Filter | None",
) -> None:
    """Make a page of captures to pass on: what is wrong, who talks to whom, how much, how fast, and conversations.

    It is one file of HTML with charts that fetches nothing; a browser opens it anywhere.

    \b
    zmtpsniff report capture.pcap -o report.html
    zmtpsniff report -Y 'ip.addr == 10.0.0.5' day.pcapng -o host.html
    zmtpsniff report --title Orders monday.pcap tuesday.pcap -o orders.html
    """
    fail_if_overwritten(captures, file)
    from zmtpsniff.analysis.findings import Diagnosis
    from zmtpsniff.engine.sniffer import Collaborators
    from zmtpsniff.report.capture_report import CaptureReport

    captures, dissection = window.select(captures, dissection)
    kept = dissection._replace(limits=dissection.limits._replace(body_octets=_BODY_OCTETS))
    diagnosis = Diagnosis(dissection.decode_as, dissection.reply_seconds)
    made = CaptureReport(top, diagnosis, dissection.limits.show_secrets, passes)
    capture = open_with_one_clock(captures, kept, Collaborators(witness=made.witness, acknowledge=made.acknowledge))
    name = captures[0] if len(captures) == 1 else f"{len(captures)} captures"
    with open_output(file, binary=True) as stream:  # the page says that it is UTF-8, whatever the terminal takes
        pump(capture, dissection, made.take, file)
        stream.write(_page(made, name, len(captures), title).encode())


def _page(made: "CaptureReport", name: str, files: int, title: str | None) -> str:
    from zmtpsniff.report.page import page

    shown = "standard input" if name == "-" else PurePath(name).name
    return page(made.results(shown, files), title or f"ZeroMQ traffic in {shown}", "zmtpsniff report")
