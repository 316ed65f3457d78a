"""Every command that README and docs show works: it is run, or it is marked in the page why not, and is right then."""

import contextlib
import re
import shlex
import shutil
from pathlib import Path

import click
import pytest

from tests.support.paths import PROJECT
from tests.support.shown_commands import (
    PAGES,
    POLICY,
    Block,
    blocks,
    can_capture,
    folder,
    inline_commands,
    run,
    without_blocks,
)
from zmtpsniff.cli.main import cli

_NEEDS = re.compile(r"\blive\b|tcpdump|tshark|strace|jq\b")
# Words that stand for something.
_WORDS = re.compile(r"\b(CODE|COMMAND|DIR|INPUT|CAPTURE|FILE|INTERFACE|PID|PROGRAM|NAME)\b|…|\[")


# Commands take long to run; test_what_is_shown_is_right checks those of all pages quickly.
_QUICK = {"README.md", "ci.md", "diagnose.md"}


def _shell(page: Path) -> list[Block]:
    return [block for block in blocks(page) if block.kind in ("sh", "console")]


def _name(page: Path) -> str:
    return str(page.relative_to(PROJECT))


def test_a_ring_of_the_newest_packets_has_no_filter() -> None:
    """With -Y, -w saves only connections of records that pass: no page promises the newest packets that way."""
    commands = [line for page in PAGES for line in page.read_text().splitlines() if " -w " in line and " -b " in line]
    assert len(commands) > 2
    assert [line for line in commands if " -Y " in line] == []


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, marks=[] if page.name in _QUICK else [pytest.mark.slow], id=_name(page))
        for page in PAGES
        if _shell(page) or inline_commands(page)
    ],
)
def test_its_commands_run(page: Path, tmp_path: Path) -> None:
    """One after another, in one folder, as a reader would: first what stands in blocks, then what is in the text."""
    path = tmp_path / "work"
    environment = folder(path)
    skipped = 0
    for block in blocks(page):
        if (file := block.mark("file")) is not None:
            (path / file).write_text(block.text)
        if block.kind not in ("sh", "console") or block.is_elsewhere:
            continue
        if _NEEDS.search(block.text) and not can_capture():
            skipped += 1
            continue
        (path / "policy.toml").write_text(POLICY)  # one that holds for whatever there is
        for command, expected in block.steps():
            done = run(command, path, environment)
            status = (
                2
                if expected is not None and expected.startswith("zmtpsniff: ")
                else int((block.mark("exit") or "0")[0])
            )
            said = done.stdout + done.stderr
            assert done.returncode == status, f"{page.name}:{block.line}: {command}\n{said}"
            assert "Traceback" not in said
            if expected is not None and not block.mark("as"):
                assert _without_times(said) == _without_times(expected), f"{page.name}:{block.line}: {command}"
    for command in inline_commands(page):
        if _stands_for_something(command):
            continue  # test_what_is_shown_is_right reads it
        if _NEEDS.search(command) and not can_capture():
            skipped += 1
            continue
        done = run(command.replace("less -R", "cat"), path, environment)
        assert done.returncode == 0, f"{page.name}: {command}\n{done.stdout}{done.stderr}"
    if skipped:
        pytest.skip(f"{skipped} commands capture, which needs root, ip, tcpdump, tshark and jq")


_DIFFERS = re.compile(r"\d\d:\d\d:\d\d\.\d+|:[3-6]\d{4}\b|\bpid-\d+:\d+|#\d+|\d+(\.\d+)? ([num]?s|packets)\b| +")


def _without_times(text: str) -> str:
    """Text without what differs in each run: times, ports, processes, and how many packets there were."""
    return _DIFFERS.sub(" ", text).strip()


def _is_fixed(block: Block, command: str) -> bool:
    """Whether a command says the same each time: it reads captures of the repository, and nothing else."""
    recorded = block.mark("as") or ("" if block.is_elsewhere else command)
    if block.kind != "console" or "fixtures/" not in recorded:
        return False
    return {*_NEEDS.findall(recorded)} <= {"jq"} and ("| jq" not in recorded or shutil.which("jq") is not None)


