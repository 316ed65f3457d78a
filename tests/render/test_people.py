"""The formats for people: the tree, the summary and the dump."""

import fcntl
import io
import os
import re
import struct
import subprocess
import sys
import termios
import unicodedata
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from rich.cells import cell_len

from dissectors.events import (
    AnyEvent,
    Command,
    Comment,
    Cut,
    Greeting,
    Message,
    Octets,
    Problem,
    Share,
    Subscription,
    Work,
)
from tests.support.made_up_events import made_up, made_up_events
from zmtpsniff.render import FORMATS, Format, make_renderer
from zmtpsniff.render.color import Color
from zmtpsniff.render.console import terminal_width
from zmtpsniff.render.line_columns import columns_of, cut
from zmtpsniff.render.summary import SummaryRenderer
from zmtpsniff.render.tree import TreeRenderer

FOR_PEOPLE = tuple(form for form in FORMATS if form != "json")

CLIENT, SERVER = "10.0.0.1:43210", "10.0.0.2:5555"
T = 1_700_000_000_123_456_789
PLACE = (T, 17, 1, CLIENT, SERVER)
SPACES = re.compile(" +$", re.MULTILINE)
SGR = re.compile(r"\x1b\[[0-9;]*m")
_bodies = st.lists(made_up(Octets), min_size=1, max_size=6)
events = made_up_events()


def shown(output: Format, batch: list[Any], encoding: str = "utf-8", **options: Any) -> str:
    """The output of a renderer to a stream of that encoding."""
    buffer = io.BytesIO()
    stream = io.TextIOWrapper(buffer, encoding=encoding, newline="")
    renderer = make_renderer(output, stream, utc=True, **options)
    renderer.write(batch)
    renderer.finish()
    stream.flush()
    return buffer.getvalue().decode(encoding)


# Safety


def assert_harmless(text: str) -> None:
    harmful = [char for char in text if char != "\n" and unicodedata.category(char) in ("Cc", "Cf", "Zl", "Zp", "Cs")]
    assert not harmful


@given(st.lists(events, max_size=3), st.sampled_from(FOR_PEOPLE), st.integers(0, 2))
def test_nothing_but_lines_reaches_a_terminal_without_colors(
    batch: list[AnyEvent], output: Any, verbosity: int
) -> None:
    assert_harmless(shown(output, batch, verbosity=verbosity, color="never"))
    assert_harmless(shown(output, batch, verbosity=verbosity, color="never", max_bytes=0))


