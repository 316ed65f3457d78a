"""``zmtpsniff keys``."""

import queue
import signal
import time
from typing import TYPE_CHECKING

import click

from zmtpsniff.capture.privileges import drop_privileges
from zmtpsniff.capture.source import CaptureError
from zmtpsniff.cli.help import CommandWithHelp
from zmtpsniff.cli.live_capture import duration_of
from zmtpsniff.cli.options import FilePath

if TYPE_CHECKING:
    from zmtpsniff.keys.client import HelperClient
    from zmtpsniff.keys.file import KeyFile

_TICK_SECONDS = 0.1


@click.command(cls=CommandWithHelp, short_help="Take the keys of CURVE from programs.")
@click.option(
    "-o", "file", type=FilePath(), metavar="FILE", help="Add the keys to FILE, which only its owner may read."
)
@click.option("-a", "autostop", metavar="duration:N", help="Stop after N seconds.")
def keys(file: str | None, autostop: str | None) -> None:
    """Write down the keys of CURVE connections as the programs of this machine make them.

    \b
    sudo zmtpsniff keys -o keys.txt
    zmtpsniff read --curve-keys keys.txt capture.pcapng
    """
    from zmtpsniff.keys.client import HelperClient
    from zmtpsniff.keys.file import KeyFile
    from zmtpsniff.keys.uprobes import NoUprobesError

    seconds = duration_of(autostop)
    helper = HelperClient()
    try:
        helper.watch()
        drop_privileges()
        keys = KeyFile(file)
        try:
            click.echo("zmtpsniff: waiting for CURVE connections", err=True)
            _write(helper, keys, seconds)
        finally:
            keys.close()
    except NoUprobesError as error:
        raise CaptureError(str(error)) from None
    finally:
        helper.close()


def _write(helper: "HelperClient", keys: "KeyFile", seconds: float | None) -> None:
    """Write keys as they are made, until a signal comes or so many seconds have passed."""
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