@pytest.mark.parametrize(
    "page",
    [page for page in PAGES if any(_is_fixed(block, step[0]) for block in blocks(page) for step in block.steps())],
    ids=_name,
)
def test_what_it_shows_is_what_one_gets(page: Path, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    environment = folder(tmp_path / "work")
    text = page.read_text()
    for block in blocks(page):
        for command, expected in block.steps():
            if not _is_fixed(block, command):
                continue
            done = run(block.mark("as") or command, tmp_path / "work", environment, network=False)
            said = done.stdout + done.stderr
            if request.config.getoption("--renew-golden"):
                text = text.replace(f"$ {command}\n{expected}", f"$ {command}\n{said}", 1)
            else:
                assert said == expected, f"{page.name}:{block.line}: {command}: renew it with --renew-golden"
    if text != page.read_text():
        page.write_text(text)


@pytest.mark.parametrize("page", PAGES, ids=_name)
def test_what_is_shown_is_right(page: Path) -> None:
    """Options and their values are right, also where a machine of the reader's is needed."""
    texts = [block.text for block in _shell(page) if block.is_elsewhere]
    steps = [step for block in _shell(page) if not block.is_elsewhere for step in block.steps()]
    texts += [
        command for command, said in steps if not (said or "").startswith("zmtpsniff: ")
    ]  # else it shows an error
    texts += inline_commands(page)
    for text in texts:
        for arguments in _arguments(text):
            _parse(arguments, text)


def _stands_for_something(command: str) -> bool:
    """Whether a word in it is to be replaced, or it is only the beginning of a command line."""
    if _WORDS.search(command):
        return True
    words = _arguments(command)[0]
    needs = {"read": 2, "stats": 2, "check": 2, "live": 2, "spark": 3}
    return not words or words[0].startswith("-") or len(words) < needs.get(words[0], 0)


def _arguments(text: str) -> list[list[str]]:
    """The arguments of each zmtpsniff that a text runs."""
    found: list[list[str]] = []
    for line in text.replace("\\\n", " ").splitlines():
        lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
        lexer.whitespace_split = True
        inside = False
        try:
            words = list(lexer)
        except ValueError:  # a line of a program between quotes
            continue
        for word in words:
            if re.fullmatch(r"[|&;()<>]+", word):
                inside = False
            elif re.fullmatch(r"(\S*/)?zmtpsniff", word) and not inside:
                inside = True
                found.append([])
            elif inside:
                found[-1].append(word)
    return found


def _parse(arguments: list[str], text: str) -> None:
    command: click.Command = cli
    words = [word for word in arguments if word != "…"]
    while isinstance(command, click.Group) and words and not words[0].startswith("-"):
        inner = command.get_command(click.Context(command), words[0])
        if words[0] in ("COMMAND", "spark") and inner is None:
            return
        assert inner is not None, text
        command = inner
        del words[0]
    # Of a part of a command line, such as a subcommand alone, the argument may be missing.
    no_arguments = getattr(click.exceptions, "NoArgsIsHelpError", click.exceptions.Exit)  # since click 8.2
    with contextlib.suppress(click.exceptions.Exit, click.MissingParameter, no_arguments):
        command.make_context(command.name, words)


def test_every_mark_is_known() -> None:
    for page in PAGES:
        for block in blocks(page):
            for mark in block.marks:
                assert re.match(r"(not run: |run by |exit \d|file: |made by |as: zmtpsniff )", mark), (
                    f"{page}:{block.line}: {mark}"
                )
                if block.mark("as"):
                    assert len(list(block.steps())) == 1, f"{page}:{block.line}: it is of one command"
                if block.mark("run by"):
                    assert (PROJECT / (block.mark("run by") or "")).exists(), f"{page}:{block.line}"


def test_commands_stand_in_marked_blocks() -> None:
    """A command in a block without a language, or indented, would not be run."""
    for page in PAGES:
        for block in blocks(page):
            if not block.kind:
                assert "zmtpsniff " not in block.text, f"{page}:{block.line}: say ```sh"
        assert not re.search(r"(?m)^    (sudo |\$ )?zmtpsniff (read|live|check|stats)\b", without_blocks(page)), page
