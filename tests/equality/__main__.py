"""Compare the records of this tree with those of another version: ``python -m tests.equality REVISION``.

A redesign must not change a record. So both versions read every capture there is (fixtures, recorded captures beside
the checkout, the fuzz corpus as connections, simulated capture points), and standard output, standard error and exit
status must be the same, octet for octet. Each capture that differs is named, with the first lines that do.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from itertools import zip_longest
from pathlib import Path

from tests.support.paths import PROJECT
from tests.world.recordings import folders
from zmtpsniff.native import VARIABLE

from .material import of_corpus, real, simulated

_CHECK = ("--include", "protocol", "--include", "secure", "--include", "complete", "--include", "modern")
_WAYS = {  # how each capture is read
    "json": ("read", "-T", "json", "--max-bytes", "0"),
    "tree": ("read", "-T", "tree"),
    "summary": ("read", "-T", "summary"),
    "bodies": ("read", "-T", "json", "--decode-bodies"),
    "check": ("check", "-T", "json", *_CHECK),
    "diagnose": ("diagnose", "-T", "json"),
    "advice": ("diagnose",),
    "stats": ("stats", "-T", "json"),
    "trace": ("trace", "-T", "json"),
}
_FEW = ("json", "check", "diagnose")  # for what is many captures
_SHOWN = 5  # differences to print of each way


def main() -> int:
    """Compare; returns the exit status: 1 if anything differs."""
    options = _options()
    with tempfile.TemporaryDirectory(prefix="zmtpsniff-equality-") as name:
        folder = Path(name)
        if options.native:
            return _compare(options, folder, PROJECT)
        before = folder / "before"
        _git("worktree", "add", "--detach", "--quiet", str(before), options.revision)
        try:
            return _compare(options, folder, before)
        finally:
            _git("worktree", "remove", "--force", str(before))


def _compare(options: argparse.Namespace, folder: Path, before: Path) -> int:
    jobs = _jobs(options, folder)
    file = folder / "jobs"
    file.write_text("".join(json.dumps(words) + "\n" for _, words in jobs), encoding="utf-8")
    natives = ("0", "1") if options.native else (None, None)
    with _started(file, before, natives[0]) as old, _started(file, PROJECT, natives[1], options.octets) as new:
        assert old.stdout is not None
        assert new.stdout is not None
        results = list(zip_longest(old.stdout, new.stdout))
    assert len(results) == len(jobs), f"{len(jobs)} runs, {len(results)} results"
    count: Counter[str] = Counter()
    different: Counter[str] = Counter()
    for (way, words), (was, is_) in zip(jobs, results, strict=True):
        count[way] += 1
        if was != is_:
            different[way] += 1
            if different[way] <= _SHOWN:
                _show(words, before, natives)
    for way, number in count.items():
        print(f"{way:18} {number:7} compared, {different[way]:5} differ")
    return bool(different)


def _jobs(options: argparse.Namespace, folder: Path) -> list[tuple[str, list[str]]]:
    recorded = [*folders(), *(PROJECT.parent / "shared" / name for name in ("disorder", "systems"))]
    jobs = []
    for path in real(recorded):
        jobs += [(f"recorded {way}", [*words, str(path)]) for way, words in _WAYS.items()]
    for path in of_corpus(_made(folder / "corpus")):
        jobs += [(f"corpus {way}", [*_WAYS[way], str(path)]) for way in _FEW]
    for files in simulated(_made(folder / "simulated"), options.cases, options.seed):
        jobs += [(f"simulated {way}", [*_WAYS[way], *map(str, files)]) for way in _FEW]
    if options.only:
        jobs = [job for job in jobs if options.only in job[0] or any(options.only in word for word in job[1])]
    return jobs


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder


def _environment(tree: Path, native: str | None) -> dict[str, str]:
    switch = {} if native is None else {VARIABLE: native}
    return {**os.environ, "PYTHONPATH": str(tree), "PYTHONUTF8": "1", "COLUMNS": "100", **switch}


def _started(jobs: Path, tree: Path, native: str | None, octets: int = 0) -> "subprocess.Popen[str]":
    command = [sys.executable, str(Path(__file__).with_name("runs.py")), str(jobs), str(octets)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=tree, env=_environment(tree, native))


def _show(words: list[str], before: Path, natives: tuple[str | None, str | None]) -> None:
    said = []
    for tree, native in zip((before, PROJECT), natives, strict=True):
        command = [sys.executable, "-m", "zmtpsniff", *words]
        environment = _environment(tree, native)
        done = subprocess.run(command, capture_output=True, text=True, cwd=tree, env=environment, check=False)
        said.append([*done.stdout.splitlines(), *done.stderr.splitlines(), f"exit status {done.returncode}"])
    print(*words)
    changed = [(was, is_) for was, is_ in zip_longest(*said) if was != is_]
    for was, is_ in changed[:2]:
        print(f"  - {was}\n  + {is_}")


def _git(*arguments: str) -> None:
    subprocess.run(["git", *arguments], cwd=PROJECT, check=True)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.equality", description=__doc__)
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("revision", nargs="?", help="the version to compare with, as git names it")
    which.add_argument("--native", action="store_true", help="compare this tree without and with the native core")
    parser.add_argument("--octets", type=int, default=0, help="let this tree read files in pieces of so many octets")
    parser.add_argument("--cases", type=int, default=50, help="simulated captures of each family (50)")
    parser.add_argument("--seed", type=int, default=0, help="the first seed of simulated captures (0)")
    parser.add_argument("--only", metavar="TEXT", help="captures or ways with TEXT in their names")
    return parser.parse_args()


if __name__ == "__main__":
    raise SystemExit(main())
