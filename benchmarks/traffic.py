"""Captures of ZeroMQ traffic over loopback, made with pyzmq and recorded by tcpdump.

``ensure`` is what the benchmark calls: it records a capture, or finds the one that an earlier run has left. The
recording itself is this file run as a script, in a network namespace of its own, for two reasons: nothing else can
get into the capture, and pyzmq does not count as memory of the process that measures (see measure.py).
"""

from __future__ import annotations

import fcntl
import json
import multiprocessing
import os
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

PORT = 5555
ENDPOINT = f"tcp://127.0.0.1:{PORT}"
ATTEMPTS = 3
KERNEL_BUFFER_KIB = 256 * 1024
LONGEST_TRAFFIC_S = 600
LISTENING_WAIT_S = 30
UNDER_WAY = 20  # requests of one client
BESIDE = 200  # messages that are pushed while one short connection lasts
# tcpdump is handed packets a block at a time, at the latest after its read timeout of one second: whoever stops it
# earlier loses the last block.
SETTLE_S = 2.0

SIOCGIFFLAGS, SIOCSIFFLAGS, IFF_UP = 0x8913, 0x8914, 0x1  # netdevice(7)


class CannotRecordError(Exception):
    """The capture could not be made; the message is one line for the user."""


@dataclass(frozen=True)
class Recording:
    """A capture and what is known to be in it."""

    path: Path
    scenario: str
    messages: int
    packets: int
    octets: int


@dataclass(frozen=True)
class Scenario:
    """A kind of traffic: what each peer does with a count, and how many messages that makes."""

    server: Callable[[int], None]
    client: Callable[[int], None]
    messages_per_count: int


def _text(number: int, size: int) -> bytes:
    """Return a body of that many octets, different for each number, as an application would log it."""
    return b"measurement %010d " % number + b"." * (size - 23)


def _pull(count: int) -> None:
    import zmq

    with zmq.Context() as context, context.socket(zmq.PULL) as pull:
        pull.bind(ENDPOINT)
        for _ in range(count):
            pull.recv()


def _push(count: int) -> None:
    import zmq

    with zmq.Context() as context, context.socket(zmq.PUSH) as push:
        push.connect(ENDPOINT)
        for number in range(count):
            push.send(_text(number, 32))


def _push_large(count: int) -> None:
    import zmq

    body = os.urandom(2**20)
    with zmq.Context() as context, context.socket(zmq.PUSH) as push:
        push.connect(ENDPOINT)
        for _ in range(count):
            push.send(body)
            # Loopback is faster than a capture can be written to a disk; a pause is cheaper than a larger buffer.
            time.sleep(0.004)


def _reply(count: int) -> None:
    import zmq

    with zmq.Context() as context, context.socket(zmq.REP) as reply:
        reply.bind(ENDPOINT)
        for _ in range(count):
            reply.send(reply.recv())


def _request(count: int) -> None:
    import zmq

    with zmq.Context() as context, context.socket(zmq.REQ) as request:
        request.connect(ENDPOINT)
        for number in range(count):
            request.send(_text(number, 64))
            request.recv()


def _throw(count: int) -> None:
    import zmq

    with zmq.Context() as context, context.socket(zmq.PAIR) as pair:
        pair.connect(ENDPOINT)
        for number in range(count):
            pair.send(_text(number, 32))
            pair.recv()


def _throw_back(count: int) -> None:
    import zmq

    with zmq.Context() as context, context.socket(zmq.PAIR) as pair:
        pair.bind(ENDPOINT)
        for _ in range(count):
            pair.send(pair.recv())


def _connect_often(count: int) -> None:
    import zmq

    with zmq.Context() as context:
        for number in range(count):
            with context.socket(zmq.REQ) as request:
                request.connect(ENDPOINT)
                request.send(_text(number, 64))
                request.recv()


