"""Reports as tables, lines and pages: made of results that a hostile fleet could lead to."""

import json
import re
from base64 import b64encode
from hashlib import sha256
from io import BytesIO, StringIO
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from lxml import html

from tests.report.made_up_results import BEGIN, HOSTILE, HOUR, MS, results
from tests.support.browser import CHROMIUM, MISSING, OpenedPage, open_page
from tests.support.golden import hold
from tests.support.runner import run
from zmtpsniff.render.jsonl import JsonlRenderer
from zmtpsniff.report.page import page as make_page
from zmtpsniff.report.results import ReportPair, ReportSocket, ReportTimeline, ReportTotal, Results
from zmtpsniff.report.terminal_tables import draw

GOLDEN = Path(__file__).with_name("report.txt")
TITLE = "ZeroMQ traffic in </title><script>alert(2)</script>"
SECTIONS = [
    "findings", "ways", "pairs", "rates", "sockets", "latency", "topics", "conversations", "problems", "health",
    "versions",
]  # fmt: skip
CHARTS = ["topology", "rates", "replies", "topics", "problems", "versions"]
# The text that a pointer over the third bar, or the first line of the picture, would show.
POINT_AT_ALL = """
page.dispatchEvent(new page.Event("beforeprint"));  // draws all, also what nobody has looked at
for (const each of page.document.querySelectorAll(".canvas")) {
  const name = each.parentElement.dataset.chart;
  page.echarts.getInstanceByDom(each).dispatchAction({ type: "showTip", seriesIndex: 0,
    dataIndex: name === "topics" ? 2 : 0 });
  if (name === "topology") {  // an action cannot point at a line
    const { tooltip: [{ formatter }], series: [{ links }] } = page.echarts.getInstanceByDom(each).getOption();
    const tip = page.document.createElement("div");
    tip.style.pointerEvents = "none";
    tip.innerHTML = formatter({ dataType: "edge", data: links[1] });
    page.document.body.append(tip);
  }
}
"""
needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason=MISSING)


def test_terminal(request: pytest.FixtureRequest) -> None:
    stream = StringIO()
    draw(results(), stream, "never", width=110)
    text = stream.getvalue()
    hold(request, GOLDEN, text)
    assert "\x1b" not in text


def test_lines() -> None:
    stream = BytesIO()
    records = list(results().records())
    JsonlRenderer(stream).write(records)  # type: ignore[arg-type]
    lines = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert len(lines) == len(records)
    kinds = [line["type"] for line in lines]
    assert kinds[0] == "report-total"
    assert kinds[kinds.index("report-cut") - 1] == "report-pair"
    assert any(line.get("topic") == {"length": 3, "hex": "00ff80"} for line in lines)
    shown = run("schema", "--report")
    schema = json.loads(shown.stdout)
    validator = jsonschema.Draft202012Validator(schema)
    validator.check_schema(schema)
    for line in lines:
        validator.validate(line)
    assert set(kinds) == set(re.findall(r'"const": "((?:report-|finding|way)[a-z]*)"', shown.stdout))
    with pytest.raises(jsonschema.ValidationError):
        validator.validate({"type": "report-total", "packets": "many"})


@pytest.fixture(scope="module")
def page() -> str:
    return make_page(results(), TITLE, "zmtpsniff spark report")


def test_nothing_runs_but_the_pages_own_scripts(page: str) -> None:
    tree: Any = html.fromstring(page)
    (policy,) = tree.xpath("//meta[@http-equiv='Content-Security-Policy']/@content")
    scripts = [script.text for script in tree.xpath("//script[not(@type)]")]
    hashes = " ".join(f"'sha256-{b64encode(sha256(each.encode()).digest()).decode()}'" for each in scripts)
    assert len(scripts) == 2
    assert policy == (
        f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
    )
    assert "\r" not in page  # a browser would make a newline of it, and have another hash
    assert tree.xpath("//script[@type]/@type") == ["application/json"]
    for element in tree.iter():
        for name, value in element.attrib.items():
            assert not name.lower().startswith("on")
            assert name not in ("src", "style")
            if name == "href":
                assert value.startswith("#")
    assert "url(" not in "".join(tree.xpath("//style/text()"))
    assert {element.tag for element in tree.iter() if isinstance(element.tag, str)} <= {
        "html", "head", "meta", "title", "style", "body", "header", "nav", "main", "section", "article", "footer", "h1",
        "h2", "h3", "p", "a", "b", "br", "div", "span", "time", "ul", "li", "button", "table", "thead", "tbody", "tr",
        "th", "td", "details", "summary", "script",
    }  # fmt: skip


