"""The helper as a process: how it ends."""

import signal
import subprocess
import sys
from tempfile import TemporaryFile

import pytest

HELPER = [sys.executable, "-P", "-m", "zmtpsniff.host.helper"]
QUESTION = b'{"do": "search", "id": 1, "pids": [], "seconds": 1, "targets": []}\n'


def test_who_asked_is_gone_before_the_answer() -> None:
    """As after Ctrl-C during a start: it ends without a word."""
    with TemporaryFile() as said:
        with subprocess.Popen(HELPER, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=said) as helper:
            assert helper.stdin
            assert helper.stdout
            helper.stdout.close()
            helper.stdin.write(QUESTION)
            helper.stdin.close()
            assert helper.wait(60) == 0
        said.seek(0)
        assert said.read() == b""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_while_it_waits_for_questions(number: signal.Signals) -> None:
    with subprocess.Popen(HELPER, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as helper:
        assert helper.stdin
        assert helper.stdout
        assert helper.stderr
        helper.stdin.write(QUESTION)
        helper.stdin.flush()
        assert b"searched" in helper.stdout.readline()  # so it runs
        helper.send_signal(number)
        assert helper.wait(60) == 0
        assert helper.stderr.read() == b""
