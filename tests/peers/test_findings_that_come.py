"""A finding is told when it comes, on standard output and to a program, while a capture runs."""

import json
import shlex
import signal
import subprocess
import sys
from pathlib import Path

from tests.support.live_program import wait_for
from tests.support.namespaces import Side, is_capturing, needs_namespaces

pytestmark = needs_namespaces

_CLIENT = """
import zmq
context = zmq.Context()
client = context.socket(zmq.REQ)
client.linger = 0
client.connect("tcp://127.0.0.1:5999")
input()
client.close()
"""


def test_nobody_listens(side: Side, tmp_path: Path) -> None:
    called = tmp_path / "called"
    keep = shlex.join([sys.executable, "-c", f"import sys; open({str(called)!r}, 'a').write(sys.stdin.read())"])
    diagnose = [sys.executable, "-m", "zmtpsniff", "diagnose", "--live", "-i", "lo", "-T", "json", "--on-finding", keep]
    client = side.command(sys.executable, "-c", _CLIENT)
    with subprocess.Popen(side.command(*diagnose), stdout=subprocess.PIPE, text=True) as program:
        wait_for(lambda: is_capturing(side) or program.poll() is not None)
        with subprocess.Popen(client, stdin=subprocess.PIPE, text=True) as peer:
            assert program.stdout is not None
            comes = json.loads(program.stdout.readline())
            peer.communicate("\n", timeout=120)
        program.send_signal(signal.SIGINT)
        said, _ = program.communicate(timeout=120)
    assert (comes["code"], comes["state"], comes["endpoints"]) == ("endpoint-refused", "comes", ["127.0.0.1:5999"])
    (whole,) = [one for one in map(json.loads, said.splitlines()) if one.get("code") == "endpoint-refused"]
    assert "state" not in whole
    assert whole["count"] >= comes["count"]
    assert json.loads(called.read_text()) == comes
