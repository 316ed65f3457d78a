"""``zmtpsniff read``."""

from functools import partial
from typing import TYPE_CHECKING, Literal

import click

from zmtpsniff.cli.help import PACKETS, CommandWithHelp
from zmtpsniff.cli.observers import ObserverSettings, load_observers, otlp_option, start_spans
from zmtpsniff.cli.output import fail_if_overwritten
from zmtpsniff.cli.run import keeping, reads_columns, run
from zmtpsniff.cli.saver_options import (
    SaverSettings,
    fail_if_nothing_to_select,
    fail_if_unsaved,
    make_saver,
    make_selector,
    packets_only,
    saver_options,
)
from zmtpsniff.cli.shared_options import FilePath, Output, capture_record, dissection_options, output_options
from zmtpsniff.cli.tshark_options import TsharkSettings, open_packets, plan_tshark, tshark_options
from zmtpsniff.cli.window_options import WindowSettings, window_options
from zmtpsniff.engine.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from zmtpsniff.capture.source import Source


@click.command(cls=CommandWithHelp, short_help="Dissect capture files.")
@click.argument("captures", nargs=-1, required=True, type=FilePath(), metavar="CAPTURE...")
@PACKETS.option(
    "--engine",
    type=click.Choice(["native", "tshark"]),
    default="native",
    show_default=True,
    help="The reader of headers below TCP. tshark is slow, and knows more tunnels and formats.",
)
@window_options
@tshark_options
@saver_options
@packets_only
@otlp_option
@dissection_options
@output_options
@capture_record
def read(
    captures: "Sequence[str]",
    engine: Literal["native", "tshark"],
    window: WindowSettings,
    tshark: TsharkSettings,
    saver: SaverSettings,
    packets_only: bool,
    otlp: str | None,
    dissection: Settings,
    capture_record: bool,
    output: Output,
) -> None:
    """Dissect capture files, by path or URL: pcap or pcapng, plain or compressed; "-" is standard input.

    Several files are read as one capture, merged by time. No port has to be given: a connection is ZMTP if its
    octets say so.

    \b
    zmtpsniff read capture.pcapng.gz
    zmtpsniff read -T summary monday.pcap tuesday.pcap
    zmtpsniff read -d tcp.port==5555,zmtp started-too-late.pcap
    zmtpsniff read --engine tshark tunnel.snoop
    zmtpsniff read --engine tshark --tls-keys keys.log tls.pcap
    zmtpsniff read -Y 'severity == "error"' -w bad.pcapng capture.pcap
    """
    fail_if_overwritten(captures, output.file)
    fail_if_nothing_to_select(saver, output.passes, packets_only)
    if saver.path is not None and engine != "native":
        raise click.UsageError("-w: not with --engine tshark, which gives fields, not packets; save them with tshark")
    load_observers(ObserverSettings(metrics=None, otlp=otlp))
    plan = plan_tshark(tshark, engine, captures)
    from zmtpsniff.cli.progress_line import make_progress_line
    from zmtpsniff.dissection import Dissection
    from zmtpsniff.engine.sniffer import Collaborators

    captures, dissection = window.select(captures, dissection)
    source = open_packets(captures, plan, dissection.window)
    packets = make_saver(
        saver,
        records=output.file,
        count=dissection.packets,
        inputs=captures,
        comments=source.comments,
        keys=dissection.curve_keys,
    )
    through: Callable[[Source], Source] | None = None
    if packets is not None:
        from zmtpsniff.capture.saver import SavingSource

        through = partial(SavingSource, saver=packets, keys_only=output.passes is not None)
    selector = make_selector(packets, source, output.passes, packets_only)
    collaborators = Collaborators(tls=plan.tls, selector=selector)
    spans = start_spans(otlp, waits=True)
    batches = reads_columns(output) and selector is None and not spans
    settings = keeping(dissection, output)._replace(batches=batches)
    dissected = Dissection(source, settings, collaborators, through=through)
    line = make_progress_line(dissected, output.file)
    run(dissected, dissection, output, line, observers=spans, selector=selector, capture_record=capture_record)
    fail_if_unsaved(packets)