@given(st.lists(events, max_size=3), st.sampled_from(["tree", "summary"]), st.integers(0, 1))
@example([Command(0, 1, 1, "", "", "")], "summary", 0)
def test_colors_are_the_only_escape_sequences(batch: list[AnyEvent], output: Any, verbosity: int) -> None:
    colored = shown(output, batch, verbosity=verbosity, color="always")
    assert_harmless(SGR.sub("", colored))
    # Colours change nothing but colours, and spaces at the end of a line; every one that begins ends in its line.
    plain = shown(output, batch, verbosity=verbosity, color="never")
    assert SPACES.sub("", SGR.sub("", colored)) == SPACES.sub("", plain)
    for line in colored.split("\n"):
        sequences = SGR.findall(line)
        assert sequences[1::2] == ["\x1b[0m"] * (len(sequences) // 2)
        assert len(sequences) % 2 == 0


@given(st.lists(events, max_size=3), st.sampled_from(FOR_PEOPLE))
def test_ascii_terminals_get_ascii(batch: list[AnyEvent], output: Any) -> None:
    assert_harmless(shown(output, batch, "ascii", color="never"))


@given(st.lists(events, max_size=3), st.sampled_from(FORMATS))
def test_every_record_is_whole_lines(batch: list[AnyEvent], output: Any) -> None:
    text = shown(output, batch, color="never")
    assert text == "" or text.endswith("\n")
    if output in ("summary", "json"):
        assert len(re.findall(r"^(?!(?:\d+-\d\d-\d\d|@\d+) UTC$)", text, re.MULTILINE)) - 1 == len(batch)


@given(_bodies, st.sampled_from(["tree", "summary"]), st.integers(0, 1), st.booleans())
def test_messages_of_a_run_are_shown_as_each_by_itself(
    bodies: list[Any], output: Any, verbosity: int, whole: bool
) -> None:
    """A part that is made once for many messages of a packet is right for each of them."""
    options: dict[str, Any] = {"verbosity": verbosity, "max_bytes": 0 if whole else 8, "color": "always"}
    run = [Message(*PLACE, [body], "PUSH") for body in bodies]
    by_themselves = shown(output, [Message(*PLACE, [body], "PUSH", incomplete=True) for body in bodies], **options)
    said = re.compile(r"\x1b\[1;33m, incomplete\x1b\[0m| \(incomplete\)")
    assert shown(output, run, **options) == said.sub("", by_themselves)


# Summary


@pytest.mark.parametrize(
    ("event", "line"),
    [
        (Message(*PLACE, [b"x"], "PUB", incomplete=True), 'message PUB     1 frame       1 octet  "x" (incomplete)'),
        (
            Message(*PLACE, [b"a"] * 9),
            'message         9 frames      9 octets "a" "a" "a" "a" "a" "a" "a" "a" ... 1 more frame',
        ),
        (Greeting(*PLACE, "2.0", socket_type="SUB", identity=b""), 'greeting       ZMTP 2.0 SUB identity ""'),
        (Greeting(*PLACE, "ZWS2.0", "NULL"), "greeting       ZWS 2.0 NULL"),
        (Command(*PLACE, "PING", ttl_ms=1500, context=b""), 'PING           ttl=1500 ms context=""'),
        (Subscription(*PLACE, "cancel", b"", "command"), 'cancel         "" (everything)'),
    ],
)
def test_summary(event: AnyEvent, line: str) -> None:
    assert shown("summary", [event]) == f"22:13:20.123456    #17 connection 1  {CLIENT} > {SERVER}  {line}\n"


def test_summary_of_long_messages() -> None:
    batch = [Message(*PLACE, [b"a", Cut(b"", 9), *[b""] * 7, Cut(b"b", 5)], "PUB", incomplete=True)]
    start = f"   #17 connection 1  {CLIENT} > {SERVER}  message PUB    10 frames     15 octets"
    first = ['"a"', '""...', *['""'] * 6]
    assert shown("summary", batch).split(" ", 1)[1] == f"{start} {' '.join(first)} ... 2 more frames (incomplete)\n"
    for whole in (shown("summary", batch, verbosity=1), shown("summary", batch, max_bytes=0)):
        assert whole.split(" ", 1)[1] == f'{start} {" ".join(first)} "" "b"... (incomplete)\n'


@pytest.mark.parametrize("output", ["tree", "summary"])
def test_bodies_are_longer_when_all_is_asked_for(output: Any) -> None:
    batch = [Message(*PLACE, [b"x" * 5000])]
    lengths = [len(max(re.findall("x+", shown(output, batch, verbosity=level)), key=len)) for level in range(4)]
    usual = 64 if output == "tree" else 32
    assert lengths == [usual, usual, 4096, 4096]
    assert len(max(re.findall("x+", shown(output, batch, verbosity=2, max_bytes=7)), key=len)) == 7


def test_summary_tells_a_change_of_date() -> None:
    day = 86_400 * 10**9
    early, late = Message(*PLACE, [b"a"]), Message(T + day, 18, 1, SERVER, CLIENT, [b"b"])
    problem = Problem("note", "some-code", "A sentence.", T)
    # Connections that time out end in the past.
    text = shown("summary", [early, problem, late, late, Comment("c"), problem, late])
    assert [line.split(" ")[0] for line in text.splitlines()] == [
        *("22:13:20.123456", "22:13:20.123456", "2023-11-15", "22:13:20.123456", "22:13:20.123456", "comment"),
        *("2023-11-14", "22:13:20.123456", "2023-11-15", "22:13:20.123456"),
    ]
    assert "\n2023-11-15 UTC\n" in text


def test_summary_of_what_has_no_place() -> None:
    problem = Problem("warning", "capture-truncated", "a.pcap ends early.")
    assert shown("summary", [problem, Comment("line\nline")]) == (
        'warning        capture-truncated: a.pcap ends early.\ncomment        "line\\nline"\n'
    )


def on_terminal(width: int, *batch: AnyEvent) -> list[str]:
    """The lines on a terminal of so many columns, without their colours."""
    stream = io.StringIO()
    renderer = SummaryRenderer(stream, utc=True, color="always", width=width)
    renderer.write(batch)
    return SGR.sub("", stream.getvalue()).splitlines()


@pytest.mark.parametrize("body", [b'{"a": ' + b"1" * 500 + b"}", b"\xff" * 500, "語".encode() * 100, b"x"])
def test_summary_fits_its_terminal_and_cuts_text_last(body: bytes) -> None:
    message = Message(*PLACE, [b"topic", body], "PUB", request=12, latency_ns=1000)
    wide, narrow, narrower = [on_terminal(width, message)[0] for width in (200, 120, 80)]
    for width, line in ((200, wide), (120, narrow), (80, narrower)):
        assert cell_len(line) <= width
        assert cell_len(line) > width - 4 or body == b"x"  # a wide character and the blank behind it may not fit
        assert '"topic"' in line
    assert f"connection 1  {CLIENT} > {SERVER}" in wide
    assert "flow" not in narrow
    assert "43210 > 5555" in narrower
    assert "frames" in narrow
    assert "frames" not in narrower
    assert "after #12" in wide


def test_a_narrow_summary_keeps_the_latency_and_shortens_the_frames() -> None:
    reply = Message(*PLACE, [b"", b"a reply of many octets " * 5], "REP", request=12, latency_ns=114_000)
    assert on_terminal(80, reply)[0].endswith("... (114 us)")
    assert on_terminal(200, reply)[0].endswith("... (114 us after #12)")


def test_a_narrow_summary_keeps_hosts_if_there_are_several() -> None:
    others = [Message(*PLACE[:3], f"10.0.0.{host}:40000", SERVER, [b"x" * 99], "REQ") for host in (3, 4)]
    lines = on_terminal(80, *others)
    assert "43210 > 5555" in on_terminal(80, Message(*PLACE, [b"x"], "REQ"))[0]
    assert f"10.0.0.4:40000 > {SERVER}" in lines[-2]
    assert lines[-1].startswith('    "xxx')
    assert all(len(line) <= 80 for line in lines)


def test_summary_on_a_terminal_of_any_width_is_harmless() -> None:
    message = Message(*PLACE, [b"\x1b[31m" * 20, "\u202e語".encode() * 20, b"\0"], "\x1b[2J")
    for width in range(1, 130):
        for line in on_terminal(width, message):
            assert_harmless(line)


@given(st.text(alphabet=st.characters(exclude_categories=["Cc", "Cf", "Cs", "Zl", "Zp"])), st.integers(1, 20))
def test_cut_text_takes_no_more_than_its_columns(text: str, columns: int) -> None:
    kept = cut(text, columns)
    assert columns_of(kept) <= columns
    assert kept == text or (columns_of(text) > columns and kept.endswith("..."[:columns]))


@pytest.mark.parametrize(
    ("times", "expected"),
    [
        ("relative", ["0.000000", "0.000000", "1.500000", "-0.000001"]),
        ("delta", ["0.000000", "0.000000", "1.500000", "-1.500001"]),
    ],
)
@pytest.mark.parametrize("output", ["tree", "summary"])
def test_times_can_be_told_from_others(output: Any, times: Any, expected: list[str]) -> None:
    batch = [Message(time_ns, 17, 1, CLIENT, SERVER, [b"x"]) for time_ns in (T, T, T + 1_500_000_000, T - 1000)]
    lines = shown(output, batch, times=times).splitlines()
    assert [line.split()[0] for line in lines if CLIENT in line] == expected
    assert not any("2023" in line for line in lines)
    whole = shown(output, batch, times=times, verbosity=1).splitlines()
    assert [line.split()[0] for line in whole if CLIENT in line] == [f"{time}000" for time in expected]


def test_tree_fills_its_terminal() -> None:
    body = b'{"a": "' + b"x" * 300 + b'"}'
    for width in (80, 200):
        stream = io.StringIO()
        TreeRenderer(stream, width=width).write([Message(*PLACE, [b"topic", body, b"\xff" * 300], "PUB")])
        lines = [line for line in stream.getvalue().splitlines() if "[" in line or line.startswith("    ")]
        text = next(line for line in lines if "xxx" in line)
        assert width - 10 < len(text) <= width
        assert sum(["ff ff" in line for line in lines]) == 4  # dumps stay short


def test_width_is_that_of_a_terminal_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    assert terminal_width(io.StringIO()) is None
    leader, follower = os.openpty()
    with open(follower, "w") as stream, open(leader, "rb"):
        assert terminal_width(stream) is None  # it has not said how wide it is
        fcntl.ioctl(stream, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 133, 0, 0))
        assert terminal_width(stream) == 133
        monkeypatch.setenv("COLUMNS", "77")
        assert terminal_width(stream) == 77


