"""The report for people."""

from zmtpsniff.check.model import Offence, Outcome
from zmtpsniff.check.report import Report
from zmtpsniff.render.text import escape
from zmtpsniff.render.wording import number


def text(report: Report) -> str:
    """Every rule with its outcome, the first offending records under those that failed, and a line with the totals."""
    lines = []
    for outcome in report.outcomes:
        rule = outcome.rule
        lines.append(f"{_verdict(outcome):4}  {escape(rule.name)}  ({escape(where(outcome))})")
        if not outcome.passed:
            lines.append(f"      {escape(rule.text)}")
        lines.append(f"      {escape(outcome.found)}")
        lines += [f"        {line}" for line in offence_lines(outcome)]
    lines += ["", summary(report)]
    return "\n".join(lines) + "\n"


def _verdict(outcome: Outcome) -> str:
    if outcome.passed:
        return "ok"
    return "FAIL" if outcome.rule.level == "error" else "WARN"


def where(outcome: Outcome) -> str:
    """Where a rule comes from: file and line, or the set that it belongs to."""
    rule = outcome.rule
    if rule.file is not None:
        return f"{rule.file}:{rule.line}" if rule.line else rule.file
    return rule.set_name or rule.kind


def offence_lines(outcome: Outcome) -> list[str]:
    """The offending records that were kept, a line each, and how many there are beside them."""
    if outcome.passed:
        return []
    lines = [f"{place(offence)}{escape(offence.text)}" for offence in outcome.offences]
    if outcome.more:
        lines.append(f"... and {outcome.more:,} more")
    return lines


def place(offence: Offence) -> str:
    """The capture that an offending record is in, where there are several; its packet is in the record's line."""
    return "" if offence.file is None else f"{escape(offence.file)} packet {offence.file_packet}: "


def summary(report: Report) -> str:
    """One line that says what came out."""
    failed = sum(outcome.failed for outcome in report.outcomes)
    warned = sum(not outcome.passed for outcome in report.outcomes) - failed
    rules = number(len(report.outcomes), "rule")
    if failed:
        verdict = f"{failed:,} of {rules} failed"
    else:
        verdict = f"{len(report.outcomes) - warned:,} of {rules} passed" if warned else f"{rules} passed"
    verdict += f", {number(warned, 'warning')}" if warned else ""
    totals = report.totals
    if totals is None:
        return f"{verdict}: {escape(report.subject)}"
    return (
        f"{verdict}: {escape(report.subject)}, {number(totals.packets, 'packet')}, "
        f"{number(totals.zmtp_flows, 'ZMTP connection')}, {number(totals.messages, 'message')}"
    )
