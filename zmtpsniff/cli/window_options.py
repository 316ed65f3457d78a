"""``--last``, ``--from``, ``--until``: the times of the packets that a command looks at."""

import re
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

import click

from zmtpsniff.cli.help import PACKETS
from zmtpsniff.cli.shared_options import OptionGroup, Parsed
from zmtpsniff.engine.settings import Settings
from zmtpsniff.words.durations import unix_ns

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_DURATION = re.compile(r"(\d+(?:\.\d+)?)([smhd]?)")
_CLOCK = re.compile(r"\d\d:\d\d(?::\d\d(?:\.\d+)?)?")


class WindowSettings(NamedTuple):
    """The times that somebody asks for, in nanoseconds; None is open."""

    last_ns: int | None
    begin_ns: int | None
    end_ns: int | None

    def select(self, captures: Sequence[str], settings: Settings) -> tuple[Sequence[str], Settings]:
        """The captures to read, and the settings to read them with; raises CaptureError."""
        if self == ANY_TIME:
            return captures, settings
        from zmtpsniff.engine.older_greetings import select

        selection = select(captures, self.last_ns, self.begin_ns, self.end_ns)
        return selection.names, settings._replace(window=selection.window, greeted=selection.greeted)

    def fail_if_live(self) -> None:
        """Raise click.UsageError for times of what has not passed yet."""
        if self != ANY_TIME:
            raise click.UsageError("--last, --from, --until: only with capture files")


ANY_TIME = WindowSettings(None, None, None)


def _make(last_ns: int | None, begin_ns: int | None, end_ns: int | None) -> WindowSettings:
    if last_ns is not None and begin_ns is not None:
        raise click.UsageError("--last: not with --from")
    if begin_ns is not None and end_ns is not None and begin_ns > end_ns:
        raise click.UsageError("--from: must be before --until")
    return WindowSettings(last_ns, begin_ns, end_ns)


def parse_duration(text: str) -> int:
    """Read ``90``, ``90s``, ``10m``, ``2h``, ``1d``. Returns nanoseconds; ValueError says what is wrong."""
    match = _DURATION.fullmatch(text)
    if match is None or not float(match[1]):
        raise ValueError(f"{text!r} is no length of time, such as 90s, 10m, 2h, 1d")
    return round(float(match[1]) * _UNITS[match[2] or "s"] * 1e9)


def parse_time(text: str) -> int:
    """Read a date, a date and a time of day, or the time of day alone, which is the last such time that has been.

    It is local time if no zone is told. Returns nanoseconds since 1970; ValueError says what is wrong.
    """
    try:
        if _CLOCK.fullmatch(text):
            now = datetime.now()
            time = datetime.combine(now.date(), datetime.fromisoformat(f"1970-01-01T{text}").time())
            time = (time if time <= now else time - timedelta(days=1)).astimezone()
        else:
            time = datetime.fromisoformat(text)
            time = time.astimezone() if time.tzinfo is None else time
    except ValueError:
        raise ValueError(f"{text!r} is no time, such as 03:10, 2026-11-21T03:10 or 2026-11-21T02:10Z") from None
    return unix_ns(time)


window_options = OptionGroup(
    "window",
    _make,
    PACKETS.option(
        "--last", "last_ns", type=Parsed("duration", parse_duration), metavar="TIME",
        help="Only the last 90s, 10m, 2h, 1d of the captures. Before --until, if that is given.",
    ),
    PACKETS.rare(
        "--from", "begin_ns", type=Parsed("time", parse_time), metavar="TIME",
        help="Only packets from then on: 03:10, 2026-11-21T03:10; local time unless a zone is told. Older packets "
        "are passed over; only the socket types of connections that are still open are taken from them.",
    ),
    PACKETS.rare("--until", "end_ns", type=Parsed("time", parse_time), metavar="TIME", help="Only packets up to then."),
)  # fmt: skip
