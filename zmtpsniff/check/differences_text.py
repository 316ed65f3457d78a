"""Differences, for people: a heading for each service, and its differences under it, the worst first."""

import textwrap
from collections import defaultdict
from collections.abc import Sequence
from itertools import groupby
from typing import NamedTuple, TextIO

import msgspec

from zmtpsniff.check.difference import ComparisonSum, Difference, harm
from zmtpsniff.render.color import Color
from zmtpsniff.render.console import terminal_width
from zmtpsniff.render.figures import rate
from zmtpsniff.render.palette import make_palette, make_signs
from zmtpsniff.words.counts import plural
from zmtpsniff.words.durations import brief
from zmtpsniff.words.text import encodable, escape

_NO_TERMINAL = 80  # columns
_LEAST = 40
_LABEL, _ASPECT = 9, 15  # columns
_ASPECTS = {
    "handshakes": "handshakes",
    "mechanisms": "mechanism",
    "versions": "version",
    "sockets": "socket types",
    "clients": "clients",
    "subscriptions": "subscription",
    "topics": "topic",
    "problems": "problems",
    "latencies": "reply time",
    "rates": "rate",
    "sizes": "message size",
}
_MOST = 1000  # a factor that is told
_ALIKE = 0.1  # rates of requests and replies that change by about the same factor


class Titles(NamedTuple):
    """The names of both captures, and what there is in each, in words."""

    before: str
    after: str


