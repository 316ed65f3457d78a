"""Live captures for commands: the options, and a source opened as these say."""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

import click

from zmtpsniff.capture.engines.engine import ENGINES, EngineName, LiveOptions
from zmtpsniff.capture.privileges import drop_privileges
from zmtpsniff.capture.source import CaptureError
from zmtpsniff.cli.help import PACKETS
from zmtpsniff.cli.output import tell
from zmtpsniff.cli.saver_options import SaverSettings, fail_if_unsaved, make_saver
from zmtpsniff.cli.shared_options import IntRange, OptionGroup
from zmtpsniff.cli.tshark_options import TsharkSettings, plan_tshark
from zmtpsniff.engine.settings import Settings

if TYPE_CHECKING:
    from zmtpsniff.capture.live import LiveSource
    from zmtpsniff.capture.saver import Saver
    from zmtpsniff.net.tls import Tls

_DEFAULTS = LiveOptions(())


def _complete_interface(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    from zmtpsniff.capture.interfaces import interface_names

    return [name for name in interface_names() if name.startswith(incomplete)]


class LiveSettings(NamedTuple):
    """The options of a live capture: interfaces, filter, engine."""

    interfaces: tuple[str, ...]
    capture_filter: str = _DEFAULTS.capture_filter
    autostop: str | None = None  # such as duration:60
    snaplen: int = _DEFAULTS.snaplen  # octets
    buffer_mib: int = _DEFAULTS.buffer_mib
    not_promiscuous: bool = False
    engine: EngineName = "auto"
    pids: tuple[int, ...] = ()  # of processes to trace instead
    command: tuple[str, ...] = ()  # to run and trace instead


live_options = OptionGroup(
    "live",
    LiveSettings,
    PACKETS.option(
        "-i", "interfaces", multiple=True, metavar="INTERFACE", shell_complete=_complete_interface,
        help='See zmtpsniff interfaces; "any" for all. Repeatable.',
    ),
    PACKETS.option(
        "-f", "capture_filter", default=_DEFAULTS.capture_filter, metavar="FILTER",
        help='In libpcap\'s language: "tcp port 5555".',
    ),
    PACKETS.option("-a", "autostop", metavar="duration:N", help="Stop after N seconds."),
    PACKETS.rare(
        "-s", "snaplen", type=IntRange(64, _DEFAULTS.snaplen), default=_DEFAULTS.snaplen, metavar="N",
        help="Octets of each packet.",
    ),
    PACKETS.rare(
        "-B", "buffer_mib", type=IntRange(1), default=_DEFAULTS.buffer_mib, show_default=True, metavar="MIB",
        help="Kernel buffer.",
    ),
    PACKETS.rare("-p", "not_promiscuous", is_flag=True, help="Do not put the interface into promiscuous mode."),
    PACKETS.option(
        "--engine", type=click.Choice(ENGINES), default="auto", show_default=True,
        help="The program or package that captures. auto takes the first that works here; -v names it.",
    ),
)  # fmt: skip


class LiveCapture(NamedTuple):
    """A capture that has begun."""

    source: "LiveSource"
    engine: str  # its name
    tls: "Tls | None"  # takes decrypted octets out of TLS
    saver: "Saver | None" = None  # writes what -w names


@contextmanager
def capturing(
    live: LiveSettings,
    tshark: TsharkSettings,
    saver: SaverSettings,
    dissection: Settings,
    *,
    records: str | None = None,
    verbosity: int = 0,
    saves_all: bool = True,
) -> Iterator[LiveCapture]:
    """Capture, without the privileges that this took. In the end the capture is closed.

    All modules that run meanwhile must have been imported: their files may be out of reach then. ``records`` is the
    file that the output goes to. If ``saves_all``, the saver is given all packets. A signal ends the capture, not the
    program. Raises click.UsageError, CaptureError; the latter also in the end if the capture or its saver failed.
    """
    started = _start(live, tshark, saver)
    source = started.source
    try:
        user = drop_privileges()  # nothing that came from the network has been looked at so far
        opened = make_saver(
            saver,
            records=records,
            count=dissection.packets,
            interface=live.interfaces[0] if len(live.interfaces) == 1 else "",
            capture_filter=live.capture_filter,
            snaplen=live.snaplen,
            keys=dissection.curve_keys,
            more_keys=dissection.host_keys,
        )
        end_with_signals(source.stop)
        if verbosity:
            names = " ".join(live.command) or ", ".join([*live.interfaces, *map(str, live.pids)])
            tell(f"capturing on {names} with {started.engine}{f' as {user}' if user else ''}")
        if saves_all:
            source.saver = opened
        yield started._replace(saver=opened)
    finally:
        source.close()
    if source.said:
        tell(source.said)
    if source.failure is not None:  # what was seen until then is told
        raise CaptureError(source.failure)
    fail_if_unsaved(opened)


def _start(live: LiveSettings, tshark: TsharkSettings, saver: SaverSettings) -> LiveCapture:
    """Start a capture. The options of ``saver`` must be possible with it."""
    from zmtpsniff.capture.engines.choice import make_engine
    from zmtpsniff.capture.live import LiveSource

    if live.pids or live.command:
        return _trace(live)
    if not live.interfaces:
        raise click.UsageError("-i INTERFACE: missing; zmtpsniff interfaces lists what there is")
    seconds = duration_of(live.autostop)
    if saver.path is not None and live.engine == "tshark":
        raise click.UsageError("-w: not with --engine tshark, which gives fields, not packets")
    plan = plan_tshark(tshark, live.engine)
    options = LiveOptions(
        live.interfaces,
        live.capture_filter,
        live.snaplen,
        live.buffer_mib,
        not live.not_promiscuous,
        plan.arguments,
        plan.decrypted,
    )
    engine = make_engine(live.engine, options)
    return LiveCapture(LiveSource(engine, seconds=seconds), engine.name, plan.tls)


def _trace(live: LiveSettings) -> LiveCapture:
    """Start a capture of all octets that programs send and receive on their sockets."""
    from zmtpsniff.capture.engines.strace import StraceEngine
    from zmtpsniff.capture.live import LiveSource

    given = "-- COMMAND" if live.command else "--pid"
    if live.pids and live.command:
        raise click.UsageError("--pid: not with a command")
    for is_given, option in ((live.interfaces, "-i"), (live.capture_filter, "-f"), (live.engine != "auto", "--engine")):
        if is_given:
            raise click.UsageError(f"{option}: not with {given}, where strace captures")
    seconds = duration_of(live.autostop)
    engine = StraceEngine(live.command, live.pids)
    if live.command:
        drop_privileges()  # the command is its user's
        end_with_signals(engine.stop)  # from before its start: if a signal ended us, nobody would end the command
    engine.start()
    return LiveCapture(LiveSource(engine, seconds=seconds), engine.name, None)


def end_with_signals(stop: Callable[[], None]) -> None:
    """A signal ends the capture, not the program: the packets so far and the totals are still given out."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:  # as under nohup
            signal.signal(number, lambda *_: stop())


def duration_of(autostop: str | None) -> float | None:
    """The seconds of ``duration:N``."""
    if autostop is None:
        return None
    kind, _, number = autostop.partition(":")
    if kind != "duration" or not number.replace(".", "", 1).isdigit():
        raise click.UsageError(f"-a {autostop}: must be duration:N, with N in seconds")
    return float(number)
