"""``zmtpsniff browse``."""

import os
import signal
import sys
import time
from importlib.util import find_spec
from typing import TYPE_CHECKING

import click

from zmtpsniff.browse.browse_options import THEMES, BrowseOptions
from zmtpsniff.capture.source import CaptureError
from zmtpsniff.cli.help import OUTPUT, CommandWithHelp
from zmtpsniff.cli.live_capture import LiveSettings, capturing, live_options
from zmtpsniff.cli.live_host import pass_keys, started_host
from zmtpsniff.cli.output import tell
from zmtpsniff.cli.run import load_dissection
from zmtpsniff.cli.saver_options import SaverSettings, saver_options
from zmtpsniff.cli.shared_options import DisplayFilter, FilePath, color, live_dissection_options, times_option, utc
from zmtpsniff.cli.tshark_options import TsharkSettings
from zmtpsniff.cli.window_options import WindowSettings, window_options
from zmtpsniff.engine.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from zmtpsniff.browse.reader import CaptureReader
    from zmtpsniff.capture.source import Source
    from zmtpsniff.render.clock import Times
    from zmtpsniff.render.color import Color


@click.command(cls=CommandWithHelp, short_help="Browse a capture or live traffic.")
@click.argument("captures", nargs=-1, type=FilePath(), metavar="CAPTURE...")
@live_options
@window_options
@saver_options
@live_dissection_options
@OUTPUT.option("-Y", "condition", default="", metavar="FILTER", help="Show only records that pass at first.")
@times_option
@utc
@click.option(
    "--theme",
    type=click.Choice(list(THEMES)),
    default="terminal",
    show_default=True,
    help="Colours: those of the terminal, or dark or light ones.",
)
@color
def browse(
    captures: tuple[str, ...],
    live: LiveSettings,
    saver: SaverSettings,
    window: WindowSettings,
    dissection: Settings,
    condition: str,
    times: "Times",
    utc: bool,
    theme: str,
    color: "Color",
) -> None:
    """Browse captures or live traffic: a list of records, the tree of one, its octets.

    Conversations, a ladder, requests through proxies, topics, services and statistics are views; "?" tells the keys.

    \b
    zmtpsniff browse capture.pcap
    zmtpsniff browse -Y 'type == "problem"' monday.pcap tuesday.pcap
    zmtpsniff browse -i any -f 'tcp port 5555'
    sudo zmtpsniff browse -i any --curve-keys auto
    """  # fmt: skip
    if find_spec("textual") is None:
        raise click.ClickException("browse needs textual, which is not installed: pip install 'zmtpsniff[browse]'")
    if bool(captures) == bool(live.interfaces):
        raise click.UsageError("either CAPTURE... or -i INTERFACE: what to look around in")
    if saver.path is not None and not live.interfaces:
        raise click.UsageError("-w: only with -i; P saves packets of files")
    if dissection.host_keys and not live.interfaces:
        raise click.UsageError("--curve-keys auto: only with -i; a file of this name is ./auto")
    if saver.path == "-":
        raise click.UsageError("-w -: the terminal is taken")
    if "-" in captures:
        raise click.UsageError("-: the keys come from standard input; name a file or a pipe: browse <(ssh ...)")
    if not (sys.stdin.isatty() and sys.stdout.isatty() and sys.stderr.isatty()):
        raise click.UsageError("browse needs a terminal on all three streams; zmtpsniff read writes to files")
    if color == "never":
        os.environ["NO_COLOR"] = "1"
    if condition:
        DisplayFilter().convert(condition, None, None)
    from zmtpsniff.words.text import escape

    title = escape(", ".join(captures or live.interfaces))
    options = BrowseOptions(title, bool(live.interfaces), condition, times, utc, theme, dissection.limits.show_secrets)
    dissection = dissection._replace(batches=True)
    if live.interfaces:
        window.fail_if_live()
    if captures:
        _browse_files(*window.select(captures, dissection), options)
    else:
        _browse_interfaces(live, saver, dissection, options)


def _browse_files(captures: "Sequence[str]", settings: Settings, options: BrowseOptions) -> None:
    from zmtpsniff.analysis.findings import Diagnosis
    from zmtpsniff.browse.reader import CaptureReader
    from zmtpsniff.dissection import open_files
    from zmtpsniff.engine.sniffer import Collaborators

    diagnosis = Diagnosis(settings.decode_as, settings.reply_seconds)
    collaborators = Collaborators(witness=diagnosis)
    _run(CaptureReader(lambda tap: open_files(captures, settings, collaborators, through=tap), diagnosis), options)


def _browse_interfaces(live: LiveSettings, saver: SaverSettings, settings: Settings, options: BrowseOptions) -> None:
    from zmtpsniff.analysis.findings import Diagnosis
    from zmtpsniff.browse.reader import CaptureReader
    from zmtpsniff.dissection import Dissection
    from zmtpsniff.engine.sniffer import Collaborators

    dissectors = load_dissection(settings)
    import textual.drivers.linux_driver  # noqa: F401  # which Textual imports late: privileges are gone then

    said: list[str] = []  # once the screen is free again
    try:
        with (
            started_host(with_processes=False, with_keys=settings.host_keys, say=said.append) as host,
            capturing(live, TsharkSettings(), saver, settings) as started,
        ):
            keyed = pass_keys(host, started.source)
            diagnosis = Diagnosis(settings.decode_as, settings.reply_seconds)
            collaborators = Collaborators(
                clock=time.time_ns,
                monotonic=time.monotonic_ns,
                witness=diagnosis,
                host=host,
                dissectors=dissectors,
            )

            def begin(tap: "Callable[[Source], Source]") -> Dissection:
                return Dissection(
                    started.source,
                    settings,
                    collaborators,
                    through=lambda source: tap(source if keyed is None else keyed(source)),
                    stop=started.source.stop,
                )

            _run(CaptureReader(begin, diagnosis), options)
    finally:
        for line in said:
            tell(line)


def _run(reader: "CaptureReader", options: BrowseOptions) -> None:
    from zmtpsniff.browse.app import BrowseApp

    app = BrowseApp(reader, options)
    # Until it takes them itself, they end the program, and not a live capture alone: its terminal may be gone already.
    for number in (signal.SIGHUP, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    app.run()
    if reader.fault is not None:
        raise reader.fault
    if app.return_code:  # Textual has shown why
        raise click.exceptions.Exit(app.return_code)
    if reader.error is not None:
        raise CaptureError(reader.error)