def test_text_of_peers_is_text(page: str) -> None:
    tree: Any = html.fromstring(page)
    assert tree.xpath("//title")[0].text == TITLE
    cells = [cell.text_content() for cell in tree.xpath("//td")]
    assert f'"{HOSTILE[:48]}"…' in cells
    assert f"the value of {HOSTILE!r}" in cells
    assert f"nobody listens at {HOSTILE}" in cells
    rungs = tree.xpath("//*[@class='rung message from-client']/span")
    assert f'REQ "" "{HOSTILE}"' in [rung.text_content() for rung in rungs]
    (data,) = tree.xpath("//script[@id='data']/text()")
    assert not set("<>&") & set(data)
    assert f'"{HOSTILE[:60]}"…' in json.loads(data)["topics"]["names"]
    assert "\x1b" not in page


def test_every_section_has_a_link(page: str) -> None:
    tree: Any = html.fromstring(page)
    ids = tree.xpath("//@id")
    assert len(ids) == len(set(ids))
    assert {link.lstrip("#") for link in tree.xpath("//a/@href")} <= set(ids)
    assert tree.xpath("//nav/a/@href") == [f"#{name}" for name in SECTIONS] == tree.xpath("//section/h2/a/@href")
    assert tree.xpath("//article/@id") == ["service-1", "service-2"]
    assert tree.xpath("//table[@data-name='pairs']//td[2]/a/@href") == ["#service-1", "#service-2", "#service-1"]
    assert tree.xpath("//section//*[@data-chart]/@data-chart") == [
        "way", "way", "topology", "rates", "service", "replies", "topics", "problems", "versions",
    ]  # fmt: skip


def test_without_anything() -> None:
    tree: Any = html.fromstring(make_page(Results(ReportTotal(1, 0, 0, 0, 0, 0, 0, 0)), "nothing", "zmtpsniff report"))
    assert tree.xpath("//section/@id") == ["findings"]
    assert "There is no error and no warning." in tree.text_content()


def test_page_is_the_same_every_time(page: str) -> None:
    assert make_page(results(), TITLE, "zmtpsniff spark report") == page


def fleet(connections: int) -> Results:
    """Hosts with a connection each, to a service for every fifty of them."""
    made = Results(ReportTotal(1, 10 * connections, 0, connections, connections, 100, 0, 0, BEGIN, BEGIN + HOUR))
    for number in range(connections):
        made.pairs.append(
            ReportPair(f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}", f"10.9.0.{number // 50}:5555", 1, 1,
                       number, 1, 50, 50, BEGIN, BEGIN + HOUR, "REQ", "REP", {"warning": 1} if number % 9 == 4 else {})
        )  # fmt: skip
    return made


def drawn(opened: OpenedPage) -> Any:
    """The page after its scripts have run without a complaint."""
    assert opened.console == []
    return html.fromstring(opened.html)


@needs_chromium
def test_in_a_browser(page: str, tmp_path: Path) -> None:
    """It draws everything, without a word on its console; no text has become markup."""
    file = tmp_path / "report.html"
    file.write_text(page)
    tree = drawn(open_page(file, tmp_path / "profile", then=POINT_AT_ALL))
    assert tree.xpath("//*[@data-drawn='yes']/@data-chart").count("service") == 1
    assert {*tree.xpath("//*[@data-drawn='yes']/@data-chart")} == {*CHARTS, "service", "way"}
    assert len(tree.xpath("//*[@data-drawn='yes']//*[local-name()='svg']")) == len(CHARTS) + 3
    texts = {"".join(text.itertext()) for text in tree.xpath("//*[local-name()='svg']//*[local-name()='text']")}
    assert any(text.startswith('"</script></text>') for text in texts)
    tips = [" ".join(tip.itertext()) for tip in tree.xpath("//div[contains(@style, 'pointer-events: none')]")]
    assert any(tip.startswith('"</script></text></svg><script>alert(1)</script>') for tip in tips), tips
    assert any(tip.startswith("10.0.0.8 → [2001:db8::5]:5556 <b>SUB\\x1b[31m - PUB") for tip in tips), tips
    assert any(tip.startswith("2026-11-21 00:00:00.000 10.0.1.5:5555: ") for tip in tips), tips
    assert any(tip.startswith("10.0.1.5:5555 has the message of #17 from 0 ns on, for 1 ms") for tip in tips), tips
    assert len(tips) == len(CHARTS) + 4
    assert not tree.xpath("//img")
    assert len(tree.xpath("//script")) == 3
    assert tree.xpath("//th/button")


