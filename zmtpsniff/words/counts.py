"""Counts and lists of names, as sentences have them."""

from collections.abc import Iterable

MANY = 100  # messages or replies, from which on a chart or percentiles say more than words do


def plural(count: int, noun: str) -> str:
    """A count with its noun: ``1 frame``, ``1,200 octets``, ``3 replies``."""
    return f"1 {noun}" if count == 1 else f"{count:,} {plural_noun(noun)}"


def plural_noun(noun: str) -> str:
    """The plural of a noun: ``frames``, ``keys``, ``replies``."""
    return f"{noun[:-1]}ies" if noun.endswith("y") and noun[-2] not in "aeiou" else f"{noun}s"


def were(count: int, noun: str, which: str = "") -> str:
    """A count as the subject of a sentence: ``1 packet was``, ``1,204 packets of IP protocol 50 (ESP) were``."""
    return f"1 {noun}{which} was" if count == 1 else f"{count:,} {plural_noun(noun)}{which} were"


def often(count: int) -> str:
    """How often something happened: ``never``, ``once``, ``1,204 times``."""
    return f"{count:,} times" if count > 1 else "once" if count else "never"


def again(count: int) -> str:
    """The addition to a sentence about the first of several: ``, 3 times``; empty for one."""
    return "" if count == 1 else f", {often(count)}"


def listed(names: Iterable[str], most: int = 3) -> str:
    """Names in a sentence: ``a``, ``a and b``, ``a, b, c and 4 others``."""
    every = list(names)
    if len(every) > most:
        return f"{', '.join(every[:most])} and {plural(len(every) - most, 'other')}"
    return f"{', '.join(every[:-1])} and {every[-1]}" if len(every) > 1 else "".join(every)
