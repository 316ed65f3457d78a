"""``zmtpsniff read``."""

from typing import TYPE_CHECKING, Literal

import click

from zmtpsniff.cli.help import CommandWithHelp
from zmtpsniff.cli.options import FilePath, Output, capture_record, dissection_options, output_options
from zmtpsniff.cli.output import fail_if_overwritten
from zmtpsniff.cli.run import keeping, make_sniffer, run
from zmtpsniff.cli.saver import (
    SaverSettings,
    fail_if_nothing_to_select,
    fail_if_unsaved,
    make_saver,
    packets_only,
    saver_options,
    tell_missing_packets,
)
from zmtpsniff.cli.tshark import TsharkPlan, TsharkSettings, plan_tshark, tshark_options
from zmtpsniff.settings import Settings

if TYPE_CHECKING:
    from zmtpsniff.capture.source import Source
    from zmtpsniff.cli.progress import ProgressLine


@click.command(cls=CommandWithHelp, short_help="Dissect capture files.")
@click.argument("captures", nargs=-1, required=True, type=FilePath(), metavar="CAPTURE...")
@click.option(
    "--engine",
    type=click.Choice(["native", "tshark"]),
    default="native",
    show_default=True,
    help="What takes packets apart below TCP. tshark, slowly, knows more tunnels and formats.",
)
@tshark_options
@saver_options
@packets_only
@dissection_options
@capture_record
@output_options
def read(
    captures: tuple[str, ...],
    engine: Literal["native", "tshark"],
    tshark: TsharkSettings,
    saver: SaverSettings,
    packets_only: bool,
    dissection: Settings,
    capture_record: bool,
    output: Output,
) -> None:
    """Dissect capture files: pcap or pcapng, plain or compressed; "-" is standard input.

    Several files are read as one capture, merged by time. No port has to be given: a connection is ZMTP if its
    octets say so.

    \b
    zmtpsniff read capture.pcapng.gz
    zmtpsniff read -T summary monday.pcap tuesday.pcap
    zmtpsniff read -d tcp.port==5555,zmtp started-too-late.pcap
    zmtpsniff read --engine tshark tunnel.snoop
    zmtpsniff read --engine tshark --tls-keys keys.log tls.pcap
    zmtpsniff read -w all.pcapng monday.pcap tuesday.pcap
    zmtpsniff read -Y 'severity == "error"' -w bad.pcapng capture.pcap
    """
    fail_if_overwritten(captures, output.file)
    fail_if_nothing_to_select(saver, output.passes, packets_only)
    if saver.path is not None and engine != "native":
        raise click.UsageError("-w: not with --engine tshark, which gives fields, not packets; save them with tshark")
    plan = plan_tshark(tshark, engine, captures)
    source, line = _open(captures, plan, output)
    packets = make_saver(
        saver,
        records=output.file,
        count=dissection.count,
        inputs=captures,
        comments=source.comments,
        keys=dissection.curve_keys,
    )
    selector = None
    if packets is not None:
        from zmtpsniff.capture.saver import KeySavingSource, SavingSource

        if output.passes is None:
            source = SavingSource(source, packets)
        else:
            from zmtpsniff.selector import PacketSelector

            source = KeySavingSource(source, packets)
            selector = PacketSelector(packets, source, packets_only=packets_only)
    sniffer = make_sniffer(source, keeping(dissection, output), tls=plan.tls, selector=selector)
    run(sniffer, dissection, output, line, selector=selector, capture_record=capture_record)
    if selector is not None:
        tell_missing_packets(selector)
    fail_if_unsaved(packets)


def _open(captures: tuple[str, ...], plan: TsharkPlan, output: Output) -> "tuple[Source, ProgressLine | None]":
    """The captures, and the line that tells how much of them has been read, None if there is none."""
    if plan.tls is not None:
        from zmtpsniff.capture.tshark import open_with_tshark

        return open_with_tshark(captures, plan.arguments, plan.decrypted), None
    from zmtpsniff.capture.files import open_captures
    from zmtpsniff.cli.progress import make_progress_line

    source = open_captures(captures)
    return source, make_progress_line(source.position, output.file)
