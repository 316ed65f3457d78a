"""``zmtpsniff live``."""

import signal
import sys
import time
from typing import Any

import click

from zmtpsniff.capture.engines import ENGINES
from zmtpsniff.capture.source import CaptureError
from zmtpsniff.cli.options import decoding, output, tshark_options
from zmtpsniff.cli.run import load, make_sniffer, run
from zmtpsniff.cli.saving import fail_if_unsaved, make_saver, saving
from zmtpsniff.privileges import NoPrivilegeDropError, drop_privileges


@click.command(short_help="Dissect live traffic.")
@click.option(
    "-i",
    "interfaces",
    multiple=True,
    metavar="INTERFACE",
    help='See zmtpsniff interfaces; "any" for all. Repeatable.',
)
@click.option("-f", "capture_filter", default="", metavar="FILTER", help='In libpcap\'s language: "tcp port 5555".')
@click.option("-a", "autostop", metavar="duration:N", help="Stop after N seconds.")
@click.option(
    "-s", "snaplen", type=click.IntRange(64, 262_144), default=262_144, metavar="N", help="Octets of each packet."
)
@click.option(
    "-B", "buffer_mib", type=click.IntRange(1), default=64, show_default=True, metavar="MIB", help="Kernel buffer."
)
@click.option("-p", "not_promiscuous", is_flag=True, help="Do not put the interface into promiscuous mode.")
@click.option(
    "--engine",
    type=click.Choice(ENGINES),
    default="auto",
    show_default=True,
    help="What captures: auto takes the first that works here and says so with -v.",
)
@click.option("--status/--no-status", default=None, help="A line with counts; by default on a terminal.")
@tshark_options
@saving
@decoding
@output
def live(interfaces: tuple[str, ...], **options: Any) -> None:  # fmt: skip
    """Dissect traffic while it passes.

    \b
    zmtpsniff live -i lo
    zmtpsniff live -i any -f 'tcp port 5555' -T json | jq -c .frames
    zmtpsniff live -i eth0 -a duration:60 -T summary
    zmtpsniff live -i eth0 -w day.pcapng -b filesize:100000 -b files:10
    """
    from zmtpsniff.capture.engines import LiveOptions, make_engine
    from zmtpsniff.capture.live import LiveSource
    from zmtpsniff.render.text import escape
    from zmtpsniff.status import StatusLine

    if not interfaces:
        raise click.UsageError("-i INTERFACE: missing; zmtpsniff interfaces lists what there is")
    seconds = _duration(options["autostop"])
    if options["save"] is not None and options["engine"] == "tshark":
        raise click.UsageError("-w: not with --engine tshark, which gives fields, not packets")
    captured = LiveOptions(
        interfaces,
        options["capture_filter"],
        options["snaplen"],
        options["buffer_mib"],
        not options["not_promiscuous"],
        _tshark_arguments(options["engine"], options["tshark_options"]),
    )
    load(options["format"])
    engine = make_engine(options["engine"], captured)
    source = LiveSource(engine, seconds=seconds)
    sniffer = make_sniffer(source, options, time.time_ns)
    try:
        user = drop_privileges()  # nothing that came from the network has been looked at so far
        source.saver = make_saver(
            options,
            interface=interfaces[0] if len(interfaces) == 1 else "",
            capture_filter=captured.capture_filter,
            snaplen=captured.snaplen,
        )
    except NoPrivilegeDropError as error:
        source.close()
        raise CaptureError(str(error)) from None
    except (CaptureError, click.UsageError):
        source.close()
        raise
    if options["verbosity"]:
        as_user = f" as {user}" if user else ""
        click.echo(f"zmtpsniff: capturing on {escape(', '.join(interfaces))} with {engine.name}{as_user}", err=True)
    # A signal ends the capture, not the program: what has come is given out, and the totals.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:  # as under nohup
            signal.signal(number, lambda *_: source.stop())
    visible = sys.stderr.isatty() if options["status"] is None else options["status"]
    status = StatusLine(sys.stderr, sniffer, visible)
    try:
        run(sniffer, options, status)
    finally:
        source.close()
        status.erase()
    if source.failure is not None:
        raise CaptureError(source.failure)
    fail_if_unsaved(source.saver)


def _tshark_arguments(engine: str, values: tuple[str, ...]) -> list[str]:
    """The arguments of tshark that ``--tshark-option`` stands for."""
    if not values:
        return []
    if engine != "tshark":
        raise click.UsageError("--tshark-option: only with --engine tshark")
    from zmtpsniff.capture.tshark import parse_option

    try:
        return [argument for value in values for argument in parse_option(value)]
    except ValueError as error:
        raise click.UsageError(f"--tshark-option {error}") from error


def _duration(autostop: str | None) -> float | None:
    """The seconds of ``duration:N``."""
    if autostop is None:
        return None
    kind, _, number = autostop.partition(":")
    if kind != "duration" or not number.replace(".", "", 1).isdigit():
        raise click.UsageError(f"-a {autostop}: must be duration:N, with N in seconds")
    return float(number)