def _pull_and_reply(count: int) -> None:
    import zmq

    with zmq.Context() as context, context.socket(zmq.PULL) as pull, context.socket(zmq.REP) as reply:
        pull.bind(f"tcp://127.0.0.2:{PORT}")
        reply.bind(ENDPOINT)
        for _ in range(count):
            for _ in range(BESIDE):
                pull.recv()
            reply.send(reply.recv())


def _push_and_connect_often(count: int) -> None:
    import zmq

    with zmq.Context() as context, context.socket(zmq.PUSH) as push:
        push.connect(f"tcp://127.0.0.2:{PORT}")
        for number in range(count):
            for place in range(number * BESIDE, (number + 1) * BESIDE):
                push.send(_text(place, 32))
            with context.socket(zmq.REQ) as request:
                request.connect(ENDPOINT)
                request.send(_text(number, 64))
                request.recv()


def _serve_behind(brokers: int, count: int) -> None:
    """Answer requests that come over so many brokers, each in a thread and with addresses of its own."""
    import zmq

    context = zmq.Context()
    backs = [f"tcp://127.0.0.{number}:{PORT}" for number in range(2, 2 + brokers)]
    for place in reversed(range(brokers)):  # whoever connects finds somebody who listens
        router, dealer = context.socket(zmq.ROUTER), context.socket(zmq.DEALER)
        router.bind([ENDPOINT, *backs][place])
        (dealer.bind if place == brokers - 1 else dealer.connect)(backs[place])
        threading.Thread(target=zmq.proxy, args=(router, dealer), daemon=True).start()
    with context.socket(zmq.REP) as reply:
        reply.connect(backs[-1])
        for _ in range(count):
            reply.send(reply.recv())
        time.sleep(SETTLE_S)  # the brokers, which end with this process, pass the last replies back


def _ask_several(count: int) -> None:
    """Ask without waiting for each reply; a number in front of each request says which one a reply answers."""
    import zmq

    with zmq.Context() as context, context.socket(zmq.DEALER) as dealer:
        dealer.connect(ENDPOINT)
        for number in range(count + UNDER_WAY):
            if number >= UNDER_WAY:
                dealer.recv_multipart()
            if number < count:
                dealer.send_multipart([b"%d" % number, b"", _text(number, 64)])


SCENARIOS = {
    "push": Scenario(_pull, _push, 1),
    "round-trip": Scenario(_reply, _request, 2),
    "ping-pong": Scenario(_throw_back, _throw, 2),
    "large": Scenario(_pull, _push_large, 1),
    "connections": Scenario(_reply, _connect_often, 2),
    "mixed": Scenario(_pull_and_reply, _push_and_connect_often, BESIDE + 2),
    "broker": Scenario(partial(_serve_behind, 1), _request, 4),
    "brokers": Scenario(partial(_serve_behind, 3), _ask_several, 8),
}


def ensure(scenario: str, count: int, folder: Path, *, renew: bool = False) -> Recording:
    """Return the capture of a scenario, recorded now unless an earlier run has left it."""
    path = folder / f"{scenario}-{count}.pcap"
    facts = path.with_suffix(".json")
    if not renew and path.exists() and facts.exists():
        known = json.loads(facts.read_text())
        if known["octets"] == path.stat().st_size:
            return Recording(**{**known, "path": path})
    if shutil.which("tcpdump") is None:
        raise CannotRecordError("tcpdump is not installed: it is needed to record the captures")
    folder.mkdir(parents=True, exist_ok=True)
    command = [*_namespace(), sys.executable, str(Path(__file__).resolve()), scenario, str(count), str(path)]
    done = subprocess.run(command, stderr=subprocess.PIPE, text=True, check=False)
    if done.returncode != 0:
        reason = (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1]
        raise CannotRecordError(f"cannot record {path.name}: {reason}")
    return Recording(**{**json.loads(facts.read_text()), "path": path})


def _namespace() -> list[str]:
    """Return the command that gives the recording a loopback of its own, empty where the system does not allow it."""
    prefix = ["unshare", "--net"]
    allowed = shutil.which(prefix[0]) and subprocess.run([*prefix, "true"], capture_output=True, check=False)
    return prefix if allowed and allowed.returncode == 0 else []


