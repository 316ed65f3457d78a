"""``zmtpsniff read``."""

import os
from typing import TYPE_CHECKING, Any

import click

from zmtpsniff.cli.help import Command
from zmtpsniff.cli.options import File, decoding, output
from zmtpsniff.cli.run import make_sniffer, run
from zmtpsniff.cli.saving import fail_if_unsaved, make_saver, saving
from zmtpsniff.cli.tshark import Tshark, plan_tshark, tshark_options

if TYPE_CHECKING:
    from zmtpsniff.capture.source import Source


@click.command(cls=Command, short_help="Dissect capture files.")
@click.argument("captures", nargs=-1, required=True, type=File(), metavar="CAPTURE...")
@click.option(
    "--engine",
    type=click.Choice(["native", "tshark"]),
    default="native",
    show_default=True,
    help="What takes packets apart below TCP. tshark, slowly, knows more tunnels and formats.",
)
@tshark_options
@saving
@decoding
@output
def read(captures: tuple[str, ...], **options: Any) -> None:
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
    """
    target = options["output"]
    if target is not None and any(os.path.exists(name) and _is_same(name, target) for name in captures):
        raise click.UsageError(f"-o {target}: this is one of the captures to read")
    if options["save"] is not None and options["engine"] != "native":
        raise click.UsageError("-w: not with --engine tshark, which gives fields, not packets; save them with tshark")
    tshark = plan_tshark(options, captures)
    source = _open(captures, tshark)
    saver = make_saver(options, inputs=captures, comments=source.comments)
    if saver is not None:
        from zmtpsniff.capture.saver import SavingSource

        source = SavingSource(source, saver)
    run(make_sniffer(source, options, tls=tshark.tls), options)
    fail_if_unsaved(saver)


def _open(captures: tuple[str, ...], tshark: Tshark) -> "Source":
    if tshark.tls is None:
        from zmtpsniff.capture.files import open_captures

        return open_captures(captures)
    from zmtpsniff.capture.tshark import open_with_tshark

    return open_with_tshark(captures, tshark.arguments, tshark.decrypted)


def _is_same(name: str, other: str) -> bool:
    return os.path.exists(other) and os.path.samefile(name, other)
