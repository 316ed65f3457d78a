"""Times as people read them."""

import time
from typing import Literal, get_args

from zmtpsniff.words.durations import NS

Times = Literal["absolute", "relative", "delta"]
TIMES: tuple[Times, ...] = get_args(Times)


class Clock:
    """Turns Unix times in nanoseconds into the time of day, local or UTC.

    ``date`` is the date of the time shown last, as in ``2024-02-29``, with the time zone if it is not the local one.
    ``columns`` is the width of a time.
    """

    def __init__(self, utc: bool = False, digits: int = 6) -> None:
        """Show local time, or UTC, with ``digits`` after the seconds (6 or 9)."""
        self._convert = time.gmtime if utc else time.localtime
        self._zone = " UTC" if utc else ""
        self._nanoseconds = digits == 9
        self.columns = 9 + digits
        self._second: int | None = None
        self._start = ""
        self.date = ""

    def time(self, time_ns: int) -> str:
        """The time of day, as in ``12:00:00.123456``."""
        second, rest = divmod(time_ns, NS)
        if second != self._second:  # packets come many to a second
            self._second = second
            self._start = self._format("%H:%M:%S", second)
            self.date = self._format("%Y-%m-%d", second) + self._zone
        return f"{self._start}.{rest:09d}" if self._nanoseconds else f"{self._start}.{rest // 1000:06d}"

    @property
    def begin(self) -> str:
        """The time shown last, up to the fraction of its second."""
        return f"{self._start}."

    def _format(self, layout: str, second: int) -> str:
        try:
            return time.strftime(layout, self._convert(second))
        except (OverflowError, ValueError, OSError):
            return f"@{second}"  # a time that no calendar holds, from a broken capture file


class Stopwatch:
    """Turns Unix times in nanoseconds into the seconds since the first time shown, or since the one before.

    It has the interface of :class:`Clock`, but no date, and no begin that times of a second share.
    """

    date = ""
    begin = None

    def __init__(self, since_last: bool, digits: int = 6) -> None:
        """Count from the time before, or from the first one, with ``digits`` after the seconds (6 or 9)."""
        self._since_last = since_last
        self._digits = digits
        self.columns = 6 + digits
        self._start: int | None = None

    def time(self, time_ns: int) -> str:
        """The seconds, as in ``    0.001250``; negative for a time before the one counted from."""
        span = time_ns - (time_ns if self._start is None else self._start)
        if self._start is None or self._since_last:
            self._start = time_ns
        return seconds(span, self._digits).rjust(self.columns)


def seconds(span_ns: int, digits: int = 6) -> str:
    """A length of time in seconds with 6 or 9 ``digits`` after the point, as in ``0.001250`` or ``-1.000000``."""
    whole, rest = divmod(abs(span_ns), NS)
    text = f"{'-' if span_ns < 0 else ''}{whole}.{rest:09d}"
    return text if digits == 9 else text[:-3]


def make_clock(times: Times, utc: bool, digits: int) -> Clock | Stopwatch:
    """The clock that tells times in one of the ways that a user can choose."""
    return Clock(utc, digits) if times == "absolute" else Stopwatch(times == "delta", digits)