# Dump


def test_dump_is_what_zhelpers_prints() -> None:
    batch: list[AnyEvent] = [
        Message(*PLACE, [b"", b"hello", b"\x00\xab", "é".encode()]),
        Subscription(*PLACE, "subscribe", b"weather.", "message"),
        Message(*PLACE, [b"x" * 1000]),
    ]
    rule = "-" * 40
    assert shown("dump", batch) == f"{rule}\n[000] \n[005] hello\n[002] 00AB\n[002] C3A9\n{rule}\n[1000] {'x' * 1000}\n"
    assert shown("dump", batch[2:], max_bytes=4) == f"{rule}\n[1000] xxxx...\n"


# Tree


def tree(*batch: AnyEvent, **options: Any) -> list[str]:
    return shown("tree", list(batch), color="never", **options).split("\n")[:-1]


FIRST = f"22:13:20.123456    #17 connection 1  {CLIENT} → {SERVER}  "


def test_tree_of_commands_as_they_were_sent() -> None:
    assert tree(
        Command(*PLACE, "READY", {"socket-type": b"REQ", "IDENTITY": b"me", "x-a": b"\x00"}, "REQ", b"me"),
        Command(*PLACE, "ERROR", reason=b"Go away" * 8),
    )[1:] == [FIRST + 'READY REQ  IDENTITY "me"  x-a 0x00', FIRST + "ERROR", f'    reason "{"Go away" * 8}"']


