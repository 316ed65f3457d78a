"""``zmtpsniff keys``."""

import signal
import time
from typing import TYPE_CHECKING

import click

from zmtpsniff.capture.source import CaptureError
from zmtpsniff.cli.help import CommandWithHelp
from zmtpsniff.cli.live_capture import duration_of
from zmtpsniff.cli.options import FilePath

if TYPE_CHECKING:
    from collections.abc import Sequence

    from zmtpsniff.keys.file import KeyFile
    from zmtpsniff.keys.watch import KeyWatch


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
    seconds = duration_of(autostop)
    _follow(file, seconds)


def _follow(name: str | None, seconds: float | None) -> None:
    """Write keys as they are made, until a signal comes or so many seconds have passed."""
    from zmtpsniff.keys.file import KeyFile
    from zmtpsniff.keys.uprobes import NoUprobesError
    from zmtpsniff.keys.watch import KeyWatch

    file = KeyFile(name)
    stops: list[int] = []
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:  # as under nohup
            signal.signal(number, lambda number, _: stops.append(number))
    try:
        watch = KeyWatch()
    except NoUprobesError as error:
        raise CaptureError(str(error)) from None
    try:
        click.echo("zmtpsniff: waiting for CURVE connections", err=True)
        _write(watch, file, stops, seconds)
    finally:
        watch.close()
        file.close()


def _write(watch: "KeyWatch", file: "KeyFile", stops: "Sequence[int]", seconds: float | None) -> None:
    deadline = None if seconds is None else time.monotonic() + seconds
    while not stops and (deadline is None or time.monotonic() < deadline):
        file.write(watch.read())
        for fault in watch.faults():
            click.echo(f"zmtpsniff: {fault}", err=True)
