"""Reports as tables, lines and pages: made of records that a hostile fleet could lead to, without Spark."""

import importlib.util
import json
import re
import subprocess
import sys
from io import BytesIO, StringIO
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from lxml import html

from tests.spark.report_records import HOSTILE, records
from zmtpsniff.render.jsonl import JsonlRenderer
from zmtpsniff.spark.report.asking import suiting
from zmtpsniff.spark.report.draw import draw
from zmtpsniff.spark.report.views import parse_time

GOLDEN = Path(__file__).with_name("report.txt")
NS = 1_000_000_000
needs_matplotlib = pytest.mark.skipif(
    importlib.util.find_spec("matplotlib") is None, reason="matplotlib is not installed: pip install 'zmtpsniff[spark]'"
)


def test_terminal(request: pytest.FixtureRequest) -> None:
    stream = StringIO()
    draw(records(), stream, "never", width=110)
    text = stream.getvalue()
    if request.config.getoption("--renew-golden"):
        GOLDEN.write_text(text)
    assert text == GOLDEN.read_text()
    assert "\x1b" not in text


def test_lines() -> None:
    stream = BytesIO()
    JsonlRenderer(stream).write(records())  # type: ignore[arg-type]
    lines = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert len(lines) == len(records())
    assert {line["type"] for line in lines} >= {"report-total", "report-pair", "report-topic", "report-cut"}
    assert any(line.get("topic") == {"length": 3, "hex": "00ff80"} for line in lines)
    shown = subprocess.run(
        [sys.executable, "-m", "zmtpsniff", "schema", "--report"], capture_output=True, text=True, check=True
    )
    schema = json.loads(shown.stdout)
    validator = jsonschema.Draft202012Validator(schema)
    validator.check_schema(schema)
    for line in lines:
        validator.validate(line)
    assert {line["type"] for line in lines} == set(re.findall(r'"const": "(report-[a-z]+)"', shown.stdout))
    with pytest.raises(jsonschema.ValidationError):
        validator.validate({"type": "report-total", "packets": "many"})


@pytest.fixture(scope="module")
def page() -> str:
    from zmtpsniff.spark.report.page import page

    return page(records(), "ZeroMQ traffic in </title><script>alert(2)</script>")


@needs_matplotlib
def test_page_has_nothing_active(page: str) -> None:
    tree: Any = html.fromstring(page)
    allowed = {
        "html",
        "head",
        "meta",
        "title",
        "style",
        "body",
        "h1",
        "h2",
        "p",
        "div",
        "table",
        "thead",
        "tbody",
        "tr",
    }
    allowed |= {"th", "td", "details", "summary", "svg", "g", "path", "text", "defs", "clippath", "rect", "use"}
    assert {element.tag.lower() for element in tree.iter() if isinstance(element.tag, str)} <= allowed
    for element in tree.iter():
        for name, value in element.attrib.items():
            assert not name.lower().startswith("on")
            assert not name.endswith("src")
            if name.endswith("href"):
                assert value.startswith("#")
            # Namespaces are names, not addresses of anything that is loaded.
            assert "//" not in value or name.startswith("xmlns")
            assert "url(" not in value.replace("url(#", "")
    policy = tree.xpath("//meta[@http-equiv='Content-Security-Policy']/@content")
    assert policy == ["default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"]


@needs_matplotlib
def test_page_shows_what_was_sent(page: str) -> None:
    tree: Any = html.fromstring(page)
    cells = [cell.text_content() for cell in tree.xpath("//td")]
    assert f'"{HOSTILE[:48]}"…' in cells
    assert f"the value of {HOSTILE!r}" in cells
    drawn = {"".join(text.itertext()).strip() for text in tree.xpath("//*[local-name()='text']")}
    assert '"$\\\\frac{1}$"' in drawn  # and no fraction
    assert '"</text></svg><script>al…' in {text[:24] + "…" for text in drawn}
    assert '"_hidden"' in drawn
    assert tree.xpath("//h2/@id") == ["pairs", "sockets", "versions", "topics", "latency", "storms", "problems"]


@pytest.mark.slow
@needs_matplotlib
def test_page_is_the_same_every_time(page: str) -> None:
    from zmtpsniff.spark.report.page import page as make

    assert make(records(), "ZeroMQ traffic in </title><script>alert(2)</script>") == page


@pytest.mark.parametrize(
    ("span_ns", "length_ns"),
    [
        (0, NS // 1000),
        (NS, 10 * NS // 1000),
        (3600 * NS, 60 * NS),
        (86_400 * NS, 1800 * NS),
        (10**18, 128 * 86_400 * NS),
    ],
)
def test_intervals(span_ns: int, length_ns: int) -> None:
    assert suiting(span_ns) >= span_ns / 120
    assert suiting(span_ns) == length_ns


def test_times() -> None:
    assert parse_time("1970-01-02") == 86_400 * NS
    assert parse_time("2026-11-21T14:00:00.5+01:00") == 1_795_266_000 * NS + NS // 2
    with pytest.raises(ValueError, match="'yesterday' is no time"):
        parse_time("yesterday")