USE_IT = """
const tables = page.document.querySelectorAll("table[data-name=pairs]");
const [table] = tables;
table.tHead.rows[0].cells[5].firstElementChild.click();
const field = page.document.querySelector("#pairs input");
field.value = "10.9.0.1: warn";
field.dispatchEvent(new page.Event("input"));
page.document.getElementById("theme").click();
page.dispatchEvent(new page.Event("beforeprint"));
"""


@pytest.mark.slow
@needs_chromium
def test_tables_sort_and_filter_and_all_is_drawn_to_be_printed(tmp_path: Path) -> None:
    made = fleet(300)
    for number in range(30):  # each has a chart, and most of them are far below
        made.sockets.append(ReportSocket(f"10.9.0.{number}:5555", 50, 50, 1, 1, 1, 1, BEGIN, HOUR))
        made.timeline.append(ReportTimeline(BEGIN, HOUR // 60, 50, 500, f"10.9.0.{number}:5555"))
    (tmp_path / "report.html").write_text(make_page(made, "", ""))
    before = drawn(open_page(tmp_path / "report.html", tmp_path / "unused", height=900))
    assert before.xpath("//*[@data-drawn='yes']/@data-chart").count("service") < 30
    tree = drawn(open_page(tmp_path / "report.html", tmp_path / "used", height=900, then=USE_IT))
    rows = [[cell.text_content() for cell in row] for row in tree.xpath("//table[@data-name='pairs']/tbody/tr")]
    counts = [int(row[5]) for row in rows]
    assert counts == sorted(counts, reverse=True)
    shown = [
        [cell.text_content() for cell in row]
        for row in tree.xpath("//table[@data-name='pairs']/tbody/tr[not(@hidden)]")
    ]
    assert {row[1] for row in shown} == {"10.9.0.1:5555"}
    assert len(shown) == 5 == sum(row[1] == "10.9.0.1:5555" and "warn" in row[8] for row in rows)
    assert tree.xpath("//section[@id='pairs']//output")[0].text == "5 of 300"
    assert before.get("data-theme") is None
    assert tree.get("data-theme") == "light"
    assert tree.xpath("//*[@data-drawn='yes']/@data-chart").count("service") == 30


MEASURE = """const table = page.document.querySelector("#findings .table");
page.document.documentElement.dataset.beside = table.scrollWidth - table.clientWidth;"""


@pytest.mark.slow
@needs_chromium
def test_findings_are_read_on_a_telephone_without_scrolling_sideways(page: str, tmp_path: Path) -> None:
    file = tmp_path / "report.html"
    file.write_text(page)
    tree = drawn(open_page(file, tmp_path / "profile", 400, then=MEASURE))
    assert tree.get("data-beside") == "0"


@pytest.mark.slow
@needs_chromium
@pytest.mark.parametrize("width", [400, 1280])
@pytest.mark.parametrize("connections", [3, 300, 10_000])
def test_many_connections_in_a_browser(connections: int, width: int, tmp_path: Path) -> None:
    file = tmp_path / "report.html"
    text = make_page(fleet(connections), f"{connections} connections", "zmtpsniff report")
    assert len(text) < 5_000_000
    file.write_text(text)
    tree = drawn(open_page(file, tmp_path / "profile", width))
    texts = ["".join(text.itertext()) for text in tree.xpath("//*[local-name()='svg']//*[local-name()='text']")]
    assert 2 <= len(texts) <= 82
    assert ("9,960 others" in texts) == (connections == 10_000)


@pytest.mark.parametrize(("connections", "others"), [(3, []), (300, ["260 others"]), (10_000, ["9,960 others"])])
def test_the_picture_has_no_more_than_it_has_room_for(connections: int, others: list[str]) -> None:
    tree: Any = html.fromstring(make_page(fleet(connections), "", ""))
    topology = json.loads(tree.xpath("//script[@id='data']/text()")[0])["topology"]
    clients = [name for name, level, _ in topology["nodes"] if level == 0]
    assert [name for name in clients if "others" in name] == others
    assert len(clients) <= 41
    assert sum(link[5] for link in topology["links"]) == connections
    assert sum(link[2] for link in topology["links"]) == sum(range(connections))


def test_latency_is_told_with_three_digits(page: str) -> None:
    tree: Any = html.fromstring(page)
    (row,) = [row for row in tree.xpath("//table[@data-name='latency']//tr") if row.text_content().startswith("all")]
    assert [cell.text for cell in row][1:4] == ["20 M", "90 us", "200 us"]
    assert row[3].attrib["data-value"] == str(MS // 5)
