"""``zmtpsniff keys``."""

import os
import queue
import stat
import time
from itertools import chain
from typing import TYPE_CHECKING, Any

import click

from zmtpsniff.capture.privileges import drop_privileges
from zmtpsniff.capture.source import CaptureError
from zmtpsniff.cli.help import OUTPUT, PACKETS, CommandWithHelp
from zmtpsniff.cli.live_capture import duration_of, end_with_signals
from zmtpsniff.cli.live_host import need_sodium
from zmtpsniff.cli.output import tell
from zmtpsniff.cli.shared_options import FilePath, IntRange, curve_key_files, read_curve_keys
from zmtpsniff.errors import naming

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Sequence

    from dissectors.zmtp.curve_keys import Key
    from zmtpsniff.host.boxes import UnopenedConnection
    from zmtpsniff.host.client import HelperClient

_OWNER_SECONDS = 1.0  # that the helper has for finding the processes of connections


@click.command(cls=CommandWithHelp, short_help="Take CURVE keys from running programs.")
@OUTPUT.option(
    "-o", "file", type=FilePath(), metavar="FILE", help="Add the keys to FILE, which only its owner may read."
)
@click.option(
    "--capture",
    "captures",
    type=FilePath(),
    multiple=True,
    metavar="CAPTURE",
    help="Search the memory of programs for the keys of the connections in CAPTURE, which are open already. "
    "Repeatable.",
)
@PACKETS.option(
    "--pid",
    "pids",
    type=IntRange(1),
    multiple=True,
    metavar="PID",
    help="With --capture: search this process. Repeatable.",
)
@click.option(
    "--core",
    "cores",
    type=FilePath(),
    multiple=True,
    metavar="FILE",
    help="With --capture: search a core dump. Repeatable.",
)
@click.option(
    "--into",
    type=FilePath(),
    metavar="CAPTURE",
    help="Put the keys into CAPTURE, a pcapng file with their connections. Then only its owner may read it.",
)
@curve_key_files
@PACKETS.option("-a", "autostop", metavar="duration:N", help="Stop after N seconds.")
def keys(
    file: str | None,
    captures: tuple[str, ...],
    pids: tuple[int, ...],
    cores: tuple[str, ...],
    into: str | None,
    curve_keys: tuple[str, ...],
    autostop: str | None,
) -> None:
    """Write down the keys of CURVE connections: of those that programs of this machine open from now on, or have open.

    \b
    sudo zmtpsniff keys -o keys.txt
    sudo zmtpsniff keys -o keys.txt --capture capture.pcapng
    sudo zmtpsniff keys -o keys.txt --capture capture.pcapng --pid 4711
    zmtpsniff keys -o keys.txt --capture capture.pcapng --core core.4711
    zmtpsniff keys --into capture.pcapng --curve-keys keys.txt
    """
    seconds = duration_of(autostop)
    if into is not None and (file is not None or captures):
        raise click.UsageError("--into: not with -o or --capture, since it names the capture and where the keys go")
    if curve_keys and into is None:
        raise click.UsageError("--curve-keys: only with --into CAPTURE, which these keys go into")
    for given, option in ((pids, "--pid"), (cores, "--core")):
        if given and not captures and into is None:
            raise click.UsageError(f"{option}: needs --capture CAPTURE, which has the connections")
        if given and curve_keys:
            raise click.UsageError(f"{option}: not with --curve-keys, which are keys already")
    if into is not None and curve_keys:
        _put(into, read_curve_keys(curve_keys))
        return
    searched = captures if into is None else (into,)
    helper = _start_helper(watches=not searched)
    try:
        lines = _search(helper, searched, pids, cores, seconds) if searched else _follow(helper, seconds)
        if into is None:
            _write(file, lines)
        else:
            from dissectors.zmtp.curve_keys import parse_key

            _put(into, [key for key in map(parse_key, lines) if key is not None])
    finally:
        helper.close()


def _start_helper(*, watches: bool) -> "HelperClient":
    """Start the helper, with its probes if it ``watches``, and give up the privileges that it keeps."""
    need_sodium()
    from zmtpsniff.host.client import HelperClient
    from zmtpsniff.host.uprobes import NoUprobesError

    helper = HelperClient()
    try:
        if watches:
            helper.watch()
        drop_privileges()
    except (NoUprobesError, CaptureError) as error:
        helper.close()
        raise CaptureError(str(error)) from None
    return helper


def _follow(helper: "HelperClient", seconds: float | None) -> "Iterator[str]":
    """Yield keys as programs make them, until a signal comes or so many seconds have passed."""
    end_with_signals(lambda: helper.replies.put({"is": "stopped"}))
    tell("waiting for CURVE connections")
    deadline = None if seconds is None else time.monotonic() + seconds
    yield from _keys(helper, "stopped", deadline)


