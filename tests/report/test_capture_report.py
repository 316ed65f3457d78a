"""A report of captures: made while they are read, by the command, of whatever peers say."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from lxml import html

from dissectors.events import Capture, Connection, Message, Peer, Problem, Sides
from tests.render.test_output_safety import NASTY, conversations
from tests.support.footprint import entries
from tests.support.one_host import save_on_one_host
from tests.support.paths import FIXTURES
from tests.support.runner import run
from tests.world.tap import load
from zmtpsniff.cli.main import cli
from zmtpsniff.report.capture_report import CaptureReport
from zmtpsniff.report.charts import charts
from zmtpsniff.report.chosen_conversations import ChosenConversations
from zmtpsniff.report.page import page
from zmtpsniff.report.results import ReportPair, ReportTotal, Results
from zmtpsniff.words.text import CONTROL_OR_UNSEEN


def make(*options: str) -> tuple[int, str]:
    done = CliRunner().invoke(cli, ["report", *options], catch_exceptions=False)
    return done.exit_code, done.output


def page_of(tmp_path: Path, *names: str | Path, options: Sequence[str] = ()) -> Any:
    """The page of captures of the fixtures."""
    output = tmp_path / "report.html"
    assert make(*(str(FIXTURES / name) for name in names), "-o", str(output), *options) == (0, "")
    return html.fromstring(output.read_text())


def test_command(tmp_path: Path) -> None:
    tree = page_of(tmp_path, "rec_proxy.pcap", options=["--title", "A <proxy>"])
    assert tree.xpath("//h1")[0].text == "A <proxy>"
    assert "22 messages" in tree.xpath("//header")[0].text_content()
    assert tree.xpath("//table[@data-name='pairs']//td[2]/a/text()") == ["127.0.0.1:5572", "127.0.0.1:5573"]
    assert tree.xpath("//table[@data-name='latency']//td[2]/text()") == ["10", "5", "5"]
    peer_titles = tree.xpath("//table[@data-name='peers']//th/text()")
    assert peer_titles[:4] == ["Peer", "Of the socket", "Role", "Taken"], "no column for programs, which no file has"
    rungs = [" ".join(rung.text_content().split()) for rung in tree.xpath("//*[@class='rung message from-client']")]
    assert any('REQ "" "request" "a 0"' in rung for rung in rungs)


def charts_of(name: str, tmp_path: Path) -> Any:
    """The data that the scripts of the page of a capture draw."""
    return json.loads(page_of(tmp_path, name).xpath("//script[@id='data']/text()")[0])


def test_the_map_leads_from_clients_over_brokers_to_workers(tmp_path: Path) -> None:
    """The workers connect to the second broker, and the broker asks them."""
    drawn = charts_of("systems/broker_sleeps.pcap.gz", tmp_path)["topology"]
    nodes = drawn["nodes"]
    brokers = [node for node in nodes if node[2]]
    assert [level for _, level, _ in brokers] == [1, 2]
    assert brokers[1][0] == "10.9.0.35:8274, 8719"
    assert {level for _, level, is_service in nodes if not is_service} == {0, 3}
    assert all(nodes[one][1] < nodes[other][1] for one, other, *_ in drawn["links"])


def test_the_map_tells_programs_apart_that_have_one_address(tmp_path: Path) -> None:
    assert charts_of("rec_proxy.pcap", tmp_path)["topology"]["nodes"] == [
        ["127.0.0.1 REQ", 0, 0],
        ["127.0.0.1:5572, 5573", 1, 1],
        ["127.0.0.1 REP", 2, 0],
    ]


def test_connections_of_one_program_are_one_row_and_none_is_left_out(tmp_path: Path) -> None:
    """A service has three connections to its database."""
    save_on_one_host(load(FIXTURES / "systems" / "slow_database.pcap.gz"), tmp_path / "one.pcap")
    tree = page_of(tmp_path, tmp_path / "one.pcap")
    assert len(tree.xpath("//table[@data-name='pairs']//tbody/tr")) == 2
    assert "(--top)" not in tree.text_content()


def test_programs_that_ask_each_other_are_drawn() -> None:
    pairs = [ReportPair(one, other, 1, 0, 1, 1, 1, 1, 0, 1) for one, other in ("ab", "bc", "ca")]
    drawn = charts(Results(ReportTotal(1, 1, 0, 3, 6, 6, 0, 0), pairs=pairs))["topology"]
    assert len(drawn["nodes"]) == len(drawn["links"]) == 3
    assert sorted(level for _, level, _ in drawn["nodes"]) == [0, 1, 2]


def test_the_slowest_ways_show_where_their_time_went(tmp_path: Path) -> None:
    ways = charts_of("systems/broker_sleeps.pcap.gz", tmp_path)["ways"]["ways"]
    assert len(ways) == 5
    for way in ways:
        (slowest,) = [row for row in way["rows"] if row[3] == "slowest"]
        assert slowest[0].startswith("10.9.0.35:")
        assert 150_000_000 < slowest[2] <= way["whole"]
        assert slowest[5] == "joined by its envelope"


def test_lost_ways_show_where_they_ended(tmp_path: Path) -> None:
    ways = charts_of("systems/worker_dies.pcap.gz", tmp_path)["ways"]["ways"]
    ended = [row for way in ways for row in way["rows"] if row[3] == "ended"]
    assert "10.9.0.31:33278" in {row[0] for row in ended}


def test_findings_come_first(tmp_path: Path) -> None:
    tree = page_of(tmp_path, "rec_plain_wrong_password.pcap")
    assert tree.xpath("//section/@id")[0] == "findings"
    assert "credentials-refused" in tree.xpath("//table[@data-name='findings']//td")[0].text_content()


def test_a_finding_that_repeats_a_problem_has_its_code(tmp_path: Path) -> None:
    tree = page_of(tmp_path, "rec_no_delimiter.pcap")
    cells = [cell.text_content() for cell in tree.xpath("//table[@data-name='findings']//td")]
    assert cells[0] == "warning no-delimiter"
    assert cells[4].startswith("a message to or from a REQ or REP socket has no empty frame")


def test_of_what_passes_a_filter(tmp_path: Path) -> None:
    tree = page_of(tmp_path, "m31_req_rep.pcap", "m31_pub_sub.pcap", options=["-Y", 'socket_type == "PUB"'])
    assert "2 files" in tree.xpath("//header")[0].text_content()
    assert "14 messages" in tree.xpath("//header")[0].text_content()
    assert tree.xpath("//table[@data-name='sockets']//td[1]/a/text()") == ["127.0.0.1:20209"]
    assert tree.xpath("//table[@data-name='pairs']//td[2]/a/text()") == ["127.0.0.1:20209"]


def test_to_standard_output_in_its_own_encoding() -> None:
    """The page says which one it has: that of the terminal does not matter."""
    command = [sys.executable, "-m", "zmtpsniff", "report", str(FIXTURES / "m31_req_rep.pcap"), "-o", "-"]
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    done = subprocess.run(command, env=environment, capture_output=True, encoding="utf-8", check=False)
    assert done.stdout.startswith("<!DOCTYPE html>")
    assert done.stdout.endswith("</html>\n")
    assert done.stderr == ""


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["nowhere.pcap", "-o", "x.html"], "zmtpsniff: nowhere.pcap: "),
        ([str(FIXTURES / "m31_req_rep.pcap")], "zmtpsniff: Missing option '-o'"),
        ([str(FIXTURES / "m31_req_rep.pcap"), "-o", str(FIXTURES / "m31_req_rep.pcap")], "zmtpsniff: -o "),
        ([str(FIXTURES / "m31_req_rep.pcap"), "-o", "nowhere/x.html"], "zmtpsniff: nowhere/x.html"),
        ([str(FIXTURES / "m31_req_rep.pcap"), "-o", "x.html", "-Y", "nonsense"], "zmtpsniff: -Y: "),
    ],
)
def test_errors(options: list[str], said: str, tmp_path: Path) -> None:
    done = run("report", *options, cwd=tmp_path)
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert line.startswith(said)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", NASTY)
def test_nothing_nasty_gets_into_the_page(name: str) -> None:
    counted = CaptureReport(100)
    counted.take(conversations(NASTY[name]))
    text = page(counted.results("a\x1b\u202e.pcap", 1), "<b>\x1b\u202e", "zmtpsniff report")
    own, _, scripts = text.partition("<script>")  # behind it are only the page's own scripts
    assert all(CONTROL_OR_UNSEEN.search(line) is None for line in own.split("\n"))
    assert scripts.count("</script>") == 2
    tree: Any = html.fromstring(own + "</body></html>")
    assert not tree.xpath("//img | //b[not(ancestor::div)] | //svg")
    json.loads(tree.xpath("//script[@id='data']/text()")[0])
    assert re.search(r"<script(?! type=\"application/json\" id=\"data\">)", own) is None


def conversation(flow: int, messages: int, fault: int | None = None, server: str = "10.0.0.2:5555") -> list[Any]:
    """Messages of one connection, and behind one of them a problem."""
    client = f"10.0.0.1:{4000 + flow}"
    events: list[Any] = []
    for number in range(messages):
        events.append(Message(number, number + 1, flow, client, server, [b"%d" % number], "PUSH"))
        if number == fault:
            events.append(Problem("error", "bad", "x", number, number + 1, flow, client, server))
    peers = (Peer(client, None, "PUSH"), Peer(server, None, "PULL"))
    events.append(Connection(flow, "tcp", *peers, Sides(messages, 0), Sides(0, 0), 0, messages, "fin"))
    return events


def test_a_conversation_is_told_in_parts() -> None:
    chosen = ChosenConversations()
    chosen.take(conversation(1, 100, fault=60))
    (told,) = chosen.told()
    assert [step.text.partition(" ")[2] for step in told.steps[18:]] == [
        '"18"', '"19"', "bad: x", '"92"', '"93"', '"94"', '"95"', '"96"', '"97"', '"98"', '"99"',
    ]  # fmt: skip
    assert [step.left_out for step in told.steps if step.left_out] == [41, 31]
    assert told.problems == {"error": 1}


def test_conversations_are_chosen_by_what_is_wrong_and_by_kind() -> None:
    chosen = ChosenConversations()
    chosen.take(conversation(1, 500))
    chosen.take(conversation(2, 20, fault=3))
    chosen.take(conversation(3, 30))
    for flow in range(4, 40):
        chosen.take(conversation(flow, 2, server=f"10.0.0.2:{flow}"))
    told = chosen.told()
    assert [each.flow for each in told][:2] == [2, 4]
    assert len(told) == 12
    assert 1 not in [each.flow for each in told]  # one of its kind is there, and other kinds are worth more
    assert [each.flow for each in chosen.told(100)][-1] == 1


def test_conversations_take_bounded_memory() -> None:
    chosen = ChosenConversations()
    sizes = []
    for flow in range(2000):
        chosen.take(conversation(flow, 60)[:-1])
        if flow in (999, 1999):
            sizes.append(entries(chosen))
    assert sizes[0] == sizes[1] < 500 * 100


def test_nothing_at_all() -> None:
    counted = CaptureReport(10)
    counted.take([Capture(10, 0, 0, 0, 0, 0, 0)])
    text = page(counted.results("x", 1), "x", "x")
    assert "There is no error and no warning." in text