class DifferencesText:
    """Writes a comparison to a stream."""

    def __init__(self, stream: TextIO, color: Color = "auto", shown: int = 5, width: int | None = None) -> None:
        """Show ``shown`` differences of one kind at a service, on lines of ``width`` columns (None: the terminal's)."""
        self._stream = stream
        self._palette = make_palette(stream, color)
        self._arrow = make_signs(getattr(stream, "encoding", None)).arrow
        self._shown = shown
        self._columns = max(width or terminal_width(stream) or _NO_TERMINAL, _LEAST)

    def write(self, titles: Titles, differences: Sequence[Difference], comparison: ComparisonSum) -> None:
        """Write both titles, the differences by service, what could not be compared, and the sum."""
        paint, palette = self._palette.paint, self._palette
        lines = []
        for name, title in zip(("before", "after"), titles, strict=True):
            lines += self._hung(f"{name:8}", paint(palette.label, f"{name:8}"), escape(title))
        services: defaultdict[str, list[Difference]] = defaultdict(list)
        for difference in differences:
            services[difference.service].append(difference)
        for service in sorted(services, key=lambda address: (harm(services[address][0]), address)):
            lines += ["", *self._service(services[service])]
        if comparison.not_compared:
            lines += ["", paint(palette.note, "not compared")]
            for reason in self._first(comparison.not_compared):
                lines += self._hung("  ", "  ", escape(reason))
        lines += ["", *self._hung("", "", _sum(comparison))]
        if differences or comparison.services:
            verdict = palette.error if comparison.worse else palette.good
            lines[-1] = paint(verdict, lines[-1])
        text = "\n".join(lines) + "\n"
        self._stream.write(encodable(getattr(self._stream, "encoding", None))(text))

    def _first(self, texts: Sequence[str]) -> list[str]:
        more = len(texts) - self._shown
        return [*texts[: self._shown], *([f"... and {more:,} more"] if more > 0 else [])]

    def _service(self, differences: Sequence[Difference]) -> list[str]:
        palette, first = self._palette, differences[0]
        whole = next((one for one in differences if one.aspect == "services"), None)
        kinds = "" if whole is None else " and ".join(map(escape, whole.was or whole.now))
        title = escape(first.service)
        if first.now_at is not None:
            title += f" {self._arrow} {escape(first.now_at)}"
        title = palette.paint(palette.title, title)
        if whole is not None and whole.change != "changed":
            title += f" is {palette.paint(self._style(whole), whole.change)}"
        lines = [f"{title} ({kinds})" if kinds else title]
        if whole is not None and whole.change == "changed":
            lines += self._leaf(whole, "address", "taken for the same service, by its socket types")
        rest = _folded([one for one in differences if one.aspect != "services"])
        for (aspect, change, _), alike in groupby(rest, lambda one: (one.aspect, one.change, one.effect)):
            same = list(alike)
            for difference in same[: self._shown]:
                lines += self._leaf(difference, _ASPECTS[aspect], self._words(difference))
            if len(same) > self._shown:
                lines += self._leaf(same[0], _ASPECTS[aspect], f"... and {len(same) - self._shown:,} more {change}")
        return lines

    def _leaf(self, difference: Difference, aspect: str, words: str) -> list[str]:
        change = difference.change
        label = difference.effect if change == "changed" and difference.effect != "neutral" else change
        painted = self._palette.paint(self._style(difference), f"{label:{_LABEL}}")
        return self._hung(" " * (2 + _LABEL + _ASPECT), f"  {painted}{aspect:{_ASPECT}}", words)

    def _style(self, difference: Difference) -> str:
        palette = self._palette
        return {"worse": palette.error, "better": palette.good, "neutral": palette.note}[difference.effect]

    def _hung(self, blank: str, head: str, words: str) -> list[str]:
        """Words behind a head that is as wide as ``blank``; further lines begin where the first one's words do."""
        first, *rest = textwrap.wrap(words, self._columns - len(blank), break_on_hyphens=False) or [""]
        return [f"{head}{first}", *(f"{' ' * len(blank)}{line}" for line in rest)]

    def _words(self, one: Difference) -> str:
        subject = escape(one.subject or "")
        if one.aspect in ("mechanisms", "versions"):
            return f"{' or '.join(map(escape, one.was))} {self._arrow} {' or '.join(map(escape, one.now))}"
        if one.aspect == "sockets":
            return subject
        if one.aspect in ("topics", "subscriptions"):
            count = one.before or one.after
            return subject if one.aspect == "subscriptions" or not count else f"{subject}, {count:,.0f} messages"
        if one.aspect == "handshakes":
            return escape(one.summary.replace(f" to {one.now_at or one.service}", ""))
        if one.aspect == "clients":
            hosts = [f"{', '.join(self._first(list(map(escape, hosts))))} {word}"
                     for word, hosts in (("gone", one.was), ("new", one.now)) if hosts]  # fmt: skip
            counts = [f"{one.before:,.0f} {self._arrow} {one.after:,.0f}"] if one.before != one.after else []
            return ": ".join([*counts, *(["; ".join(hosts)] if hosts else [])])
        before, after = one.before or 0, one.after or 0
        if one.aspect == "latencies":
            return f"{subject}: {brief(round(before))} {self._arrow} {brief(round(after))}{_by(one)}"
        if one.aspect == "problems":
            return f"{subject}: {before:,.0f} {self._arrow} {after:,.0f}"
        who = f"{subject} {'send' if subject == 'clients' else 'sends'}"
        if one.aspect == "rates":
            return f"{who} {rate(before, '', '')} {self._arrow} {rate(after, '', '')} messages/s{_by(one)}"
        return f"{who} {before:,.0f} {self._arrow} {after:,.0f} octets{_by(one)}"


def _by(one: Difference) -> str:
    """By how much a number grew or shrank."""
    before, after = one.before or 0, one.after or 0
    if not before or after > before * _MOST:
        return ""
    return f" ({after / before:.3g} times)" if after >= before * 2 else f" ({after / before - 1:+.0%})"


def _sum(comparison: ComparisonSum) -> str:
    counts = (comparison.worse, "worse"), (comparison.better, "better"), (comparison.neutral, "other")
    told = ", ".join(f"{count:,} {word}" for count, word in counts if count)
    number = comparison.worse + comparison.better + comparison.neutral
    words = f"{plural(number, 'difference')}: {told}" if told else "no difference"
    if not comparison.services:
        return f"{words}; no service is in both captures"
    return f"{words}; {comparison.alike:,} of {plural(comparison.services, 'service')} alike"


def _folded(differences: Sequence[Difference]) -> list[Difference]:
    """The differences, with one for both rates of a service if requests and replies change alike."""
    rates = [one for one in differences if one.aspect == "rates"]
    if len(rates) < 2 or rates[0].effect != rates[1].effect or abs(rates[0].factor / rates[1].factor - 1) > _ALIKE:
        return list(differences)
    both = msgspec.structs.replace(rates[0], subject="each side")
    return [both if one is rates[0] else one for one in differences if one is not rates[1]]