def _keys(
    helper: "HelperClient", last: str, deadline: float | None = None
) -> "Generator[str, None, dict[str, Any] | None]":
    """Yield keys as the helper tells them, until its reply ``last``, which is returned, or the deadline."""
    while True:
        try:
            reply = helper.replies.get(timeout=None if deadline is None else max(0.0, deadline - time.monotonic()))
        except queue.Empty:
            return None
        if reply is None:
            raise CaptureError("the process that looks for keys ended: no more keys come")
        if reply["is"] == "key":
            yield reply["line"]
        elif reply["is"] == "told":
            tell(reply["text"])
        elif reply["is"] == last:
            return reply


def _search(
    helper: "HelperClient",
    captures: "Sequence[str]",
    pids: "Sequence[int]",
    cores: "Sequence[str]",
    seconds: float | None,
) -> "Iterator[str]":
    """Look for the keys of the connections in captures; yields those that are found as lines of a key file."""
    from zmtpsniff.host.memory_keys import SEARCH_SECONDS
    from zmtpsniff.words.counts import plural

    seconds = SEARCH_SECONDS if seconds is None else seconds
    connections = _unopened(captures)
    if not connections:
        raise CaptureError(f"{', '.join(captures)}: no connection under CURVE that needs a key")
    found = 0
    searches = [_search_cores(cores, connections, seconds)] if cores else []
    if pids or not cores:
        searches.append(_search_processes(helper, pids or _owners(helper, connections), connections, seconds))
    for line in chain.from_iterable(searches):
        found += 1
        yield line
    tell(f"{plural(found, 'key')} found, of {plural(len(connections), 'connection')}")


def _write(file: str | None, lines: "Iterator[str]") -> None:
    """Add lines to a file of keys as they come; only its owner may read it. Raises CaptureError."""
    if file is None or file == "-":
        keys = os.dup(1)
    else:
        with naming(file, CaptureError):
            keys = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
            if stat.S_ISREG(os.fstat(keys).st_mode):
                os.fchmod(keys, 0o600)  # before a key is in it, if others could read it so far
    try:
        for line in lines:
            os.write(keys, f"{line}\n".encode())  # at once: whoever follows the file sees it whole
    finally:
        os.close(keys)


def _put(capture: str, keys: "Sequence[Key]") -> None:
    """Put keys into a capture, but for those that certainly belong to other connections."""
    from dissectors.zmtp.curve_keys import SharedKey, format_key
    from zmtpsniff.capture.key_block import put_keys
    from zmtpsniff.words.counts import plural

    clients = {each.client_key for each in _unopened([capture])} | {None}
    fitting = [format_key(key) for key in keys if not isinstance(key, SharedKey) or key.client in clients]
    if not fitting:
        raise CaptureError(f"{capture}: none of the keys belongs to a connection in it")
    put_keys(capture, fitting)
    tell(f"{plural(len(fitting), 'key')} put into {capture}")


def _unopened(captures: "Sequence[str]") -> "Sequence[UnopenedConnection]":
    """The connections in captures that wait for a key."""
    from zmtpsniff.dissection import open_files
    from zmtpsniff.engine.settings import Settings
    from zmtpsniff.host.boxes import UnopenedBoxes

    boxes = UnopenedBoxes()
    for events in open_files(captures, Settings(patterns=False, payload=False)).batches():
        boxes.take(events)
    return boxes.connections()


def _owners(helper: "HelperClient", connections: "Sequence[UnopenedConnection]") -> list[int]:
    """The processes of this machine that have the connections."""
    from zmtpsniff.host.kernel_sockets import SocketEnds

    for place, each in enumerate(connections):
        helper.find_owners(place, [SocketEnds(each.src, each.dst), SocketEnds(each.dst, each.src)])
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
        raise CaptureError("found no process that has a connection of the capture: name it with --pid")
    return list(found)


def _search_processes(
    helper: "HelperClient",
    pids: "Sequence[int]",
    connections: "Sequence[UnopenedConnection]",
    seconds: float,
) -> "Iterator[str]":
    """Have the helper search processes; yields the keys that it finds."""
    helper.search(0, pids, [each.target for each in connections], seconds)
    reply = yield from _keys(helper, "searched")
    if reply is not None and not reply["whole"]:
        tell(f"the search ended after {seconds:g} s; it read {reply['octets'] >> 20} MiB")


def _search_cores(
    cores: "Sequence[str]", connections: "Sequence[UnopenedConnection]", seconds: float
) -> "Iterator[str]":
    """Search core dumps, which needs no rights but those to read them; yields the keys that are in them."""
    from dissectors.zmtp.curve_keys import format_key
    from zmtpsniff.host.memory_keys import MemorySearch, SearchError

    search = MemorySearch([each.target for each in connections], seconds, tell)
    for core in cores:
        try:
            yield from map(format_key, search.core(core))
        except SearchError as error:
            raise CaptureError(str(error)) from None
