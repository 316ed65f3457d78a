"""zmtpsniff run as a program, without its start each time.

To start Python and import zmtpsniff takes 0.1 s of a processor; most runs of tests do less than that afterwards. So one
process, the server, imports all of it once, also what commands import only when they need it, and forks for each run. A
run has arguments, a folder, an environment, standard streams and an exit status of its own, and ends as a program does.

Tests of the start itself (what is imported, variables that Python reads when it starts, signals, terminals) start a
process of their own.
"""

import atexit
import contextlib
import gc
import importlib
import json
import os
import pkgutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from click.testing import CliRunner

from tests.support.paths import PROJECT

_PATIENCE = 120.0  # seconds for a run; a machine that does much else may be slow
_MOST_OCTETS = 1 << 20  # of a request
_COMMAND = [sys.executable, "-m", "tests.support.runner"]
_ROOMS = ("analysis", "capture", "check", "cli", "engine", "filters", "host", "net", "render")
_PACKAGES = ("dissectors", *(f"zmtpsniff.{room}" for room in _ROOMS))
_LIBRARIES = ("cbor2", "nacl.bindings", "re2", "rich.console", "rich.table", "zstandard")


class _Server:
    """The process that forks, as this one sees it."""

    def __init__(self) -> None:
        self._channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        environment = {**os.environ, "PYTHONUTF8": "1", "PYTHONPATH": str(PROJECT)}
        self._process = subprocess.Popen(
            _COMMAND, stdin=theirs.fileno(), stdout=subprocess.DEVNULL, env=environment, cwd=PROJECT
        )
        theirs.close()
        self._channel.settimeout(_PATIENCE)
        atexit.register(self._end)

    def run(self, request: bytes, streams: list[int]) -> int:
        """The exit status of a run, whose standard streams these are; minus the signal if one ended it."""
        socket.send_fds(self._channel, [request], streams)
        for stream in streams:
            os.close(stream)
        answer = self._channel.recv(16)
        assert answer, "the server of runs has ended"
        return os.waitstatus_to_exitcode(int(answer))

    def _end(self) -> None:
        self._channel.close()
        self._process.wait(60)


_server = cache(_Server)


def run(
    *arguments: object,
    cwd: Path = PROJECT,
    env: Mapping[str, str] | None = None,
    octets: bytes = b"",
) -> "subprocess.CompletedProcess[str]":
    """Run zmtpsniff with these arguments and with ``octets`` as its standard input.

    ``env`` is its environment instead of that of the tests; Python itself does not read it again.
    """
    words = [str(argument) for argument in arguments]
    request = json.dumps([words, str(cwd), dict(os.environ if env is None else env)]).encode()
    (stdin, feed), (out, stdout), (err, stderr) = os.pipe(), os.pipe(), os.pipe()
    written: dict[int, bytes] = {}
    threads = [threading.Thread(target=_write, args=(feed, octets), daemon=True)]
    threads += [threading.Thread(target=_read, args=(end, written), daemon=True) for end in (out, err)]
    for thread in threads:
        thread.start()
    status = _server().run(request, [stdin, stdout, stderr])
    for thread in threads:
        thread.join(_PATIENCE)
    return subprocess.CompletedProcess(words, status, written[out].decode(), written[err].decode())


def assert_refused(done: "subprocess.CompletedProcess[str]", *said: str) -> None:
    """The program ended as for wrong usage: with nothing on standard output, and one line that has these words."""
    assert (done.returncode, done.stdout) == (2, "")
    assert len(done.stderr.splitlines()) == 1, done.stderr
    for words in said:
        assert words in done.stderr


def read_lines(*arguments: object) -> list[str]:
    """The lines of JSON that ``read`` shows with these arguments, whole frames among it; it must succeed."""
    words = ["read", "-T", "json", "--max-bytes", "0", *map(str, arguments)]
    if "--engine" in words:  # it starts processes
        done = run(*words)
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()
    from zmtpsniff.cli.main import cli

    # In this process: most captures are read in less time than a process takes to fork.
    told = CliRunner().invoke(cli, words, catch_exceptions=False)
    assert told.exit_code == 0, told.output
    return told.stdout.splitlines()


def read_json(*arguments: object) -> list[dict[str, Any]]:
    """The same lines as records."""
    return [json.loads(line) for line in read_lines(*arguments)]


def _write(descriptor: int, octets: bytes) -> None:
    try:
        with open(descriptor, "wb") as stream:
            stream.write(octets)
    except BrokenPipeError:
        pass  # the program does not want them


def _read(descriptor: int, written: dict[int, bytes]) -> None:
    with open(descriptor, "rb") as stream:
        written[descriptor] = stream.read()


def _next_run(channel: socket.socket) -> bool:
    """In the server: fork for each request; True in the process of a run, False in the server when it is to end."""
    while True:
        request, streams, _, _ = socket.recv_fds(channel, _MOST_OCTETS, 3)
        if not request:
            return False
        run = os.fork()
        if run == 0:
            channel.close()
            for number, stream in enumerate(streams):
                os.dup2(stream, number)
        for stream in streams:
            os.close(stream)
        if run == 0:
            words, folder, environment = json.loads(request)
            sys.argv = ["zmtpsniff", *words]
            os.chdir(folder)
            os.environ.clear()
            os.environ.update(environment)
            time.tzset()  # the C library would go on with the time zone of the server
            return True
        _, status = os.waitpid(run, 0)
        channel.send(str(status).encode())


def _import_all() -> None:
    """Import what runs may need, and keep the garbage collector from looking at it, or each run would copy it."""
    for package in map(importlib.import_module, _PACKAGES):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if ".engines." not in module.name:
                importlib.import_module(module.name)
    for name in _LIBRARIES:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    from zmtpsniff.filters.grammar import parse

    parse("messages")  # the parser is made now
    gc.collect()
    gc.freeze()


def _run() -> None:
    """Run the program, and end as Python does, but for taking all modules apart: that takes longer than most runs."""
    from zmtpsniff.cli.main import main

    status: object = 1

    def leave() -> None:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status if isinstance(status, int) else 1)

    atexit.register(leave)  # called after all that are registered later
    try:
        main()
        status = 0
    except SystemExit as end:
        status = end.code or 0
        raise


if __name__ == "__main__":
    _import_all()
    if _next_run(socket.socket(fileno=os.dup(0))):
        _run()
