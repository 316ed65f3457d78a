"""A report of captures: made while they are read, by the command, of whatever peers say."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from lxml import html

from dissectors.events import Capture, Connection, Message, Peer, Problem, Sides
from tests.render.test_output_safety import NASTY, conversations
from tests.support.footprint import entries
from tests.support.paths import FIXTURES
from tests.support.runner import run
from zmtpsniff.cli.main import cli
from zmtpsniff.report.capture_report import CaptureReport
from zmtpsniff.report.conversations import Conversations
from zmtpsniff.report.page import page
from zmtpsniff.words.text import CONTROL_OR_UNSEEN


def make(*options: str) -> tuple[int, str]:
    done = CliRunner().invoke(cli, ["report", *options], catch_exceptions=False)
    return done.exit_code, done.output


def test_command(tmp_path: Path) -> None:
    output = tmp_path / "report.html"
    assert make(str(FIXTURES / "rec_proxy.pcap"), "-o", str(output), "--title", "A <proxy>") == (0, "")
    tree: Any = html.fromstring(output.read_text())
    assert tree.xpath("//h1")[0].text == "A <proxy>"
    assert "22 messages" in tree.xpath("//header")[0].text_content()
    assert tree.xpath("//table[@data-name='pairs']//td[2]/a/text()") == ["127.0.0.1:5572", "127.0.0.1:5573"]
    assert tree.xpath("//table[@data-name='latency']//td[2]/text()") == ["10", "5", "5"]
    rungs = [" ".join(rung.text_content().split()) for rung in tree.xpath("//*[@class='rung message from-client']")]
    assert any('REQ "" "request" "a 0"' in rung for rung in rungs)


def test_findings_come_first(tmp_path: Path) -> None:
    output = tmp_path / "report.html"
    assert make(str(FIXTURES / "rec_plain_wrong_password.pcap"), "-o", str(output)) == (0, "")
    tree: Any = html.fromstring(output.read_text())
    assert tree.xpath("//section/@id")[0] == "findings"
    assert "credentials-refused" in tree.xpath("//table[@data-name='findings']//td")[0].text_content()


def test_of_what_passes_a_filter(tmp_path: Path) -> None:
    output = tmp_path / "report.html"
    captures = (str(FIXTURES / "m31_req_rep.pcap"), str(FIXTURES / "m31_pub_sub.pcap"))
    assert make(*captures, "-o", str(output), "-Y", 'socket_type == "PUB"') == (0, "")
    tree: Any = html.fromstring(output.read_text())
    assert "2 files" in tree.xpath("//header")[0].text_content()
    assert "14 messages" in tree.xpath("//header")[0].text_content()
    assert tree.xpath("//table[@data-name='sockets']//td[1]/a/text()") == ["127.0.0.1:20209"]
    assert tree.xpath("//table[@data-name='pairs']//td[2]/a/text()") == ["127.0.0.1:20209"]


def test_to_standard_output() -> None:
    command = [sys.executable, "-m", "zmtpsniff", "report", str(FIXTURES / "m31_req_rep.pcap"), "-o", "-"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
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
    chosen = Conversations()
    chosen.take(conversation(1, 100, fault=60))
    (told,) = chosen.told()
    assert [step.text.partition(" ")[2] for step in told.steps[18:]] == [
        '"18"', '"19"', "bad: x", '"92"', '"93"', '"94"', '"95"', '"96"', '"97"', '"98"', '"99"',
    ]  # fmt: skip
    assert [step.left_out for step in told.steps if step.left_out] == [41, 31]
    assert told.problems == {"error": 1}


def test_conversations_are_chosen_by_what_is_wrong_and_by_kind() -> None:
    chosen = Conversations()
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
    chosen = Conversations()
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
