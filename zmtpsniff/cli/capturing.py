"""What commands that capture live traffic have in common: their options, and a source opened as these say."""

import signal
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from zmtpsniff.capture.engines.engine import ENGINES
from zmtpsniff.capture.privileges import NoPrivilegeDropError, drop_privileges
from zmtpsniff.capture.source import CaptureError
from zmtpsniff.cli.options import IntRange, options
from zmtpsniff.cli.saving import make_saver
from zmtpsniff.cli.tshark import plan_tshark

if TYPE_CHECKING:
    from zmtpsniff.capture.live import LiveSource
    from zmtpsniff.net.tls import Tls


def _complete_interface(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    from zmtpsniff.capture.interfaces import interface_names

    return [name for name in interface_names() if name.startswith(incomplete)]


capturing = options(
    click.option(
        "-i", "interfaces", multiple=True, metavar="INTERFACE", shell_complete=_complete_interface,
        help='See zmtpsniff interfaces; "any" for all. Repeatable.',
    ),
    click.option("-f", "capture_filter", default="", metavar="FILTER", help='In libpcap\'s language: "tcp port 5555".'),
    click.option("-a", "autostop", metavar="duration:N", help="Stop after N seconds."),
    click.option(
        "-s", "snaplen", type=IntRange(64, 262_144), default=262_144, metavar="N", help="Octets of each packet."
    ),
    click.option(
        "-B", "buffer_mib", type=IntRange(1), default=64, show_default=True, metavar="MIB", help="Kernel buffer."
    ),
    click.option("-p", "not_promiscuous", is_flag=True, help="Do not put the interface into promiscuous mode."),
    click.option(
        "--engine", type=click.Choice(ENGINES), default="auto", show_default=True,
        help="What captures. auto takes the first that works here, and says so with -v.",
    ),
)  # fmt: skip


class Started(NamedTuple):
    """A capture that has begun."""

    source: "LiveSource"  # the caller closes it
    engine: str  # its name
    tls: "Tls | None"  # what takes out of TLS what is decrypted


def start_capture(options: dict[str, Any]) -> Started:
    """Start the capture that the options of `capturing` ask for; raises click.UsageError, CaptureError."""
    from zmtpsniff.capture.engines.choice import make_engine
    from zmtpsniff.capture.engines.engine import LiveOptions
    from zmtpsniff.capture.live import LiveSource

    if not options["interfaces"]:
        raise click.UsageError("-i INTERFACE: missing; zmtpsniff interfaces lists what there is")
    seconds = _duration(options["autostop"])
    if options["save"] is not None and options["engine"] == "tshark":
        raise click.UsageError("-w: not with --engine tshark, which gives fields, not packets")
    tshark = plan_tshark(options)
    captured = LiveOptions(
        options["interfaces"],
        options["capture_filter"],
        options["snaplen"],
        options["buffer_mib"],
        not options["not_promiscuous"],
        tshark.arguments,
        tshark.decrypted,
    )
    engine = make_engine(options["engine"], captured)
    return Started(LiveSource(engine, seconds=seconds), engine.name, tshark.tls)


def settle_capture(started: Started, options: dict[str, Any]) -> None:
    """Give up the privileges that capturing took, then open what ``-w`` names; a signal ends the capture from now on.

    What is needed afterwards must have been imported: where it is kept may be out of reach now. Raises
    click.UsageError, CaptureError.
    """
    from zmtpsniff.render.text import escape

    source = started.source
    interfaces = options["interfaces"]
    try:
        user = drop_privileges()  # nothing that came from the network has been looked at so far
        source.saver = make_saver(
            options,
            interface=interfaces[0] if len(interfaces) == 1 else "",
            capture_filter=options["capture_filter"],
            snaplen=options["snaplen"],
        )
    except NoPrivilegeDropError as error:
        source.close()
        raise CaptureError(str(error)) from None
    except (CaptureError, click.UsageError):
        source.close()
        raise
    if options["verbosity"]:
        as_user = f" as {user}" if user else ""
        click.echo(f"zmtpsniff: capturing on {escape(', '.join(interfaces))} with {started.engine}{as_user}", err=True)
    # A signal ends the capture, not the program: what has come is given out, and the totals.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:  # as under nohup
            signal.signal(number, lambda *_: source.stop())


def _duration(autostop: str | None) -> float | None:
    """The seconds of ``duration:N``."""
    if autostop is None:
        return None
    kind, _, number = autostop.partition(":")
    if kind != "duration" or not number.replace(".", "", 1).isdigit():
        raise click.UsageError(f"-a {autostop}: must be duration:N, with N in seconds")
    return float(number)
