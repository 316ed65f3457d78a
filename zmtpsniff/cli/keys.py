"""``zmtpsniff keys``."""

import queue
import signal
import time
from typing import TYPE_CHECKING

import click

from zmtpsniff.capture.privileges import NoPrivilegeDropError, drop_privileges
from zmtpsniff.capture.source import CaptureError
from zmtpsniff.cli.help import CommandWithHelp
from zmtpsniff.cli.live_capture import duration_of
from zmtpsniff.cli.options import FilePath, IntRange

if TYPE_CHECKING:
    from collections.abc import Sequence

    from zmtpsniff.host.boxes import UnopenedConnection
    from zmtpsniff.host.client import HelperClient
    from zmtpsniff.host.key_log import KeyLog

_TICK_SECONDS = 0.1
_OWNER_SECONDS = 2.0  # that the helper has for finding the processes of connections


@click.command(cls=CommandWithHelp, short_help="Take the keys of CURVE from programs.")
@click.option(
    "-o", "file", type=FilePath(), metavar="FILE", help="Add the keys to FILE, which only its owner may read."
)
@click.option(
    "--capture",
    "captures",
    type=FilePath(),
    multiple=True,
    metavar="CAPTURE",
    help="Look for the keys of connections that are open already, those in CAPTURE, in the memory of the processes "
    "that have them. Repeatable.",
)
@click.option(
    "--pid",
    "pids",
    type=IntRange(1),
    multiple=True,
    metavar="PID",
    help="With --capture: look in this process. Repeatable.",
)
@click.option(
    "--core",
    "cores",
    type=FilePath(),
    multiple=True,
    metavar="FILE",
    help="With --capture: look in a core dump. Repeatable.",
)
@click.option("-a", "autostop", metavar="duration:N", help="Stop after N seconds.")  # fmt: skip
def keys(
    file: str | None, captures: tuple[str, ...], pids: tuple[int, ...], cores: tuple[str, ...], autostop: str | None
) -> None:
    """Write down the keys of CURVE connections: of those that programs of this machine open from now on, or have open.

    \b
    sudo zmtpsniff keys -o keys.txt
    sudo zmtpsniff keys -o keys.txt --capture capture.pcapng
    sudo zmtpsniff keys -o keys.txt --capture capture.pcapng --pid 4711
    zmtpsniff keys -o keys.txt --capture capture.pcapng --core core.4711
    zmtpsniff read --curve-keys keys.txt capture.pcapng
    """
    seconds = duration_of(autostop)
    for given, option in ((pids, "--pid"), (cores, "--core")):
        if given and not captures:
            raise click.UsageError(f"{option}: needs --capture CAPTURE, whose connections it is about")
    if captures:
        _search(file, captures, pids, cores, seconds)
    else:
        _follow(file, seconds)


def _follow(file: str | None, seconds: float | None) -> None:
    """Write keys as programs make them, until a signal comes or so many seconds have passed."""
    from zmtpsniff.host.client import HelperClient
    from zmtpsniff.host.key_log import KeyLog
    from zmtpsniff.host.uprobes import NoUprobesError

    helper = HelperClient()
    try:
        helper.watch()
        _drop_privileges()
        keys = KeyLog(file)
        try:
            click.echo("zmtpsniff: waiting for CURVE connections", err=True)
            _write(helper, keys, seconds)
        finally:
            keys.close()
    except NoUprobesError as error:
        raise CaptureError(str(error)) from None
    finally:
        helper.close()


def _write(helper: "HelperClient", keys: "KeyLog", seconds: float | None) -> None:
    stops: list[int] = []
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:  # as under nohup
            signal.signal(number, lambda number, _: stops.append(number))
    deadline = None if seconds is None else time.monotonic() + seconds
    while not stops and (deadline is None or time.monotonic() < deadline):
        try:
            reply = helper.replies.get(timeout=_TICK_SECONDS)
        except queue.Empty:
            continue
        if reply is None:
            raise CaptureError("the process with the probes ended: no more keys come")
        if reply["is"] == "key":
            keys.write(reply["line"])
        elif reply["is"] == "told":
            click.echo(f"zmtpsniff: {reply['text']}", err=True)


