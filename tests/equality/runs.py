"""Runs of one version of the program, in processes forked from one that has imported it.

``python runs.py JOBS OCTETS`` with that version on PYTHONPATH reads a JSON list of arguments a line, and writes a line
for each: exit status, and the SHA-256 of standard output and of standard error. Files are read in pieces of so many
OCTETS, 0 for the size that the program chooses.

A process does several runs, since most of them are shorter than a fork of all that is imported. Whatever one leaves
behind in its process, it leaves in the other version as well.
"""

import hashlib
import json
import os
import sys
import tempfile
from collections.abc import Sequence
from typing import TextIO

_RUNS = 40  # of a process


def _answers(jobs: Sequence[list[str]]) -> list[list[object]]:
    """The results of some jobs, one at least, from a process of their own; the last is that of the one it ended in."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        with os.fdopen(writer, "w", encoding="utf-8", buffering=1) as answers:
            for words in jobs:
                _answer(words, answers)
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, encoding="utf-8") as answers:
        found = [json.loads(line) for line in answers]
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return found if len(found) == len(jobs) else [*found, [status, "", ""]]


def _answer(words: list[str], answers: TextIO) -> None:
    """Do one run in this process."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        os.dup2(out.fileno(), 1)
        os.dup2(err.fileno(), 2)
        sys.argv = ["zmtpsniff", *words]
        try:
            main()
        except SystemExit as ended:
            status = ended.code
        sys.stdout.flush()
        sys.stderr.flush()
        digests = []
        for file in (out, err):
            file.seek(0)
            digests.append(hashlib.file_digest(file, "sha256").hexdigest())
    print(json.dumps([status, *digests]), file=answers)


if __name__ == "__main__":
    from zmtpsniff.cli.main import cli, main

    with cli.make_context("zmtpsniff", ["read"]) as context:
        assert all(cli.get_command(context, name) for name in cli.list_commands(context))
    if (octets := int(sys.argv[2])) > 0:
        from zmtpsniff.capture import files

        files.CHUNK = files.LEAST_CHUNK = octets
    with open(sys.argv[1], encoding="utf-8") as lines:
        jobs = [json.loads(line) for line in lines]
    done = 0
    while done < len(jobs):
        for answer in _answers(jobs[done : done + _RUNS]):
            print(json.dumps(answer), flush=True)
            done += 1
