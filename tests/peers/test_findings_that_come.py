"""A finding is told when it comes, on standard output and to a program, while a capture runs."""

import json
import shlex
import subprocess
import sys
from pathlib import Path

from tests.support.live_program import silent
from tests.support.namespaces import Side, needs_namespaces

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
    client = side.command(sys.executable, "-c", _CLIENT)
    with silent(side, "diagnose", "--on-finding", keep) as program:
        with subprocess.Popen(client, stdin=subprocess.PIPE, text=True) as peer:
            comes = program.read_until(bool)[0]
            peer.communicate("\n", timeout=120)
        said = program.interrupt()
    assert (comes["code"], comes["state"], comes["endpoints"]) == ("endpoint-refused", "comes", ["127.0.0.1:5999"])
    (whole,) = [one for one in said if one.get("code") == "endpoint-refused" and "state" not in one]
    assert whole["count"] >= comes["count"]
    assert json.loads(called.read_text()) == comes
