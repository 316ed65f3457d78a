"""Findings, for people: what is wrong, how it is known, what to do."""

import textwrap
from collections.abc import Sequence
from typing import TextIO

from dissectors.events import SEVERITIES, Capture
from zmtpsniff.analysis.findings.finding import Finding
from zmtpsniff.analysis.statistics.stats_records import PEER_FIGURES, PeerRow
from zmtpsniff.render.clock import Clock
from zmtpsniff.render.color import Color
from zmtpsniff.render.console import terminal_width
from zmtpsniff.render.figures import figure
from zmtpsniff.render.fit import fitted
from zmtpsniff.render.palette import Palette, make_palette
from zmtpsniff.words.counts import again, plural
from zmtpsniff.words.durations import brief
from zmtpsniff.words.text import encodable, escape

_NO_TERMINAL = 120  # columns
_LEAST = 40
_OVER = frozenset({"service-away"})  # findings of a time that is over
# The findings that another one may lead to on the same connections.
_EFFECTS = {
    "bad-mechanism": ("handshake-failed", "mechanisms-differ"),
    "host-silent": ("request-unanswered", "worker-silent"),
    "no-delimiter": ("request-unanswered",),
    "unknown-mechanism": ("handshake-failed",),
}
# The finding that another one may lead to at the same socket.
_EFFECTS_THERE = {
    "queue-grows": "replies-slow",
    "service-away": "worker-closed",  # with requests in hand
}
_INDENT = " " * 9
_CHANGES = {"comes": "new:", "worsens": "now:", "goes": "over:"}


def draw(
    findings: Sequence[Finding],
    capture: Capture | None,
    stream: TextIO,
    utc: bool = False,
    color: Color = "auto",
    width: int | None = None,
    is_mostly_sealed: bool = False,
) -> None:
    """Write findings to a stream, as wide as its terminal or ``width`` columns; the line that sums up is the last.

    ``is_mostly_sealed`` says whether there are messages that no key opens.
    """
    palette = make_palette(stream, color)
    terminal = width or terminal_width(stream)
    columns = max(terminal or _NO_TERMINAL, _LEAST)
    clock = Clock(utc, digits=6)
    lines: list[str] = []
    causes = [next((one for one in findings if _led_to(one, effect)), None) for effect in findings]
    effects = list(zip(causes, findings, strict=True))
    findings = [one for cause, one in effects if cause is None]
    for place, finding in enumerate(findings):
        if place:
            lines.append("")
        lines += _finding(finding, [one for cause, one in effects if cause is finding], palette, clock, columns)
    if lines:
        lines.append("")
    lines.append(fitted(_sum(findings, capture, palette, is_mostly_sealed), terminal))
    text = "\n".join(lines) + "\n"
    stream.write(encodable(getattr(stream, "encoding", None))(text))


def draw_changes(findings: Sequence[Finding], stream: TextIO, utc: bool = False, color: Color = "auto") -> None:
    """Write a line for each finding with ``state``: it comes, worsens or goes; more where the terminal is narrower."""
    palette = make_palette(stream, color)
    clock = Clock(utc, digits=0)
    width = terminal_width(stream)
    lines = []
    for one in findings:
        time_ns = one.first_ns if one.state == "comes" else one.last_ns
        when = f"{clock.time(time_ns)} " if time_ns is not None else ""
        severity = palette.paint(getattr(palette, one.severity), f"{one.severity:<7}")
        change = f"{_CHANGES[one.state or 'comes']:<5}"
        line = f"{when}{change} {severity} {escape(one.summary)} [{one.heading}]{again(one.count)}"
        lines.append(fitted(line, width) + "\n")
    stream.write(encodable(getattr(stream, "encoding", None))("".join(lines)))


def _finding(finding: Finding, effects: Sequence[Finding], palette: Palette, clock: Clock, columns: int) -> list[str]:
    style = getattr(palette, finding.severity)
    head = _wrapped(escape(_said(finding)), columns)
    lines = [f"{palette.paint(style, f'{finding.severity:<8}')} {palette.paint(palette.title, head[0])}"]
    lines += [f"{_INDENT}{palette.paint(palette.title, line)}" for line in head[1:]]
    told = [("seen", f"{finding.seen}{_places(finding, clock)}")]
    if len(finding.peers) > 1:
        told.append(("by peer", "; ".join(map(_peer, finding.peers))))
    told += [("so", f"{_said(one)}{_places(one, clock)}") for one in effects]
    told.append(("fix", finding.advice))
    for label, text in told:
        first, *rest = _wrapped(f"{label}: {escape(text)}", columns)
        lines.append(f"{_INDENT}{palette.paint(palette.label, first[: len(label) + 1])}{first[len(label) + 1 :]}")
        lines += [_INDENT + line for line in rest]
    return lines


