"""A subscriber behind a firewall that forgets connections on which nothing passes for a minute, recorded.

    python -m tests.support.forgetful_firewall FOLDER

records, in some 90 s: ``silence`` (the firewall drops what comes for a connection that it does not know), ``reset`` (it
answers that with a RST), and ``heartbeats`` (the same as ``silence``, but the subscriber sends a PING every 20 s).
Needs root, ip, nft and tcpdump.
"""

import subprocess
import sys
import threading
import time
from pathlib import Path

from tests.support.namespaces import joined_namespaces

IDLE_SECONDS = 66
_FORGETS = 60
_PUBLISHER = """
import time, zmq
with zmq.Context() as context, context.socket(zmq.PUB) as socket:
    socket.bind("tcp://{address}:5599")
    time.sleep(2)
    socket.send(b"tick 0")
    time.sleep({idle})
    for number in range(1, 9):
        socket.send(b"tick %d" % number)
        time.sleep(1)
    socket.close(linger=0)
"""
_SUBSCRIBER = """
import zmq
with zmq.Context() as context, context.socket(zmq.SUB) as socket:
    socket.subscribe(b"")
    socket.heartbeat_ivl = {heartbeat}
    socket.connect("tcp://{address}:5599")
    while True:
        socket.recv()
"""


def record(path: Path, verdict: str, heartbeat: int = 0) -> None:
    """Record at the publisher's host; ``verdict`` is what the firewall does to packets that it does not know."""
    with joined_namespaces() as (here, there):
        rules = (
            "add table ip t; add chain ip t c { type filter hook input priority 0; }; "
            "add rule ip t c ct state established accept; "
            f"add rule ip t c tcp sport 5599 {verdict}"
        )
        subprocess.run(there.command("nft", rules), check=True)
        for setting in (f"nf_conntrack_tcp_timeout_established={_FORGETS}", "nf_conntrack_tcp_loose=0"):
            subprocess.run(there.command("sysctl", "-q", "-w", f"net.netfilter.{setting}"), check=True)
        tcpdump = here.command("tcpdump", "-i", here.interface, "-U", "-w", str(path), "tcp")
        programs = (
            here.command(sys.executable, "-c", _PUBLISHER.format(address=here.ipv4, idle=IDLE_SECONDS)),
            there.command(sys.executable, "-c", _SUBSCRIBER.format(address=here.ipv4, heartbeat=heartbeat)),
        )
        with subprocess.Popen(tcpdump, stderr=subprocess.PIPE, text=True) as capture:
            assert capture.stderr is not None
            assert any("listening" in line for line in capture.stderr)
            with subprocess.Popen(programs[0]) as publisher, subprocess.Popen(programs[1]) as subscriber:
                publisher.wait(IDLE_SECONDS + 30)
                subscriber.kill()
            time.sleep(1)
            capture.terminate()


def main() -> None:
    """Record all three at once."""
    folder = Path(sys.argv[1])
    runs = {"silence": ("drop", 0), "reset": ("reject with tcp reset", 0), "heartbeats": ("drop", 20_000)}
    threads = [threading.Thread(target=record, args=(folder / f"{name}.pcap", *run)) for name, run in runs.items()]
    for thread in threads:
        thread.start()
        time.sleep(1)
    for thread in threads:
        thread.join()


if __name__ == "__main__":
    main()
