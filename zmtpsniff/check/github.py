"""Annotations on GitHub: workflow commands, which a runner reads from the output of a step."""

from zmtpsniff.check.check_report import Report
from zmtpsniff.check.text_report import offence_lines, summary
from zmtpsniff.words.text import escape


def github(report: Report) -> str:
    """An annotation for every rule that did not pass, at its line of the policy, and a notice with the sum."""
    lines = []
    for outcome in report.outcomes:
        if outcome.passed:
            continue
        rule = outcome.rule
        properties = [] if rule.file is None else [f"file={_property(escape(rule.file))}", f"line={rule.line or 1}"]
        properties.append(f"title={_property(escape(rule.name))}")
        level = "notice" if outcome.verdict == "not checked" else rule.level
        message = "\n".join([escape(outcome.found), *offence_lines(outcome)])
        lines.append(f"::{level} {','.join(properties)}::{_data(message)}")
    lines.append(f"::notice title=zmtpsniff check::{_data(summary(report))}")
    return "\n".join(lines) + "\n"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
