"""The report for people."""

from collections.abc import Iterable, Sequence
from itertools import groupby

from zmtpsniff.check.check_report import Report
from zmtpsniff.check.model import Offence, Outcome, Verdict
from zmtpsniff.render.palette import NO_COLORS, Palette
from zmtpsniff.words.counts import plural
from zmtpsniff.words.text import escape

_LABELS: dict[Verdict, tuple[str, str]] = {  # each with its colour
    "passed": ("ok", "good"),
    "failed": ("FAIL", "error"),
    "warning": ("WARN", "warning"),
    "not checked": ("?", "note"),
}


def text(report: Report, palette: Palette = NO_COLORS) -> str:
    """Every rule with its outcome, the first offending records of broken ones, and a line with the totals.

    The demands that an endpoint keeps are shown together, and so are those that are not checked for the same reason.
    """
    lines = []
    for outcome, names in _folded(report.outcomes):
        rule = outcome.rule
        word, color = _LABELS[outcome.verdict]
        label = palette.paint(getattr(palette, color), f"{word:4}")
        if names:
            count = palette.paint(palette.dim, f"({plural(len(names), 'rule')})")
            lines.append(f"{label}  {palette.paint(palette.title, escape(rule.group or ''))}  {count}")
            lines.append(f"      {escape(', '.join(names))}")
            if not outcome.passed:
                lines.append(f"      {escape(outcome.found)}")
            continue
        place = palette.paint(palette.dim, f"({escape(where(outcome))})")
        lines.append(f"{label}  {palette.paint(palette.title, escape(rule.name))}  {place}")
        if not outcome.passed and outcome.checked:
            lines.append(f"      {escape(rule.text)}")
        lines.append(f"      {escape(outcome.found)}")
        lines += [f"        {line}" for line in offence_lines(outcome)]
    lines += ["", summary(report, palette)]
    return "\n".join(lines) + "\n"


def _folded(outcomes: Sequence[Outcome]) -> Iterable[tuple[Outcome, list[str]]]:
    """The outcomes. Those of one group with the same result become one, with the names of all."""
    for (group, verdict, _), alike in groupby(outcomes, _sameness):
        same = list(alike)
        if group is None or not (verdict == "passed" or (verdict == "not checked" and len(same) > 1)):
            yield from ((outcome, []) for outcome in same)
        else:
            yield same[0], [outcome.rule.name.removeprefix(f"{group}: ") for outcome in same]


def _sameness(outcome: Outcome) -> tuple[str | None, Verdict, str]:
    """The key of an outcome: those with the same one are told together."""
    return outcome.rule.group, outcome.verdict, outcome.found if outcome.verdict == "not checked" else ""


def where(outcome: Outcome) -> str:
    """Where a rule comes from: file and line, or the set that it belongs to."""
    rule = outcome.rule
    if rule.file is not None:
        return f"{rule.file}:{rule.line}" if rule.line else rule.file
    return rule.set_name or rule.kind


def offence_lines(outcome: Outcome) -> list[str]:
    """The offending records that were kept, a line each, and how many more there are."""
    if outcome.passed:
        return []
    lines = [f"{place(offence)}{escape(offence.text)}" for offence in outcome.offences]
    if outcome.more:
        lines.append(f"... and {outcome.more:,} more")
    return lines


def place(offence: Offence) -> str:
    """The capture of an offending record, if there are several. Its packet is in the record's line."""
    return "" if offence.file is None else f"{escape(offence.file)} packet {offence.file_packet}: "


def summary(report: Report, palette: Palette = NO_COLORS) -> str:
    """One line that says what came out."""
    counts = report.counts
    rules = plural(len(report.outcomes), "rule")
    if counts["failed"]:
        verdict = palette.paint(palette.error, f"{counts['failed']:,} of {rules} failed")
    else:
        passed = rules if counts["passed"] == len(report.outcomes) else f"{counts['passed']:,} of {rules}"
        verdict = palette.paint(palette.good, f"{passed} passed")
    if counts["warning"]:
        verdict += f", {palette.paint(palette.warning, plural(counts['warning'], 'warning'))}"
    if counts["not checked"]:
        unchecked = f"{counts['not checked']:,} not checked"
        verdict += f", {palette.paint(palette.note, unchecked)}"
    totals = report.totals
    if totals is None:
        return f"{verdict}: {escape(report.subject)}"
    return (
        f"{verdict}: {escape(report.subject)}, {plural(totals.packets, 'packet')}, "
        f"{plural(totals.zmtp_flows, 'ZMTP connection')}, {plural(totals.messages, 'message')}"
    )
