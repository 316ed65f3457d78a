"""Completion in real shells: what TAB gives after a command line, by the scripts that are installed."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.paths import PROJECT

SCRIPTS = PROJECT / "docs" / "completion"
# The commands by which bash completes: the function that the script registers, on the words of a line.
BASH = """
source {script}
COMP_WORDS=({words}) COMP_CWORD={place}
compopt() {{ echo "compopt $*"; }}
_zmtpsniff_completion zmtpsniff
printf '%s\\n' "${{COMPREPLY[@]}}"
"""
COMPLETIONS: list[tuple[list[str], set[str]]] = [
    (["re"], {"read", "replay", "report"}),
    (["read", "-T", "s"], {"summary"}),
    (["stats", "--sort", "p"], {"peers", "p50", "p95", "p99"}),
    (["check", "--include", "pro"], {"protocol"}),
    (["check", "-T", "j"], {"junit", "json"}),
    (["live", "-i", "l"], {"lo"}),
    (["live", "--engine", "tc"], {"tcpdump"}),
    (["read", "-Y", "latency"], {"latency_ns"}),
    (["stats", "-Y", "payload.status_c"], {"payload.status_code"}),
]
FEW = COMPLETIONS[::4]  # a command, a choice, a field: each asks the program, which answers all shells alike


def _needs(shell: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(shutil.which(shell) is None, reason=f"{shell} is not installed")


def _run(command: list[str], folder: Path) -> str:
    program = folder / "bin" / "zmtpsniff"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m zmtpsniff "$@"\n')
    program.chmod(0o755)
    environment = {**os.environ, "PATH": f"{program.parent}:{os.environ['PATH']}", "PYTHONPATH": str(PROJECT)}
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=120
    )
    assert done.stderr == ""
    return done.stdout


@_needs("bash")
def test_in_bash(tmp_path: Path) -> None:
    script = "\n".join(
        BASH.format(script=SCRIPTS / "zmtpsniff.bash", words=" ".join(["zmtpsniff", *words]), place=len(words))
        + "COMPREPLY=(); echo ---"
        for words, _ in COMPLETIONS
    )
    answers = _run(["bash", "--noprofile", "--norc", "-c", script], tmp_path).split("---\n")
    assert len(answers) == len(COMPLETIONS) + 1
    for (words, expected), answer in zip(COMPLETIONS, answers, strict=False):
        assert set(answer.split()) == expected, words


@_needs("bash")
def test_files_are_left_to_bash(tmp_path: Path) -> None:
    for number, words in enumerate((["read", "cap"], ["read", "-o", "x"], ["check", "--policy", "p"])):
        script = BASH.format(script=SCRIPTS / "zmtpsniff.bash", words=" ".join(["zmtpsniff", *words]), place=len(words))
        folder = tmp_path / str(number)
        folder.mkdir()
        assert _run(["bash", "--noprofile", "--norc", "-c", script], folder).split() == ["compopt", "-o", "default"]


@_needs("fish")
def test_in_fish(tmp_path: Path) -> None:
    script = f"source {SCRIPTS / 'zmtpsniff.fish'}\n" + "\n".join(
        f"complete -C 'zmtpsniff {' '.join(words)}'; echo ---" for words, _ in FEW
    )
    answers = _run(["fish", "--no-config", "-c", script], tmp_path).split("---\n")
    assert len(answers) == len(FEW) + 1
    for (words, expected), answer in zip(FEW, answers, strict=False):
        assert {line.split("\t")[0] for line in answer.splitlines()} == expected, words


@_needs("zsh")
def test_in_zsh(tmp_path: Path) -> None:
    # compadd, which shows what there is, works only while a line is edited; so what it is given is printed instead.
    script = f"""
compdef() {{ }}
compadd() {{ local name=${{@[-1]}}; print -l -- ${{(P)name}}; }}
_describe() {{ local name=$3; print -l -- ${{(P)name}}; }}
source {SCRIPTS / "_zmtpsniff"}
""" + "\n".join(
        f"words=(zmtpsniff {' '.join(words)}); CURRENT={len(words) + 1}; _zmtpsniff_completion; echo ---"
        for words, _ in FEW
    )
    answers = _run(["zsh", "--no-rcs", "-c", script], tmp_path).split("---\n")
    assert len(answers) == len(FEW) + 1
    for (words, expected), answer in zip(FEW, answers, strict=False):
        assert {line.split(":")[0] for line in answer.splitlines() if line} == expected, words
