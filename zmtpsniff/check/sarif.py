"""SARIF 2.1.0, as GitHub's code scanning and others read it."""

import json
import os
import re
from collections import Counter
from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

from zmtpsniff.check.check_report import Report
from zmtpsniff.check.model import Offence, Outcome, Rule
from zmtpsniff.check.text_report import place, summary
from zmtpsniff.words.text import escape

_SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"


def sarif(report: Report) -> str:
    """A log with one run: all rules, and a result for each that is broken, or is not checked ("open").

    A result stands at the rule's line of the policy, or at the capture for a rule without a file. The offending
    records are its related locations.
    """
    ids = rule_ids([outcome.rule for outcome in report.outcomes])
    results = [
        _result(report, outcome, number, ids[number])
        for number, outcome in enumerate(report.outcomes)
        if not outcome.passed
    ]
    driver = {
        "name": "zmtpsniff",
        "version": report.version,
        "rules": [_rule(outcome.rule, name) for outcome, name in zip(report.outcomes, ids, strict=True)],
    }
    run: dict[str, Any] = {
        "tool": {"driver": driver},
        "invocations": [
            {
                "executionSuccessful": True,
                "exitCode": 0 if report.passed else 1,
                "properties": {"summary": summary(report)},
            }
        ],
        "artifacts": [{"location": {"uri": uri(name)}, "roles": ["analysisTarget"]} for name in report.captures],
        "columnKind": "unicodeCodePoints",
        "results": results,
    }
    return json.dumps({"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]}, indent=2) + "\n"


def rule_ids(rules: Sequence[Rule]) -> list[str]:
    """A name without blanks for each rule. It stays the same as long as the rule's name does."""
    seen: Counter[str] = Counter()
    ids = []
    for rule in rules:
        words = re.sub(r"[^\w.]+", "-", rule.name).strip("-") or "rule"
        name = f"{rule.set_name or rule.kind}/{words}"
        seen[name] += 1
        ids.append(name if seen[name] == 1 else f"{name}.{seen[name]}")
    return ids


def uri(name: str) -> str:
    """The name of a file as a URI reference: relative as long as it is."""
    if name == "-":
        return "stdin"
    octets = os.path.normpath(name).encode("utf-8", "surrogateescape")  # a name may be of any octets
    return f"file://{quote(octets)}" if os.path.isabs(name) else quote(octets)


def _rule(rule: Rule, name: str) -> dict[str, Any]:
    return {
        "id": name,
        "name": escape(rule.name),
        "shortDescription": {"text": escape(rule.name)},
        "fullDescription": {"text": escape(rule.text)},
        "defaultConfiguration": {"level": rule.level},
    }


def _result(report: Report, outcome: Outcome, place_of_rule: int, rule_id: str) -> dict[str, Any]:
    rule = outcome.rule
    is_open = outcome.verdict == "not checked"  # the capture does not say enough
    result: dict[str, Any] = {
        "ruleId": rule_id,
        "ruleIndex": place_of_rule,
        "level": "none" if is_open else rule.level,
        "kind": "open" if is_open else "fail",
        "message": {"text": f"{escape(rule.name)}: {escape(outcome.found)}"},
    }
    file = rule.file or (report.captures[0] if report.captures else None)
    if file is not None:
        physical: dict[str, Any] = {"artifactLocation": {"uri": uri(file)}}
        if rule.file is not None:
            physical["region"] = {"startLine": rule.line or 1}
        result["locations"] = [{"physicalLocation": physical}]
    result["relatedLocations"] = [
        _location(report, number, offence) for number, offence in enumerate(outcome.offences, 1)
    ]
    if total := len(outcome.offences) + outcome.more:
        result["occurrenceCount"] = total
    return result


def _location(report: Report, number: int, offence: Offence) -> dict[str, Any]:
    location: dict[str, Any] = {"id": number, "message": {"text": place(offence) + escape(offence.text)}}
    file = offence.file or (report.captures[0] if len(report.captures) == 1 else None)
    if file is not None:
        location["physicalLocation"] = {"artifactLocation": {"uri": uri(file)}}
    if offence.flow is not None:
        full = f"flow {offence.flow}"
        full += "" if offence.packet is None else f"/packet {offence.packet}"
        location["logicalLocations"] = [{"name": full.rpartition("/")[2], "fullyQualifiedName": full}]
    numbers = {name: getattr(offence, name) for name in ("packet", "flow", "time_ns", "file_packet")}
    location["properties"] = {name: value for name, value in numbers.items() if value is not None}
    return location
