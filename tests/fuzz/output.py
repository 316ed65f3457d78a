"""Output for events, held against the rules of all output."""

import io
import json
from collections.abc import Sequence
from typing import Any

from dissectors.events import AnyEvent
from zmtpsniff.check.check_report import Report
from zmtpsniff.check.formats import FORMATS, make_report
from zmtpsniff.check.model import Rule
from zmtpsniff.check.rules import Check
from zmtpsniff.render import make_renderer
from zmtpsniff.words.text import CONTROL_OR_UNSEEN


def shown(events: list[AnyEvent], formats: Sequence[Any] = ("summary",)) -> None:
    """In JSON and these formats: JSON can be read again, nothing that a terminal acts on is in what is for people."""
    lines = io.BytesIO()
    renderer = make_renderer("json", lines)
    renderer.write(events)
    for line in lines.getvalue().decode().splitlines():
        json.loads(line)
    for output in formats:
        text = io.StringIO()
        people = make_renderer(output, text, verbosity=1, utc=True, color="never")
        people.write(events)
        people.finish()
        is_safe(text.getvalue())


def is_safe(text: str, lines: int = 0) -> None:
    """No line has anything that a terminal acts on, and there are ``lines`` of them (0: any number)."""
    assert not lines or text.count("\n") + 1 == lines
    for line in text.split("\n"):
        assert CONTROL_OR_UNSEEN.search(line) is None, repr(line)
    text.encode()


def checked(events: list[AnyEvent], rules: list[Rule]) -> None:
    """Rules held against events, and the results in all formats of reports."""
    check = Check(rules)
    check.take(events)
    outcomes = check.finish()
    for output in FORMATS:
        text = make_report(output)(Report(outcomes, ["a.pcap"], "a.pcap", "0", check.totals))
        is_safe(text)
        if output in ("json", "sarif"):
            json.loads(text)
