"""Live, the kernel says what waits at both ends of a connection: a worker that takes nothing, and one that does."""

import subprocess
import sys

from tests.support.live_program import silent
from tests.support.namespaces import Side, needs_namespaces

pytestmark = needs_namespaces

_WORK = """
import time, zmq
context = zmq.Context()
pusher = context.socket(zmq.PUSH)
monitor = pusher.get_monitor_socket(zmq.EVENT_HANDSHAKE_SUCCEEDED)
pusher.bind("tcp://127.0.0.1:5555")
workers = [context.socket(zmq.PULL) for _ in range(2)]
for worker in workers:
    worker.rcvhwm, worker.rcvbuf = 1, 4096
    worker.connect("tcp://127.0.0.1:5555")
for worker in workers:
    monitor.recv_multipart()
for number in range(40):
    pusher.send(b"work " * 1000)  # to one after the other
for number in range(20):
    workers[0].recv()
time.sleep(2.5)
print("ready", flush=True)
input()
context.destroy(linger=0)
"""


def test_what_waits_at_a_worker_that_takes_nothing(side: Side) -> None:
    work = side.command(sys.executable, "-c", _WORK)
    with (
        silent(side, "diagnose") as program,
        subprocess.Popen(work, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as peers,
    ):
        assert peers.stdout is not None
        assert peers.stdout.readline() == "ready\n"
        found = program.interrupt()
        peers.communicate("\n", timeout=120)
    # Its jobs wait while the other has nothing to do, unless that is slow for a moment, too, on a busy machine.
    every = [one for one in found if one.get("code") in ("subscriber-slow", "work-uneven") and "state" not in one]
    (slow,) = [one for one in every if "recv_q" in one["peers"][0] and one["peers"][0]["peer"] == one["endpoints"][0]]
    behind, taking = slow["peers"]
    assert behind["recv_q"] > 0
    assert behind["service_send_q"] > 0
    assert behind["window_closed_ns"] > 0
    assert "recv_q" not in taking
    assert "service_send_q" not in taking
