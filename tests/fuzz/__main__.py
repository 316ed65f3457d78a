"""Run the fuzz targets: ``python -m tests.fuzz``, from the top of the repository.

All of them for an hour in all, or for ``--seconds``; each in a process of its own that starts from its corpus. Each
input that fails is written to ``tests/fuzz/failures`` and makes the exit status 1. At the end a table says how often
each target was executed and how much of the code was reached.
"""

import argparse
import contextlib
import io
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent
CORPUS = FOLDER / "corpus"
FAILURES = FOLDER / "failures"
WORDS = FOLDER / "words.dict"
NAMES = sorted(path.name for path in CORPUS.iterdir())  # of targets: importing them comes after their instrumenting
LONGEST = 4096  # octets of an input
HANGS = 25  # seconds for one input
MEMORY = 2000  # MiB
KEPT_OCTETS = 24_000  # of what a target has learned, in the corpus
KEPT_FILES = 60
_STAT = re.compile(rb"stat::(\w+):\s+(\d+)")
_REACHED = re.compile(rb"\bcov: (\d+) ft: (\d+)")


def main() -> int:
    """Do what the options say; returns the exit status."""
    options = _options()
    if options.target:
        _fuzz(options.target, _targets()[options.target], options.flags)
        return 0
    try:
        import atheris  # noqa: F401
    except ImportError:
        print(f"fuzzing is skipped: there is no atheris for Python {sys.version.split()[0]}")
        return 0
    return _run(options)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=3600, help="for all targets together, on one processor")
    parser.add_argument("--runs", type=int, default=-1, help="of each target, if it has not had its time before")
    parser.add_argument("--seed", type=int, default=0, help="of what is random, to have the same inputs again")
    parser.add_argument("--only", choices=NAMES, action="append", help="a target; repeatable")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="targets at a time")
    parser.add_argument("--work", type=Path, help="folder for what is learned, to go on from; else it is forgotten")
    parser.add_argument("--keep", action="store_true", help="add the best of what is learned to the corpus")
    parser.add_argument("--target", choices=NAMES, help=argparse.SUPPRESS)
    parser.add_argument("flags", nargs="*", help=argparse.SUPPRESS)
    return parser.parse_args()


def _targets() -> dict[str, Callable[[bytes], None]]:
    """All targets, instrumented, with what they import late: that takes seconds, and is to make no input slow."""
    import atheris

    with contextlib.redirect_stderr(io.StringIO()):  # which would have a line for each module
        # Later imports must be instrumented, too, so this is never left.
        atheris.instrument_imports(include=["zmtpsniff", "dissectors"]).__enter__()
        from .targets import TARGETS

        for name, target in TARGETS.items():
            target(min((CORPUS / name).iterdir()).read_bytes())
    return TARGETS


def _fuzz(name: str, target: Callable[[bytes], None], flags: list[str]) -> None:
    """Fuzz one target in this process, which libFuzzer ends."""
    import atheris

    # To merge libFuzzer starts itself again, through a shell, by this name.
    atheris.Setup([shlex.join(_command("--target", name, "--")), *flags], target)
    atheris.Fuzz()


def _run(options: argparse.Namespace) -> int:
    names = options.only or NAMES
    seconds = options.seconds / len(names)
    targets = _targets()
    with tempfile.TemporaryDirectory() as scratch:
        work = options.work or Path(scratch)
        FAILURES.mkdir(exist_ok=True)

        def one(name: str) -> dict[str, Any]:
            return _target(name, targets[name], seconds, options.runs, options.seed, work)

        with ThreadPoolExecutor(options.jobs) as pool:
            rows = list(pool.map(one, names))
        _print(rows)
        if options.keep:
            for name in names:
                _keep(name, work)
    return any(row["failed"] for row in rows)


def _command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "tests.fuzz", *arguments]


def _target(
    name: str, target: Callable[[bytes], None], seconds: float, runs: int, seed: int, work: Path
) -> dict[str, Any]:
    """Fuzz one target for so long; returns its result."""
    learned = work / name
    learned.mkdir(parents=True, exist_ok=True)
    flags = [
        f"-max_total_time={max(round(seconds), 1)}", f"-max_len={LONGEST}", f"-timeout={HANGS}", "-print_final_stats=1",
        f"-runs={runs}", f"-seed={seed}", f"-rss_limit_mb={MEMORY}",
        f"-artifact_prefix={FAILURES}/{name}-", f"-dict={WORDS}", str(learned),
        str(CORPUS / name),
    ]  # fmt: skip
    with tempfile.TemporaryFile() as output:

        def fuzz() -> None:
            os.nice(10)
            for standard in (1, 2):
                os.dup2(output.fileno(), standard)
            _fuzz(name, target, flags)

        process = get_context("fork").Process(target=fuzz)  # of what is instrumented by now
        process.start()
        process.join(seconds * 2 + 300)
        process.kill()
        process.join()
        output.seek(0)
        said = output.read()
    row: dict[str, Any] = {"target": name, "failed": process.exitcode != 0}
    row |= {stat.decode(): int(value) for stat, value in _STAT.findall(said)}
    reached = _REACHED.findall(said)
    row["edges"], row["features"] = map(int, reached[-1]) if reached else (0, 0)
    if row["failed"]:
        print(f"{name} failed (exit status {process.exitcode}):", flush=True)
        print(said.decode(errors="replace")[-6000:], flush=True)
    return row


def _print(rows: list[dict[str, Any]]) -> None:
    print("| target | executions | a second | edges reached | slowest input | memory | result |")
    print("| :-- | --: | --: | --: | --: | --: | :-- |")
    for row in rows:
        print(
            f"| `{row['target']}` | {row.get('number_of_executed_units', 0):,} "
            f"| {row.get('average_exec_per_sec', 0):,} | {row['edges']:,} "
            f"| {row.get('slowest_unit_time_sec', 0)} s | {row.get('peak_rss_mb', 0)} MiB "
            f"| {'**failed**' if row['failed'] else 'nothing found'} |"
        )
    total = sum(row.get("number_of_executed_units", 0) for row in rows)
    print(f"\n{total:,} executions of {len(rows)} targets, {sum(row['failed'] for row in rows)} failed.", flush=True)


def _keep(name: str, work: Path) -> None:
    """Add the smallest inputs that reach something new to the corpus, a few of them."""
    with tempfile.TemporaryDirectory() as merged:
        flags = ["-merge=1", f"-max_len={LONGEST}", merged, str(CORPUS / name), str(work / name)]
        subprocess.run(_command("--target", name, "--", *flags), capture_output=True, check=True)
        known = {path.read_bytes() for path in (CORPUS / name).iterdir()}
        octets = 0
        smallest = sorted(Path(merged).iterdir(), key=lambda path: path.stat().st_size)
        assert smallest, "not even the corpus reaches anything: it was not merged"
        for files, path in enumerate(smallest, 1):
            octets += path.stat().st_size
            if octets > KEPT_OCTETS or files > KEPT_FILES:
                break
            if path.read_bytes() not in known:
                shutil.copy(path, CORPUS / name / path.name[:16])


if __name__ == "__main__":
    sys.exit(main())
