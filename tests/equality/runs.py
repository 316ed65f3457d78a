"""Runs of one version of the program, each in a process forked from one that has imported it.

``python runs.py JOBS OCTETS`` with that version on PYTHONPATH reads a JSON list of arguments a line, and writes a line
for each: exit status, and the SHA-256 of standard output and of standard error. Files are read in pieces of so many
OCTETS, 0 for the size that the program chooses.
"""

import gc
import hashlib
import importlib
import json
import os
import sys
import tempfile


def _run(words: list[str]) -> tuple[int, str, str]:
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err, tempfile.TemporaryFile() as names:
        child = os.fork()
        if child == 0:
            imported = set(sys.modules)
            os.dup2(out.fileno(), 1)
            os.dup2(err.fileno(), 2)
            sys.argv = ["zmtpsniff", *words]
            try:
                main()
            except SystemExit as ended:
                names.write("\n".join(name for name in sys.modules if name not in imported).encode())
                for file in (names, sys.stdout, sys.stderr):
                    file.flush()
                os._exit(int(ended.code or 0))  # the interpreter need not be taken down
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        digests = []
        for file in (out, err):
            file.seek(0)
            digests.append(hashlib.file_digest(file, "sha256").hexdigest())
        names.seek(0)
        _import(names.read().decode().split())
    return status, digests[0], digests[1]


def _import(names: list[str]) -> None:
    """Imports what a run had to import, so that the next one has not: most runs are shorter than their imports."""
    ours = [name for name in names if name.partition(".")[0] in {"zmtpsniff", "dissectors"}]
    for name in ours:
        importlib.import_module(name)
    if ours:
        gc.collect()
        gc.freeze()  # the collector of a forked process does not touch, and so copy, the pages of this one


if __name__ == "__main__":
    from zmtpsniff.cli.main import cli, main

    with cli.make_context("zmtpsniff", ["read"]) as context:
        assert all(cli.get_command(context, name) for name in cli.list_commands(context))
    if (octets := int(sys.argv[2])) > 0:
        from zmtpsniff.capture import files

        files.CHUNK = files.LEAST_CHUNK = octets
    with open(sys.argv[1], encoding="utf-8") as jobs:
        for line in jobs.readlines():
            print(json.dumps(_run(json.loads(line))), flush=True)
