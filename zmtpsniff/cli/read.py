"""``zmtpsniff read``."""

import os
from typing import Any

import click

from zmtpsniff.cli.options import decoding, output
from zmtpsniff.cli.run import make_sniffer, run


@click.command(short_help="Dissect capture files.")
@click.argument("captures", nargs=-1, required=True, metavar="CAPTURE...")
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
    """
    from zmtpsniff.capture.files import open_captures

    target = options["output"]
    if target is not None and any(os.path.exists(name) and _is_same(name, target) for name in captures):
        raise click.UsageError(f"-o {target}: this is one of the captures to read")
    run(make_sniffer(open_captures(captures), options), options)


def _is_same(name: str, other: str) -> bool:
    return os.path.exists(other) and os.path.samefile(name, other)
