"""The terminal, driven as a user does: by keys and the mouse, at several sizes."""

import asyncio
import json
import os
from collections.abc import Callable, Coroutine
from functools import wraps
from pathlib import Path
from typing import Any

import pytest
from textual.events import Key

import zmtpsniff
from dissectors.events import Cut, Message
from tests.support.browse_terminal import PacketFeed, Screenful, browsing, make_live, make_reader
from tests.support.examples import crossed
from tests.support.paths import FIXTURES, PROJECT
from tests.world.tap import load
from zmtpsniff.browse.browse_options import THEMES, BrowseOptions
from zmtpsniff.browse.virtual_list import VirtualList
from zmtpsniff.filters.completion import FieldCompletion

REQ_REP = FIXTURES / "m31_req_rep.pcap"
PROXY = FIXTURES / "rec_proxy_ok.pcap"
PUB_SUB = FIXTURES / "rec_forwarder.pcap"
GOLDEN = Path(__file__).parent / "golden"


def in_terminal(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Run a coroutine as a test."""

    @wraps(test)
    def run(**arguments: Any) -> None:
        asyncio.run(test(**arguments))

    return run


def cursor(shown: Screenful) -> int:
    return shown.app.query_one("#records", VirtualList).cursor


def messages(shown: Screenful) -> list[int]:
    """The rows of the messages."""
    index = shown.app.reader.index
    return [row for row in range(len(index)) if index.is_message(row)]


async def go_to_field(shown: Screenful, label: str) -> None:
    """Put the tree's cursor on the next field of that name."""
    while (field := shown.app.view.field) is not None and field.label != label:
        await shown.press("j")


SCREENS: dict[str, tuple[Path, tuple[int, int], list[str]]] = {
    "panes": (REQ_REP, (80, 24), ["j", "j", "j", "j", "tab", "j", "j", "j", "j", "j", "j", "j", "j", "j", "j"]),
    "panes-wide": (REQ_REP, (200, 40), ["j", "j", "j", "j"]),
    "octets": (REQ_REP, (80, 24), ["j", "j", "j", "j", "tab", "tab", "l", "l", "l", "l"]),
    "conversations": (PROXY, (80, 24), ["2"]),
    "conversation": (PROXY, (80, 24), ["G", "k", "k", "k", "k", "k", "k", "k", "k", "k", "k", "c"]),
    "trace": (PROXY, (140, 20), ["G", *["k"] * 10, "r"]),
    "trace-narrow": (PROXY, (80, 24), ["G", *["k"] * 10, "r"]),
    "ladder": (PUB_SUB, (160, 24), ["3"]),
    "findings": (FIXTURES / "rec_refused.pcap", (80, 24), ["4"]),
    "topics": (PUB_SUB, (80, 24), ["5"]),
    "no-topics": (REQ_REP, (80, 24), ["5"]),
    "services": (PROXY, (100, 24), ["6"]),
    "statistics": (PUB_SUB, (100, 30), ["7"]),
    "problems": (FIXTURES / "rec_proxy.pcap", (80, 24), ["8"]),
    "help": (REQ_REP, (80, 44), ["question_mark"]),
}


@pytest.mark.parametrize("name", SCREENS)
def test_screens_look_as_they_did(name: str, request: pytest.FixtureRequest) -> None:
    path, size, keys = SCREENS[name]

    golden = GOLDEN / f"{name}.txt"
    renew = request.config.getoption("--renew-golden")

    async def look() -> list[str]:
        async with browsing(make_reader(path), size) as shown:
            await shown.press(*keys)
            if renew:
                await shown.pilot.pause(1)
                golden.write_text(shown.text() + "\n")
            await shown.until(lambda: shown.text() + "\n" == golden.read_text())
            return shown.lines()

    lines = asyncio.run(look())
    assert len(lines) <= size[1]
    assert all(len(line) <= size[0] for line in lines)


@in_terminal
async def test_the_list_has_all_records() -> None:
    async with browsing(make_reader(REQ_REP)) as shown:
        records = list(zmtpsniff.open(REQ_REP))
        assert f"1/{len(records)}" in shown.text()
        await shown.press("G")
        assert f"{len(records)}/{len(records)}" in shown.text()
        assert "capture" in shown.text()
        await shown.press("g", "j", "d", "u", "space", "b", "pagedown", "home")
        assert cursor(shown) == 0
        await shown.press("colon")
        await shown.type("15")
        await shown.press("enter")
        assert getattr(records[cursor(shown)], "packet", None) == 15


@in_terminal
async def test_a_field_is_lit_in_tree_and_octets() -> None:
    async with browsing(make_reader(REQ_REP)) as shown:
        app = shown.app
        await shown.press("j", "j", "j", "j", "tab")
        message = app.reader.index.event(4)
        assert isinstance(message, Message)

        def lit() -> bytes:
            lines = app.view.octet_lines
            return lines.octets[lines.lit.start : lines.lit.stop]

        await go_to_field(shown, "frames[1]")
        assert lit() == b"\x01\x09request 0"
        await shown.press("tab", "l", "l", "l")  # from the flags of that frame on into its body
        assert lit() == b"request 0"
        field = app.view.field
        assert field is not None
        assert field.label == "body"


@in_terminal
async def test_fields_close_and_open() -> None:
    async with browsing(make_reader(REQ_REP)) as shown:
        await shown.press("j", "j", "tab")
        count = len(shown.app.view.tree_lines)
        await shown.press("h")
        assert len(shown.app.view.tree_lines) == 1
        await shown.press("l")
        assert len(shown.app.view.tree_lines) == count
        await shown.press("enter")
        assert len(shown.app.view.tree_lines) == 1


@in_terminal
async def test_a_filter_that_comes_all_at_once_is_typed() -> None:
    """As if pasted, or on a busy machine: no letter of the text is a command of the list of records."""
    async with browsing(make_reader(REQ_REP)) as shown:
        everything = len(shown.app.reader.index)
        for character in "fpacket>5":
            shown.app.post_message(Key(character, character))
        shown.app.post_message(Key("enter", "\r"))
        later = sum(getattr(event, "packet", 0) > 5 for event in zmtpsniff.open(REQ_REP))
        await shown.until_shown(f"/{later} of {everything}")
        assert shown.app.filter_prompt.value == "packet>5"


@in_terminal
async def test_a_filter_completes_and_says_what_is_wrong() -> None:
    async with browsing(make_reader(REQ_REP)) as shown:
        everything = len(shown.app.reader.index)
        await shown.press("f")
        await shown.type("typ")
        assert "Tab: type" in shown.text()
        await shown.press("tab")
        await shown.type(' == "mes')
        await shown.press("tab")
        assert shown.app.filter_prompt.value == 'type == "message"'
        await shown.press("enter")
        count = len(list(zmtpsniff.open(REQ_REP).messages()))
        await shown.until_shown(f"/{count} of {everything}")
        await shown.press("f")
        await shown.type(" && nosuch == 1")
        assert "nosuch" in shown.lines()[-1]  # the error, while it is typed
        await shown.press("enter")
        assert len(shown.app.view.records) == count  # the filter before still holds
        await shown.press("escape", "F")
        assert len(shown.app.view.records) == everything


@in_terminal
async def test_the_cursor_stays_on_its_record_when_the_filter_changes() -> None:
    async with browsing(make_reader(REQ_REP)) as shown:
        await shown.press(*["j"] * 12)
        row = shown.app.view.row
        shown.app.apply_filter('type == "message"')
        await shown.settle()
        assert shown.app.view.row == row
        shown.app.apply_filter("")
        await shown.settle()
        assert shown.app.view.row == row


@in_terminal
async def test_search_goes_both_ways() -> None:
    async with browsing(make_reader(REQ_REP)) as shown:
        await shown.press("slash")
        await shown.type("REPLY 2")
        await shown.press("enter")
        await shown.until(lambda: cursor(shown) > 0)
        first = cursor(shown)
        event = shown.app.reader.index.event(first)
        assert isinstance(event, Message)
        assert b"reply 2" in event.frames
        await shown.press("G", "N")
        await shown.until(lambda: cursor(shown) < len(shown.app.reader.index) - 1)
        assert cursor(shown) >= first
        await shown.press("slash")
        await shown.type("x" * 20)
        await shown.press("enter")
        await shown.until_shown("not found")


@in_terminal
async def test_marks_and_problems_are_gone_to() -> None:
    async with browsing(make_reader(FIXTURES / "rec_proxy.pcap")) as shown:
        await shown.press("j", "j", "m", "j", "j", "j", "m", "g")
        await shown.press("apostrophe")
        assert cursor(shown) == 2
        await shown.press("apostrophe")
        assert cursor(shown) == 5
        await shown.press("quotation_mark")
        assert cursor(shown) == 2
        await shown.press("apostrophe", "m", "g", "apostrophe", "apostrophe")
        assert cursor(shown) == 2
        assert "no mark below" in shown.text()
        await shown.press("e")
        assert cursor(shown) == shown.app.reader.index.problems[0]


@in_terminal
async def test_times_are_told_in_three_ways() -> None:
    async with browsing(make_reader(REQ_REP)) as shown:
        first = shown.lines()[2]
        await shown.press("t")
        assert shown.lines()[2] != first
        assert " 0.000000" in shown.lines()[2]
        await shown.press("t", "j")
        assert "delta" not in shown.lines()[2]
        await shown.press("t")
        assert shown.lines()[2] == first


@in_terminal
async def test_a_view_leads_back_to_records() -> None:
    async with browsing(make_reader(PROXY)) as shown:
        await shown.press("2", "j", "enter")  # the first connection of the first socket
        first = shown.app.reader.index.event(cursor(shown))
        await shown.press("2", "j", "f")
        assert shown.app.filter_prompt.value == f"flow == {getattr(first, 'flow', 0)}"
        await shown.press("F", "2", "f")
        assert shown.app.filter_prompt.value.startswith("flow in {")
        await shown.press("F", "2", "j", "c")
        assert "connection" in shown.lines()[0]
        await shown.press("j", "j", "enter")
        assert len(shown.app.screen_stack) == 1
        assert cursor(shown) > 0


@in_terminal
async def test_a_request_is_followed_through_the_proxy() -> None:
    async with browsing(make_reader(PROXY), (160, 24)) as shown:
        shown.app.go_to_row(messages(shown)[1])  # the request as the proxy sent it on
        await shown.press("r")
        text = shown.text()
        assert "request answered after 301 us; slowest: 135 us inside 127.0.0.1:5574" in text
        assert text.index("REQ") < text.index("ROUTER") < text.index("DEALER") < text.index("REP ")


@in_terminal
async def test_lines_of_views_lead_to_ladders_and_ways() -> None:
    async with browsing(make_reader(PROXY), (160, 24)) as shown:
        await shown.press("2", "j", "L")
        assert shown.lines()[0].startswith("ladder")
        await shown.press("r")  # the first record is a greeting
        assert shown.lines()[0].startswith("ladder")
        await shown.press("escape")
        assert "only a message has a way over brokers and services" in shown.text()
        shown.app.go_to_row(messages(shown)[1])
        await shown.press("c", "r")
        assert "request answered after 301 us" in shown.lines()[0]
        await shown.press("escape", "g", "r")
        assert "only a message has a way" in shown.text()


@in_terminal
async def test_octets_have_the_keys_of_lists() -> None:
    async with browsing(make_reader(REQ_REP)) as shown:
        await shown.press("j", "j", "j", "j", "tab", "tab", "g")
        lines = shown.app.view.octet_lines
        last = len(lines.octets) - 1
        assert lines.cursor == 0
        for key, place in (("j", 16), ("l", 17), ("k", 1), ("G", last), ("b", last % 16), ("space", last), ("home", 0)):
            await shown.press(key)
            assert lines.cursor == place, key


@in_terminal
async def test_a_wide_view_scrolls_with_its_heading_and_tells_other_times() -> None:
    async with browsing(make_reader(PROXY), (40, 24)) as shown:
        await shown.press("G", *["k"] * 10, "L")
        titles, heading, *lines = shown.lines()
        await shown.press("l")
        assert shown.lines()[1].startswith(heading[8:])
        await shown.press("h", "t")
        assert shown.lines()[:2] == [titles, heading]
        assert shown.lines()[2:] != lines


@in_terminal
async def test_a_prompt_has_what_was_typed_before() -> None:
    async with browsing(make_reader(REQ_REP)) as shown:
        prompt = shown.app.filter_prompt
        for text in ("packet > 5", "packet > 6"):
            await shown.press("f")
            prompt.value = text
            await shown.press("enter")
        await shown.press("f", "up", "up", "up")
        assert prompt.value == "packet > 5"
        await shown.press("down", "down", "down")
        assert prompt.value == ""


@in_terminal
async def test_a_pane_alone_takes_all_the_room() -> None:
    async with browsing(make_reader(REQ_REP)) as shown:
        await shown.press("j", "j", "tab", "z")
        assert "Socket-Type" in shown.text()
        assert shown.app.view.tree_pane.size.height > 15
        assert not shown.app.view.list_pane.display
        await shown.press("z")
        assert shown.app.view.list_pane.display
        await shown.press("tab", "tab", "z")
        assert "greeting" in shown.text()
        assert shown.app.view.list_pane.size.height > 15
        await shown.press("escape")
        assert shown.app.view.tree_pane.display


@in_terminal
async def test_the_mouse_works() -> None:
    async with browsing(make_reader(REQ_REP)) as shown:
        await shown.pilot.click("#records", offset=(20, 4))
        assert cursor(shown) == 3
        await shown.pilot.click("#records", offset=(20, 5), times=2)
        assert shown.app.view.tree_pane.has_focus
        await shown.pilot.click("#octets", offset=(9, 1))
        assert shown.app.view.octet_lines.cursor == 1


@in_terminal
async def test_frames_records_and_packets_are_saved_and_copied() -> None:
    where = Path(os.environ["PYTEST_TMP"])
    async with browsing(make_reader(PROXY)) as shown:
        first = messages(shown)[0]
        shown.app.go_to_row(first)
        event = shown.app.reader.index.event(first)
        assert isinstance(event, Message)
        await shown.press("Y")
        assert json.loads(shown.app.clipboard)["packet"] == event.packet
        await shown.press("tab")
        await go_to_field(shown, "frames[1]")
        await shown.press("y")
        assert shown.app.clipboard.encode() == event.frames[1]

        async def save(key: str, name: str) -> None:
            await shown.press(key)
            shown.app.question_prompt.value = str(where / name)
            await shown.press("enter")
            await shown.until(lambda: "saved" in shown.text() or "exists" in shown.text())

        await save("w", "frame")
        assert (where / "frame").read_bytes() == event.frames[1]
        await save("w", "frame")
        assert "exists" in shown.text()  # nothing is written over
        await save("W", "record")
        assert json.loads((where / "record").read_text())["type"] == "message"
        shown.app.apply_filter(f"flow == {event.flow}")
        await shown.settle()
        await save("P", "some.pcapng")
    again = list(zmtpsniff.open(where / "some.pcapng").messages())
    expected = [message for message in zmtpsniff.open(PROXY).messages() if message.flow == event.flow]
    assert [message.frames for message in again] == [message.frames for message in expected]


@in_terminal
async def test_a_name_that_is_proposed_is_replaced_or_edited() -> None:
    where = Path(os.environ["PYTEST_TMP"])
    async with browsing(make_reader(REQ_REP)) as shown:
        await shown.press("W")
        assert shown.app.question_prompt.value == "record.json"
        await shown.type("mine")
        await shown.press("enter")
        await shown.until(lambda: "saved" in shown.text())
        await shown.press("W", "left")
        await shown.type("2-")
        await shown.press("enter")
        await shown.until(lambda: (where / "2-record.json").exists())
        await shown.press("W", "right")
        await shown.type("l")
        await shown.press("enter")
        await shown.until(lambda: (where / "record.jsonl").exists())
        await shown.press("slash")
        await shown.type("reply")
        await shown.press("enter", "slash")
        await shown.type("request")
        assert shown.app.question_prompt.value == "request"
    assert sorted(path.name for path in where.iterdir()) == ["2-record.json", "mine", "record.jsonl"]


@pytest.fixture(autouse=True)
def _where(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTEST_TMP", str(tmp_path))
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(("theme", "size"), crossed([*THEMES], [(80, 24), (40, 10), (200, 60)]))
@in_terminal
async def test_it_works_at_any_size_in_any_colours(theme: str, size: tuple[int, int]) -> None:
    async with browsing(make_reader(REQ_REP), size, BrowseOptions("x", utc=True, theme=theme)) as shown:
        for keys in (
            ["j", "tab", "j", "tab", "l", "z", "z"],
            ["2", "escape", "3", "j", "escape", "T", "question_mark"],
        ):
            await shown.press(*keys)
            assert len(shown.lines()) <= size[1]


@in_terminal
async def test_without_colours_the_cursor_and_the_field_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """NO_COLOR: what is chosen is reversed, what is left is underlined."""
    monkeypatch.setenv("NO_COLOR", "1")
    async with browsing(make_reader(REQ_REP)) as shown:
        assert shown.app.no_color
        strip = shown.app.view.list_pane.render_line(0)
        assert any(segment.style and segment.style.reverse for segment in strip)
        await shown.press("tab")
        strip = shown.app.view.list_pane.render_line(0)
        assert any(segment.style and segment.style.underline for segment in strip)


@in_terminal
async def test_live_records_come_and_a_pause_loses_none() -> None:
    packets = load(REQ_REP)
    feed = PacketFeed(packets)
    async with browsing(make_live(feed), look=BrowseOptions("lo", is_live=True, utc=True), wait=False) as shown:
        app = shown.app
        feed.allowed = 20
        await shown.until(lambda: len(app.reader.index) > 5)
        await shown.until_shown("following")
        await shown.until(lambda: cursor(shown) == len(app.view.records) - 1)
        await shown.press("p")
        before = len(app.view.records)
        feed.allowed = len(packets)
        await shown.until(lambda: len(app.reader.index) > before)
        await shown.pilot.pause(0.4)
        assert len(app.view.records) == before
        assert "paused" in shown.text()
        feed.dropped = 7
        await shown.press("p")
        await shown.until(lambda: len(app.view.records) > before)
        await shown.until_shown("7 dropped")
        await shown.press("k", "k")
        assert "following" not in shown.text()
        await shown.press("G")
        await shown.until_shown("following")
        await shown.press("s")
        await shown.until_shown("over")
        kinds = [type(event) for event in app.reader.index.events(0, len(app.reader.index))]
        assert kinds.count(Message) == len(list(zmtpsniff.open(REQ_REP).messages()))


@in_terminal
async def test_a_long_frame_is_saved_as_far_as_it_is_kept() -> None:
    where = Path(os.environ["PYTEST_TMP"]) / "long"
    async with browsing(make_reader(FIXTURES / "net_snaplen96.pcap"), (160, 24)) as shown:
        events = list(shown.app.reader.index.events(0, len(shown.app.reader.index)))
        row, label, frame = next(
            (row, f"frames[{place}]", frame)
            for row, event in enumerate(events)
            if isinstance(event, Message)
            for place, frame in enumerate(event.frames)
            if isinstance(frame, Cut)
        )
        shown.app.go_to_row(row)
        await shown.press("tab")
        await go_to_field(shown, label)
        await shown.press("w")
        shown.app.question_prompt.value = str(where)
        await shown.press("enter")
        await shown.until_shown(f"the first of {frame.length:,}")
        assert where.read_bytes() == frame.data


@in_terminal
async def test_a_capture_that_cannot_be_read_on_says_so() -> None:
    broken = Path(os.environ["PYTEST_TMP"]) / "broken.pcap"
    octets = REQ_REP.read_bytes()
    broken.write_bytes(octets[: len(octets) // 2])
    async with browsing(make_reader(broken)) as shown:
        problems = [shown.app.reader.index.event(row) for row in shown.app.reader.index.problems]
        assert "capture-truncated" in [getattr(problem, "code", "") for problem in problems]
        await shown.press("8")
        assert "capture-truncated" in shown.text()


@in_terminal
async def test_a_finding_leads_to_what_came_next_where_its_packets_have_no_records() -> None:
    async with browsing(make_reader(FIXTURES / "app_salt.pcap")) as shown:  # refused at the end, and before
        await shown.until(lambda: shown.app.reader.is_over)
        await shown.press("4")
        assert "nobody listens" in shown.text()
        await shown.press("enter")
        assert "nobody listens" not in shown.text()
        assert cursor(shown) == shown.app.reader.index.row_from_packet(120)


def test_completion_knows_all_fields_and_record_types() -> None:
    completion = FieldCompletion()
    assert completion.complete("pack") == "packet"
    assert completion.complete("flow == 1 && latency") == "flow == 1 && latency_ns"
    assert completion.complete('type == "prob') == 'type == "problem"'
    assert completion.complete("nothing_like_it") is None
    assert completion.complete("") is None
    assert completion.candidates("latency_ns > 1m") == []  # a unit, no field
    assert completion.candidates("frames.te") == ["frames.text"] or completion.candidates("frames")


def test_help_names_every_key() -> None:
    text = (PROJECT / "zmtpsniff/browse/help.txt").read_text()
    assert all(len(line) <= 78 for line in text.splitlines())
    for key in "jkdubgGhl:tTz fF/nNeEm'\"yYwWPcrLps12345678q":
        assert key in text
