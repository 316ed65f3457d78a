"""Run the README's test command many times: ``python -m tests.soak --runs 10 --load``, from the top of the repository.

Each run has an order and examples of hypothesis of its own, whose seed it prints; ``HYPOTHESIS_PROFILE=same`` takes the
examples of each day. All is `nice`, also the busy loops of ``--load``: they take what the tests would have, and leave
other programs alone. ``--clone`` does all of the README's command in a new clone, in a folder that only its owner may
enter; with ``--user`` that is another user. ``--without tshark`` hides a program, and ``--without java`` leaves out the
package that brings one, too.

It prints a line for each run, and one for each test that failed, with what repeats its order and examples. The exit
status is 0 if no test failed. The output of pytest is in ``.ci/soak/``.
"""

import argparse
import os
import pwd
import random
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from tests.support.paths import CAPTURES, PROJECT

_LOOPS_PER_CORE = 2
_USERS_PATH = "/usr/local/bin:/usr/bin:/bin"  # of another user, who may not enter folders of this one
_LONGEST = 7200  # seconds that a run may take; one that takes more has failed
_LOGS = PROJECT / ".ci" / "soak"


class Place(NamedTuple):
    """Where tests run, and as which user."""

    folder: Path
    environment: dict[str, str]
    account: pwd.struct_passwd | None  # another user than this one

    def start(self, command: str, output: int | None = None) -> "subprocess.Popen[bytes]":
        """Run a command of the shell, in a process group of its own."""
        user = (self.account.pw_uid, self.account.pw_gid) if self.account else (None, None)
        return subprocess.Popen(
            ["nice", "bash", "-c", command],
            cwd=self.folder,
            env=self.environment,
            user=user[0],
            group=user[1],
            extra_groups=[] if self.account else None,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT if output is not None else None,
            start_new_session=True,
        )

    def run(self, command: str) -> None:
        """Run a command that must succeed."""
        status = self.start(command).wait()
        if status:
            raise SystemExit(f"exit status {status}: {command}")


def main() -> int:
    """Do what the options say; returns the exit status."""
    options = _options()
    prepare, _, test = _readme_command(options.without).rpartition(" && ")
    if options.pytest:
        test = f"{test} {shlex.join(options.pytest)}"
    failures: Counter[str] = Counter()
    failed_runs = 0
    _LOGS.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        place = stack.enter_context(_place(options, prepare))
        for number in range(options.runs):
            seed = options.seed + number
            failed = _run(place, test, seed, options.load)
            failures.update(failed)
            failed_runs += bool(failed)
    print(f"{options.runs} runs, {failed_runs} of which failed")
    for name, count in failures.most_common():
        print(f"{count} times: {name}")
    return bool(failed_runs)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description="Runs the tests many times.")
    parser.add_argument("--runs", type=int, default=1, metavar="N")
    parser.add_argument("--load", action="store_true", help=f"beside {_LOOPS_PER_CORE} busy loops a core")
    parser.add_argument("--seed", type=int, default=random.randrange(1, 1 << 30), help="of the first run")
    parser.add_argument("--clone", action="store_true", help="in a new clone of the last commit, in a private folder")
    parser.add_argument("--user", type=pwd.getpwnam, metavar="NAME", help="as this user, in a clone; needs root")
    parser.add_argument("--without", action="append", default=[], metavar="PROGRAM", help="hide a program")
    parser.add_argument("pytest", nargs="*", help="arguments for pytest, after --, such as a folder")
    return parser.parse_args()


def _readme_command(without: list[str]) -> str:
    line = re.search(r"^python3 -m venv .*pytest.*$", (PROJECT / "README.md").read_text(), re.M)
    assert line
    return line[0].replace("spark-java", "spark") if "java" in without else line[0]


@contextmanager
def _place(options: argparse.Namespace, prepare: str) -> Iterator[Place]:
    environment = {"HYPOTHESIS_PROFILE": "explore", **os.environ, "ZMTPSNIFF_CAPTURES": str(CAPTURES.resolve())}
    if options.user:
        environment["PATH"] = _USERS_PATH
    with ExitStack() as stack:
        if options.without:
            environment["PATH"] = stack.enter_context(_programs_without(options.without, environment["PATH"]))
        if not (options.clone or options.user):
            yield Place(PROJECT, environment, None)
            return
        private = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="soak-")))
        subprocess.run(["git", "clone", "-q", PROJECT, private / "clone"], check=True)
        if options.user:
            environment |= {"HOME": str(private), "USER": options.user.pw_name, "LOGNAME": options.user.pw_name}
            environment.pop("XDG_RUNTIME_DIR", None)
            subprocess.run(["chown", "-R", f"{options.user.pw_uid}:{options.user.pw_gid}", private], check=True)
        place = Place(private / "clone", environment, options.user)
        place.run(prepare)
        yield place


@contextmanager
def _programs_without(hidden: list[str], path: str) -> Iterator[str]:
    """A PATH that has all programs but these."""
    with tempfile.TemporaryDirectory(prefix="soak-programs-") as folder:
        os.chmod(folder, 0o755)
        for part in path.split(os.pathsep):
            for program in Path(part).glob("*"):
                link = Path(folder, program.name)
                if program.name not in hidden and not link.is_symlink():
                    link.symlink_to(program)
        assert not any(shutil.which(name, path=folder) for name in hidden)
        yield folder


def _run(place: Place, test: str, seed: int, load: bool) -> list[str]:
    """Run all tests once; returns those that failed."""
    log = _LOGS / f"{seed}.log"
    seeds = f"-p tests.soak.order --order {seed} --hypothesis-seed {seed}"
    command = f"exec {test} {seeds} -rfEs -o faulthandler_timeout={_LONGEST // 4}"
    start = time.monotonic()
    with ExitStack() as stack:
        if load:
            stack.enter_context(_busy_loops())
        output = stack.enter_context(log.open("wb"))
        process = place.start(f"export COLUMNS=1000; {command}", output.fileno())
        stack.callback(_end, process)
        try:
            status = process.wait(_LONGEST)
        except subprocess.TimeoutExpired:
            status = -signal.SIGKILL
    lines = log.read_text(errors="replace").splitlines()
    failed = [match[1] for line in lines if (match := re.match(r"(?:FAILED|ERROR) (\S+::.*?)(?: - |$)", line))]
    if status and not failed:
        failed = [f"the run itself, with exit status {status}"]
    said = lines[-1] if lines else "nothing"
    print(f"seed {seed}{', load' * load}: {said.strip('= ')} ({time.monotonic() - start:.0f} s), {log}")
    for name in failed:
        print(f"  failed: {name}\n    python -m tests.soak --seed {seed}{' --load' * load}")
    sys.stdout.flush()
    return failed


def _end(process: "subprocess.Popen[bytes]") -> None:
    """End a run, and whatever it left."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


@contextmanager
def _busy_loops() -> Iterator[None]:
    count = _LOOPS_PER_CORE * (os.cpu_count() or 1)
    loops = [subprocess.Popen(["nice", sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


if __name__ == "__main__":
    raise SystemExit(main())
