"""The report as one JSON object."""

import json
from typing import Any

from zmtpsniff.check.check_report import Report
from zmtpsniff.check.model import Offence, Outcome


def as_json(report: Report) -> str:
    """One object, on lines of its own, with a field for each fact of the text report."""
    result: dict[str, Any] = {"type": "check", "passed": report.passed, "subject": report.subject}
    result["captures"] = list(report.captures)
    if report.totals is not None:
        result["totals"] = {name: getattr(report.totals, name) for name in report.totals.__struct_fields__}
    result["counts"] = {verdict.replace(" ", "_"): count for verdict, count in report.counts.items()}
    result["rules"] = [_rule(outcome) for outcome in report.outcomes]
    # Only visible ASCII, so that no captured octets reach a terminal raw.
    return json.dumps(result, indent=2).replace("\x7f", "\\u007f") + "\n"


def _rule(outcome: Outcome) -> dict[str, Any]:
    rule = outcome.rule
    fields: dict[str, Any] = {
        "name": rule.name,
        "kind": rule.kind,
        "set": rule.set_name,
        "file": rule.file,
        "line": rule.line,
        "level": rule.level,
        "passed": outcome.passed,
        "checked": outcome.checked,
        "verdict": outcome.verdict,
        "text": rule.text,
        "found": outcome.found,
    }
    if not outcome.passed:
        fields["offences"] = [_offence(offence) for offence in outcome.offences]
        fields["more"] = outcome.more
    return _applicable(fields)


def _offence(offence: Offence) -> dict[str, Any]:
    return _applicable(offence._asdict())


def _applicable(fields: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}