def _said(finding: Finding) -> str:
    """The sentence of a finding, with its code."""
    return f"{finding.summary} [{finding.heading}]"


def _led_to(cause: Finding, effect: Finding) -> bool:
    """Whether ``effect`` only says what ``cause`` led to."""
    if cause.severity == "error" and effect.waits_for(cause.endpoints[0] if cause.endpoints else ""):
        return True
    if effect.code == _EFFECTS_THERE.get(cause.code):
        return effect.endpoints[0] in cause.endpoints and (effect.first_ns or 0) <= (cause.last_ns or 0)
    if effect.code not in _EFFECTS.get(cause.name, ()):
        return False
    last: dict[int, int] = {}
    for one in cause.evidence:
        last[one.flow] = max(last.get(one.flow, 0), one.packet)
    is_request = effect.code in (
        "request-unanswered",
        "worker-silent",
    )  # a later one may be unanswered for another reason
    return all(one.packet <= last.get(one.flow, 0) if is_request else one.flow in last for one in effect.evidence)


def _peer(row: PeerRow) -> str:
    """The figures of a peer, as in ``10.0.0.9:40000 taken 8, share 50 %``."""
    figures = ((one.title.lower(), figure(getattr(row, one.field), one.kind)) for one in PEER_FIGURES)
    return f"{row.peer} {', '.join(f'{title} {value}' for title, value in figures if value)}"


def _places(finding: Finding, clock: Clock) -> str:
    """The packets to look at, when it began and, if that is known, when it was over."""
    packets = ", ".join(f"#{one.packet}" for one in finding.evidence)
    where = f"; {packets}" if packets else ""
    if not where or finding.first_ns is None:
        return where
    last_ns = finding.last_ns if finding.code in _OVER else None
    if last_ns is None and finding.count == 1:
        return f"{where} at {clock.time(finding.first_ns)}"
    until = "on" if last_ns is None else f"to {clock.time(last_ns)}"
    return f"{where}, from {clock.time(finding.first_ns)} {until}"


def _wrapped(text: str, columns: int) -> list[str]:
    wrapped = textwrap.wrap(text, columns - len(_INDENT), break_long_words=True, break_on_hyphens=False)
    return wrapped or [""]


def _sum(findings: Sequence[Finding], capture: Capture | None, palette: Palette, is_mostly_sealed: bool) -> str:
    """The line that matters most to somebody in a hurry."""
    counts = {severity: sum(one.severity == severity for one in findings) for severity in SEVERITIES}
    if counts["error"] or counts["warning"]:
        told = ", ".join(plural(count, severity) for severity, count in counts.items() if count)
        verdict = palette.paint(palette.error if counts["error"] else palette.warning, told)
    else:
        notes = f" ({plural(counts['note'], 'note')})" if counts["note"] else ""
        waiting = any(one.waits for one in findings)
        words = "no error and no warning, but somebody waits" if waiting else "nothing is wrong that can be seen"
        verdict = palette.paint(palette.note if waiting else palette.good, words) + notes
    if capture is None:
        return verdict
    if not capture.zmtp_flows and not (counts["error"] or counts["warning"]):
        return (
            f"{palette.paint(palette.warning, 'no ZMTP is in the capture')}, so nothing can be said of it: "
            f"{plural(capture.packets, 'packet')}, {plural(capture.flows, 'connection')}; look at the interface and "
            "the filter, or name the port with -d tcp.port==N,zmtp"
        )
    return (
        f"{verdict}; the capture has {plural(capture.packets, 'packet')} in {brief(capture.duration_ns)}, "
        f"{plural(capture.zmtp_flows, 'ZMTP connection')}, {plural(capture.messages, 'message')}"
        f"{' that can be read' if is_mostly_sealed else ''}"
    )
