"""Where records go: standard output, or a file that has its name only once it is complete."""

import os
import select
import signal
import stat
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from io import FileIO
from typing import IO, Any

import click

from zmtpsniff.errors import Error, naming

PARTIAL = ".partial"


class PartialOutputError(KeyboardInterrupt):
    """An interrupt came before all was read or written. The text says what there is, and where."""


class OutputError(Error):
    """The output cannot be written; its text is one line that names the file and says why."""


def buffer_standard_output() -> None:
    """Have a buffer between the program and standard output, also where Python was told to have none.

    Containers tell it so (PYTHONUNBUFFERED). A signal, such as what follows Ctrl-Z, ends a write to a full pipe early;
    without a buffer nobody would write the rest.
    """
    if isinstance(getattr(sys.stdout, "buffer", None), FileIO):
        out = sys.stdout
        sys.stdout = open(out.fileno(), "w", encoding=out.encoding, errors=out.errors, closefd=False)  # noqa: SIM115


def tell(text: str) -> None:
    """Say a line on standard error. It may name files or interfaces, whose names may hold anything."""
    from zmtpsniff.words.text import escape

    click.echo(f"zmtpsniff: {escape(' '.join(text.split()))}", err=True)


@contextmanager
def open_output(name: str | None, binary: bool) -> Iterator[IO[Any]]:
    """Give a stream to write to: standard output if ``name`` is None or ``-``, else that file.

    The file is written as ``NAME.partial`` and renamed when everything is in it, so a run that was killed leaves none
    that looks complete. Raises OutputError if it cannot be written, BrokenPipeError if the reader has gone,
    PartialOutputError for a KeyboardInterrupt that leaves ``NAME.partial``.
    """
    if name == "":
        raise OutputError("-o: the name of a file is missing")
    if name is None or name == "-":
        if sys.stdout is None:
            raise OutputError("standard output: it is closed")
        with naming("standard output", OutputError):
            yield sys.stdout.buffer if binary else sys.stdout
            sys.stdout.flush()
        return
    # A pipe or a device is no file that could look complete.
    special = os.path.exists(name) and not stat.S_ISREG(os.stat(name).st_mode)
    target = name if special else name + PARTIAL
    try:
        with naming(name, OutputError):
            with open(target, "wb") if binary else open(target, "w", encoding="utf-8") as stream:
                yield stream
                if not special:
                    stream.flush()
                    os.fsync(stream.fileno())
            if not special:
                os.replace(target, name)
    except KeyboardInterrupt as interrupt:
        if special:
            raise
        raise PartialOutputError(f"interrupted: {target} has the output so far") from interrupt


def json_line(kind: str, fields: Mapping[str, Any]) -> str:
    """A line of JSON for one of the things that a command lists, only ASCII: names may hold any octets."""
    import json

    return json.dumps({"type": kind, **fields}, separators=(",", ":")) + "\n"


def must_be_read(stream: IO[Any]) -> None:
    """Raise BrokenPipeError if the reader of the stream is gone, which otherwise only the next write shows."""
    poll = select.poll()
    poll.register(stream.fileno(), 0)
    if any(event & select.POLLERR for _, event in poll.poll(0)):
        raise BrokenPipeError


@contextmanager
def undisturbed() -> Iterator[None]:
    """Hold interrupts back meanwhile: one in the middle of a write to a full pipe would lose the rest of the write."""
    if sys.platform == "win32":  # which cannot
        yield
        return
    waiting = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, waiting)


def discard_standard_output() -> None:
    """Standard output has no reader any more: keep the end of the program from complaining about it."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def fail_if_overwritten(captures: Sequence[str], target: str | None) -> None:
    """Raise click.UsageError if the file to write is one of the captures."""
    if target is not None and any(_is_same(name, target) for name in captures):
        raise click.UsageError(f"-o {target}: this is one of the captures to read")


def _is_same(name: str, other: str) -> bool:
    return os.path.exists(name) and os.path.exists(other) and os.path.samefile(name, other)
