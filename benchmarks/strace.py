"""The cost of being traced: round trips a second, with ``live -- COMMAND`` and without.

    python benchmarks/strace.py [ROUND_TRIPS]

A REQ and a REP socket in two threads, over ipc:// and tcp://, small messages; then 1 MiB each.
"""

import json
import subprocess
import sys
import tempfile

PROGRAM = """
import sys, threading, time, zmq
endpoint, count, size = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
context = zmq.Context()
server, client = context.socket(zmq.REP), context.socket(zmq.REQ)
server.bind(endpoint)
client.connect(server.getsockopt_string(zmq.LAST_ENDPOINT).rstrip("\\0"))

def serve():
    for _ in range(count + 1):
        server.send(server.recv())

threading.Thread(target=serve, daemon=True).start()
body = bytes(size)
client.send(b"")
client.recv()
begin = time.perf_counter()
for _ in range(count):
    client.send(body)
    client.recv()
print(count / (time.perf_counter() - begin), file=sys.stderr)
"""
ZMTPSNIFF = [sys.executable, "-m", "zmtpsniff", "live", "--no-processes", "-T", "json"]


def rate(prefix: list[str], endpoint: str, count: int, size: int) -> float:
    """Round trips a second of a program that ``prefix`` runs; all of its messages must have been seen."""
    words = [*prefix, sys.executable, "-c", PROGRAM, endpoint, str(count), str(size)]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    if prefix:
        messages = json.loads(done.stdout.splitlines()[-1])["messages"]
        assert messages == 2 * (count + 1), messages
    return float(next(line for line in done.stderr.splitlines() if line.replace(".", "", 1).isdigit()))


def main() -> None:
    """Print what following a program costs it, for short and for long messages."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 2000
    with tempfile.TemporaryDirectory() as folder:
        for name, endpoint in (("ipc", f"ipc://{folder}/socket"), ("tcp", "tcp://127.0.0.1:*")):
            for size, trips in ((32, count), (1 << 20, count // 100)):
                alone = rate([], endpoint, trips, size)
                traced = rate([*ZMTPSNIFF, "--"], endpoint, trips, size)
                print(f"{name}, {size} octets: {alone:,.0f} round trips/s alone, {traced:,.0f} traced")


if __name__ == "__main__":
    main()
