"""Lengths of time, in nanoseconds and in words."""

from datetime import UTC, datetime, timedelta
from functools import lru_cache

NS = 1_000_000_000  # nanoseconds of a second
_UNITS = ((NS, "s"), (1_000_000, "ms"), (1000, "us"), (1, "ns"))
_LONG_UNITS = ((86_400, "days"), (3600, "h"), (60, "min"))  # and their seconds
_REMEMBERED = 4096  # lengths: many are the same, or are told twice
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LONGEST_SECONDS = 1e9  # 30 years, and still an integer of nanoseconds in 64 bits


def nanoseconds(seconds: float) -> int:
    """A limit of seconds in nanoseconds; ``seconds`` may be infinite."""
    return int(min(seconds, _LONGEST_SECONDS) * NS)


def unix_ns(time: datetime) -> int:
    """Nanoseconds from the Unix epoch to a time that has a zone."""
    return (time - _EPOCH) // timedelta(microseconds=1) * 1000


def parse_time(text: str) -> int:
    """Read ``2026-11-21``, ``2026-11-21 14:00`` or ``2026-11-21T14:00:00+01:00`` (UTC where no zone is told).

    Returns nanoseconds since the Unix epoch. ValueError says what is wrong.
    """
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(f"{text!r} is no time, such as 2026-11-21 or 2026-11-21T14:00:00+01:00") from None
    return unix_ns(time if time.tzinfo is not None else time.replace(tzinfo=UTC))


def duration(length_ns: int) -> str:
    """A length of time to three places, beside its limit: ``0.850 ms``, ``1.250 s``, ``2 min 5 s``."""
    if length_ns < NS - 500:  # else it would be "1000.000 ms"
        return f"{length_ns / 1_000_000:.3f} ms"
    if length_ns < 60 * NS - 500_000:
        return f"{length_ns / NS:.3f} s"
    length_ns += 500_000
    minutes, seconds = divmod(length_ns // NS, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {seconds} s"


@lru_cache(_REMEMBERED)
def brief(length_ns: int) -> str:
    """A length of time with three digits: ``551 ms``, ``1.97 s``, ``2 min 5 s``."""
    if length_ns >= 60 * NS:
        return duration(length_ns)
    # Three digits of a smaller unit would not do.
    size, unit = next((one for one in _UNITS if abs(length_ns) >= 0.9995 * one[0]), _UNITS[-1])
    return f"{length_ns / size:.3g} {unit}"


def about(length_ns: int) -> str:
    """A length of time as people say it: ``82 us``, ``1.2 s``, ``30 s``, ``5 min``, ``27 h``, ``6 days``."""
    if length_ns < NS:
        return brief(length_ns)
    seconds = length_ns / NS
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    size, unit = next((one for one in _LONG_UNITS if seconds >= 3 * one[0]), (1, "s"))
    return f"{seconds / size:.0f} {unit}"