def loopback_up() -> None:
    """Switch loopback on: a new network namespace starts with it down."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        request = struct.pack("16sH14x", b"lo", 0)
        flags = struct.unpack("16sH14x", fcntl.ioctl(any_socket, SIOCGIFFLAGS, request))[1]
        if not flags & IFF_UP:
            fcntl.ioctl(any_socket, SIOCSIFFLAGS, struct.pack("16sH14x", b"lo", flags | IFF_UP))


def record(scenario: str, count: int, path: Path) -> Recording:
    """Record a scenario; repeated when the kernel dropped packets, because a capture with holes measures the holes."""
    loopback_up()
    partial = path.with_suffix(".partial")
    for _ in range(ATTEMPTS):
        captured, dropped = _record_once(SCENARIOS[scenario], count, partial)
        if dropped == 0:
            break
        print(f"{path.name}: {dropped} packets dropped, once more", file=sys.stderr)
    else:
        partial.unlink()
        raise CannotRecordError(f"packets were dropped in each of {ATTEMPTS} attempts")
    partial.replace(path)
    recording = Recording(path, scenario, count * SCENARIOS[scenario].messages_per_count, captured, path.stat().st_size)
    path.with_suffix(".json").write_text(json.dumps({**asdict(recording), "path": path.name}) + "\n")
    return recording


def _record_once(scenario: Scenario, count: int, path: Path) -> tuple[int, int]:
    """Record to a file; return how many packets are in it and how many the kernel dropped."""
    # -Z root: tcpdump would give up its privileges before it opens the file, and the folder is not its own.
    command = ["tcpdump", "-i", "lo", "-n", "-s", "0", "-B", str(KERNEL_BUFFER_KIB), "-Z", "root"]
    command += ["-w", str(path), f"tcp port {PORT}"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as tcpdump:
        assert tcpdump.stderr is not None
        said = []
        for line in tcpdump.stderr:
            said.append(line.strip())
            if "listening on" in line:
                break
        else:
            raise CannotRecordError(" ".join(said) or "tcpdump did not start")
        try:
            _play(scenario, count)
            time.sleep(SETTLE_S)
        finally:
            tcpdump.send_signal(signal.SIGINT)
            closing = tcpdump.stderr.read()
    # The third count, "received by filter", says nothing here: on loopback it has each packet twice.
    captured = re.search(r"(\d+) packets? captured", closing)
    dropped = re.findall(r"(\d+) packets? dropped by", closing)
    if captured is None or not dropped:
        raise CannotRecordError(f"tcpdump told no counts: {closing.strip()!r}")
    return int(captured[1]), sum(map(int, dropped))


def _play(scenario: Scenario, count: int) -> None:
    """Let the two peers talk, each in a process of its own, until both are done."""
    spawning = multiprocessing.get_context("spawn")  # a libzmq context does not survive a fork
    server = spawning.Process(target=scenario.server, args=(count,))
    server.start()
    wait_until_listening()
    client = spawning.Process(target=scenario.client, args=(count,))
    client.start()
    try:
        for peer in (client, server):
            peer.join(LONGEST_TRAFFIC_S)
            if peer.exitcode != 0:
                raise CannotRecordError(f"a peer did not finish (exit status {peer.exitcode})")
    finally:
        for peer in (client, server):
            peer.kill()


def wait_until_listening() -> None:
    """Wait for the server, so that the capture does not begin with refused connections."""
    listening = f":{PORT:04X} 00000000:0000 0A"  # proc_net_tcp: local port, no peer, TCP_LISTEN
    patience = time.monotonic() + LISTENING_WAIT_S
    while listening not in Path("/proc/net/tcp").read_text():
        if time.monotonic() > patience:
            raise CannotRecordError(f"no server on port {PORT}")
        time.sleep(0.02)


if __name__ == "__main__":
    try:
        record(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]))
    except (CannotRecordError, OSError) as reason:
        sys.exit(str(reason))
