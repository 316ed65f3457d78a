"""``zmtpsniff live``."""

import sys
import time
from typing import Any

import click

from zmtpsniff.capture.source import CaptureError
from zmtpsniff.cli.capturing import capturing, settle_capture, start_capture
from zmtpsniff.cli.help import Command
from zmtpsniff.cli.options import decoding, output
from zmtpsniff.cli.run import load, make_sniffer, run
from zmtpsniff.cli.saving import fail_if_unsaved, saving
from zmtpsniff.cli.tshark import tshark_options


@click.command(cls=Command, short_help="Dissect live traffic.")
@capturing
@click.option("--status/--no-status", default=None, help="A line with counts; by default on a terminal.")
@tshark_options
@saving
@decoding
@output
def live(**options: Any) -> None:
    """Dissect traffic while it passes.

    \b
    zmtpsniff live -i lo
    zmtpsniff live -i any -f 'tcp port 5555' -T json | jq -c .frames
    zmtpsniff live -i eth0 -a duration:60 -T summary
    zmtpsniff live -i eth0 -w day.pcapng -b filesize:100000 -b files:10
    """
    from zmtpsniff.cli.status import StatusLine

    load(options)
    started = start_capture(options)
    source = started.source
    settle_capture(started, options)
    try:
        # It runs plug-ins, so without the privileges of capturing.
        sniffer = make_sniffer(source, options, time.time_ns, started.tls)
        visible = sys.stderr.isatty() if options["status"] is None else options["status"]
        status = StatusLine(sys.stderr, sniffer, visible)
        try:
            run(sniffer, options, status)
        finally:
            status.erase()
    finally:
        source.close()
    if source.failure is not None:
        raise CaptureError(source.failure)
    fail_if_unsaved(source.saver)