def _search(
    file: str | None, captures: "Sequence[str]", pids: "Sequence[int]", cores: "Sequence[str]", seconds: float | None
) -> None:
    """Look for the keys of the connections in captures, and write those that are found."""
    from zmtpsniff.host.client import HelperClient
    from zmtpsniff.host.key_log import KeyLog
    from zmtpsniff.host.memory import SEARCH_SECONDS

    seconds = SEARCH_SECONDS if seconds is None else seconds
    helper = HelperClient()
    try:
        _drop_privileges()  # before the first octet of the captures is looked at
        connections = _unopened(captures)
        if not connections:
            raise CaptureError(f"{', '.join(captures)}: no connection under CURVE that needs a key")
        keys = KeyLog(file)
        try:
            found = 0
            if cores:
                found += _search_cores(cores, connections, keys, seconds)
            if pids or not cores:
                found += _search_processes(helper, pids or _owners(helper, connections), connections, keys, seconds)
        finally:
            keys.close()
    finally:
        helper.close()
    click.echo(f"zmtpsniff: {found} keys found, of {len(connections)} connections", err=True)


def _unopened(captures: "Sequence[str]") -> "Sequence[UnopenedConnection]":
    """The connections in captures that wait for a key."""
    from zmtpsniff.capture.files import open_captures
    from zmtpsniff.host.boxes import UnopenedBoxes
    from zmtpsniff.sniffer import Sniffer

    boxes = UnopenedBoxes()
    for events in Sniffer(open_captures(captures)).events():
        boxes.take(events)
    return boxes.connections()


def _owners(helper: "HelperClient", connections: "Sequence[UnopenedConnection]") -> list[int]:
    """The processes of this machine that have the connections."""
    from zmtpsniff.host.sockets import SocketEnds

    for number, each in enumerate(connections):
        helper.find_owners(number, [SocketEnds(each.src, each.dst), SocketEnds(each.dst, each.src)])
    found: dict[int, None] = {}
    deadline = time.monotonic() + _OWNER_SECONDS
    missing = 2 * len(connections)
    while missing and (left := deadline - time.monotonic()) > 0:
        try:
            reply = helper.replies.get(timeout=left)
        except queue.Empty:
            break
        if reply is None:
            break
        if reply["is"] == "owner":
            found[reply["pid"]] = None
            missing -= 1
    if not found:
        raise CaptureError("no process that may be looked at has a connection of the capture: name it with --pid")
    return list(found)


def _search_processes(
    helper: "HelperClient",
    pids: "Sequence[int]",
    connections: "Sequence[UnopenedConnection]",
    keys: "KeyLog",
    seconds: float,
) -> int:
    """Have the helper search; returns how many keys were found."""
    helper.search(0, pids, [each.target for each in connections], seconds)
    found = 0
    while (reply := helper.replies.get()) is not None:
        if reply["is"] == "key":
            keys.write(reply["line"])
            found += 1
        elif reply["is"] == "told":
            click.echo(f"zmtpsniff: {reply['text']}", err=True)
        elif reply["is"] == "searched":
            if not reply["whole"]:
                click.echo(f"zmtpsniff: ended after {seconds:g} s with {reply['octets'] >> 20} MiB", err=True)
            return found
    raise CaptureError("the process that searches ended")


def _search_cores(
    cores: "Sequence[str]", connections: "Sequence[UnopenedConnection]", keys: "KeyLog", seconds: float
) -> int:
    """Search core dumps, which need no rights but those to read them; returns how many keys were found."""
    from dissectors.zmtp.curve_keys import format_key
    from zmtpsniff.host.memory import MemorySearch, SearchError

    found = 0
    search = MemorySearch(
        [each.target for each in connections], seconds, lambda text: click.echo(f"zmtpsniff: {text}", err=True)
    )
    for core in cores:
        try:
            for key in search.core(core):
                keys.write(format_key(key))
                found += 1
        except SearchError as error:
            raise CaptureError(str(error)) from None
    return found


def _drop_privileges() -> None:
    try:
        drop_privileges()
    except NoPrivilegeDropError as error:
        raise CaptureError(str(error)) from None
