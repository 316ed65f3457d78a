"""JUnit XML, as Jenkins reads it (junit-10.xsd)."""

import re
from datetime import UTC, datetime
from xml.etree import ElementTree

from zmtpsniff.check.check_report import Report
from zmtpsniff.check.text_report import offence_lines, summary, where
from zmtpsniff.words.text import escape

# Characters that XML 1.0 forbids even as references, beside those that escape() has replaced.
_FORBIDDEN = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def junit(report: Report) -> str:
    """A test suite for the run, with a test case for each rule.

    A broken rule of level warning is a case that passed, with what was found as its output. A rule that is not checked
    is a case that was skipped.
    """
    failures, skipped = str(report.counts["failed"]), str(report.counts["not checked"])
    seconds = f"{report.seconds:.3f}"
    counts = {"tests": str(len(report.outcomes)), "failures": failures, "errors": "0", "time": seconds}
    suites = ElementTree.Element("testsuites", {"name": "zmtpsniff check", **counts})
    suite = ElementTree.SubElement(suites, "testsuite", {"name": "zmtpsniff check", **counts, "skipped": skipped})
    if (timestamp := _timestamp(report)) is not None:
        suite.set("timestamp", timestamp)
    properties = ElementTree.SubElement(suite, "properties")
    for name, value in _properties(report):
        ElementTree.SubElement(properties, "property", {"name": name, "value": _clean(value)})
    for outcome in report.outcomes:
        rule = outcome.rule
        source = rule.file or (f"built-in.{rule.set_name}" if rule.set_name else rule.kind)
        attributes = {"name": _clean(rule.name), "classname": _clean(source), "time": "0.000"}
        case = ElementTree.SubElement(suite, "testcase", attributes)
        lines = "\n".join([f"{where(outcome)}: {rule.text}", outcome.found, *offence_lines(outcome)])
        if outcome.failed:
            failure = ElementTree.SubElement(case, "failure", {"message": _clean(outcome.found), "type": rule.kind})
            failure.text = _clean(lines)
        elif outcome.verdict == "not checked":
            ElementTree.SubElement(case, "skipped", {"message": _clean(outcome.found)})
        elif not outcome.passed:
            ElementTree.SubElement(case, "system-out").text = _clean(f"warning: {lines}")
    ElementTree.SubElement(suite, "system-out").text = _clean(summary(report))
    ElementTree.indent(suites)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ElementTree.tostring(suites, encoding="unicode") + "\n"


def _timestamp(report: Report) -> str | None:
    """When the traffic was, without a zone, as the schema wants it."""
    if report.start_ns is None:
        return None
    try:
        return datetime.fromtimestamp(report.start_ns // 1_000_000_000, UTC).strftime("%Y-%m-%dT%H:%M:%S")
    except (OverflowError, ValueError, OSError):
        return None  # a time that no calendar holds, from a broken capture file


def _properties(report: Report) -> list[tuple[str, str]]:
    named = [("version", report.version), ("subject", report.subject)]
    if report.totals is not None:
        named += [("packets", str(report.totals.packets)), ("connections", str(report.totals.zmtp_flows))]
        named += [("messages", str(report.totals.messages)), ("dropped", str(report.totals.dropped))]
    return named


def _clean(text: str) -> str:
    """Text that XML 1.0 can hold, and that does nothing to a terminal."""
    return _FORBIDDEN.sub(lambda match: f"\\u{ord(match[0]):04x}", "\n".join(map(escape, text.split("\n"))))