def test_tree_says_everything_when_asked() -> None:
    first = FIRST.replace("20.123456", "20.123456789")
    assert tree(
        Greeting(*PLACE, "3.1", "NULL", False),
        Command(*PLACE, "READY", {"Socket-Type": b"REQ", "Identity": b""}, "REQ", b""),
        Message(*PLACE, [b'{"a":[1,{}]}']),
        verbosity=1,
    )[1:] == [
        first + "greeting ZMTP 3.1 NULL",
        "    version    3.1",
        "    mechanism  NULL",
        "    as server  no",
        first + "READY REQ",
        '    Socket-Type  "REQ"',
        '    Identity     ""',
        first + "message, 1 frame, 12 octets",
        "    {",
        '      "a": [',
        "        1,",
        "        {}",
        "      ]",
        "    }",
        "    0000  7b 22 61 22 3a 5b 31 2c  7b 7d 5d 7d" + " " * 12 + '  |{"a":[1,{}]}|',
    ]


def test_tree_of_work() -> None:
    shares = [Share(f"10.0.0.{number}:5", 2, 0.1) for number in range(1, 11)]
    lines = tree(Work(SERVER, 20, [Share(CLIENT, 1, 0.05), *shares]))
    assert lines[:2] == [f"work of {SERVER}  11 workers, 20 messages", f"      5.0%  {CLIENT}  1 message"]
    assert lines[-1] == "    … 3 more"
    assert len(lines) == 1 + 8 + 1


def test_tree_tells_a_change_of_date() -> None:
    early, late = Message(*PLACE, [b"a"]), Message(T + 86_400 * 10**9, 18, 1, SERVER, CLIENT, [b"b"])
    lines = tree(early, late, late, Problem("note", "some-code", "A sentence.", T), late)
    days = ["2023-11-14 UTC", "2023-11-15 UTC"]
    assert [line for line in lines if line.startswith("2023")] == [*days, *days]


@pytest.mark.parametrize(
    ("color", "environment", "colored"),
    [
        ("auto", {}, False),  # no terminal
        ("auto", {"FORCE_COLOR": "1"}, True),
        ("auto", {"FORCE_COLOR": "1", "NO_COLOR": "1"}, False),
        ("auto", {"FORCE_COLOR": "1", "TERM": "dumb"}, False),
        ("always", {"NO_COLOR": "1", "TERM": "dumb"}, True),
        ("never", {"FORCE_COLOR": "1"}, False),
    ],
)
def test_color_option(
    color: Color, environment: dict[str, str], colored: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("NO_COLOR", "FORCE_COLOR", "COLORTERM", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert ("\x1b" in shown("tree", [Message(*PLACE, [b"a"])], color=color)) == colored


# Output without colours does not wait for rich


@pytest.mark.parametrize("output", ["json", "summary", "dump"])
def test_rich_is_not_imported(output: str) -> None:
    code = (
        "import sys, zmtpsniff.render\n"
        "assert 'msgspec' not in sys.modules and 'rich' not in sys.modules\n"
        f"zmtpsniff.render.make_renderer({output!r}, sys.stdout)\n"
        "assert not any(name.split('.')[0] == 'rich' for name in sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, env={**os.environ, "PYTHONPATH": ":".join(sys.path)})


def test_unknown_format_is_refused() -> None:
    with pytest.raises(ValueError, match="unknown output format"):
        make_renderer("xml", io.StringIO())  # type: ignore[arg-type]
