"""The traffic on the network while others capture: a capture replayed, a flood of messages, a drip, or nothing."""

from __future__ import annotations

import itertools
import multiprocessing
import re
import shutil
import struct
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection

import network
import traffic

ABREAST = 10  # connections of a replay that are open at the same time
FIRST_PORT = 20_000
TICK_S = 0.01
LINGER_S = 60


class LoadFailedError(Exception):
    """The load could not be made; the message is one line."""


@dataclass(frozen=True)
class Traffic:
    """The traffic of a load: its sender counts messages, the interface counts packets."""

    messages: int
    connections: int
    packets: int
    seconds: float


@dataclass(frozen=True)
class Load:
    """Traffic to capture: ``send`` puts all of its packets on the network, and returns."""

    title: str
    interface: str
    send: Callable[[], Traffic]


def lengthen(recording: traffic.Recording, packets: int, abreast: int = ABREAST) -> tuple[traffic.Recording, int]:
    """Make a longer capture of one that has one connection: that connection again and again, each time another port.

    So many ``abreast`` take turns packet by packet, as on a network with several programs. The same octets once more on
    the same ports would be retransmissions, which are less work. Returns the capture, with at least one such group and
    as many as come nearest to ``packets``, and the number of its connections.
    """
    rounds = max(1, round(packets / (recording.packets * abreast)))
    path = recording.path.with_name(f"{recording.path.stem}-by-{rounds * abreast}.pcap")
    content = recording.path.read_bytes()
    header, records = content[:24], _records(content)
    with path.open("wb") as out:
        out.write(header)
        for group in range(rounds):
            ports = range(FIRST_PORT + group * abreast, FIRST_PORT + (group + 1) * abreast)
            for before, is_client, after in records:
                for port in ports:
                    out.write(before)
                    number = struct.pack("!H", port)
                    out.write(number if is_client else traffic.PORT.to_bytes(2, "big"))
                    out.write(traffic.PORT.to_bytes(2, "big") if is_client else number)
                    out.write(after)
    times = rounds * abreast
    size = path.stat().st_size
    longer = traffic.Recording(path, recording.scenario, recording.messages * times, len(records) * times, size)
    return longer, times


def _records(content: bytes) -> list[tuple[bytes, bool, bytes]]:
    """Return the packets of a pcap file: what is before the ports, whether the client sent it, what is after."""
    order = "<" if content[:4] in (b"\xd4\xc3\xb2\xa1", b"\x4d\x3c\xb2\xa1") else ">"
    records, position = [], 24
    while position < len(content):
        (length,) = struct.unpack_from(f"{order}I", content, position + 8)
        end = position + 16 + length
        ports = position + 16 + 14 + (content[position + 16 + 14] & 15) * 4  # behind the headers of Ethernet and IPv4
        (source,) = struct.unpack_from("!H", content, ports)
        records.append((content[position:ports], source != traffic.PORT, content[ports + 4 : end]))
        position = end
    return records


def replay(recording: traffic.Recording, connections: int, rate: int) -> Load:
    """A capture, so many packets a second, from one end of the veth pair to the other."""

    def send() -> Traffic:
        if shutil.which("tcpreplay") is None:
            raise LoadFailedError("tcpreplay is not installed (apt install tcpreplay)")
        # With --timer=nano it sleeps between packets; the others wait in a loop and so take a whole core.
        command = ["tcpreplay", "-i", network.SENDING, "--preload-pcap", "--timer=nano", f"--pps={rate}"]
        before = network.packets(network.CAPTURED)
        done = subprocess.run([*command, str(recording.path)], capture_output=True, text=True, check=False)
        took = re.search(r"Actual: (\d+) packets .* sent in ([\d.]+) seconds", done.stdout)
        if done.returncode != 0 or took is None:
            raise LoadFailedError(f"tcpreplay: {(done.stderr.strip().splitlines() or ['failed'])[-1]}")
        arrived = network.packets(network.CAPTURED) - before
        if arrived != recording.packets:
            raise LoadFailedError(f"the network lost packets itself: {arrived:,} of {recording.packets:,} arrived")
        return Traffic(recording.messages, connections, arrived, float(took[2]))

    return Load(f"Replayed at {rate:,} packets a second", network.CAPTURED, send)


def idle(seconds: float) -> Load:
    """Nothing at all, on the interface of the replays."""

    def send() -> Traffic:
        time.sleep(seconds)
        return Traffic(0, 0, 0, seconds)

    return Load("Idle", network.CAPTURED, send)


def flood(rate: int, seconds: float) -> Load:
    """So many small messages a second over loopback, PUSH to PULL, or as many as the two can."""
    return Load(
        f"Flood of {rate:,} messages a second", "lo", lambda: _over_loopback(_push_many, rate, seconds, seconds)
    )


def endless_flood(seconds: float) -> Load:
    """As many small messages over loopback as pyzmq sends without a pause."""
    return Load("Flood as fast as it goes", "lo", lambda: _over_loopback(_push_all, None, seconds, seconds))


def drip(interval: float, seconds: float) -> Load:
    """One small message at a time over loopback."""
    return Load("Drip", "lo", lambda: _over_loopback(_push_few, interval, seconds, seconds))


def _over_loopback(push: Callable[..., None], how: float | None, seconds: float, patience: float) -> Traffic:
    spawning = multiprocessing.get_context("spawn")  # a libzmq context does not survive a fork
    pull = spawning.Process(target=_swallow, daemon=True)
    pull.start()
    try:
        traffic.wait_until_listening()
        receiver, sender = spawning.Pipe(duplex=False)
        before = network.packets("lo")
        pusher = spawning.Process(target=push, args=(how, seconds, sender), daemon=True)
        pusher.start()
        try:
            pusher.join(patience + LINGER_S)
            if pusher.exitcode != 0:
                raise LoadFailedError(f"the sender did not finish (exit status {pusher.exitcode})")
            messages, took = receiver.recv()
        finally:
            pusher.kill()
        return Traffic(messages, 1, network.packets("lo") - before, took)
    finally:
        pull.kill()
        pull.join()


def _swallow() -> None:
    """Receive everything and drop it, without Python: a publisher that nobody has subscribed to."""
    import zmq

    with zmq.Context() as context, context.socket(zmq.PULL) as pull, context.socket(zmq.PUB) as nowhere:
        pull.bind(traffic.ENDPOINT)
        nowhere.bind("inproc://nowhere")
        zmq.proxy(pull, nowhere)


def _push_many(rate: int, seconds: float, result: Connection) -> None:
    import zmq

    bodies = [b"measurement %010d ........." % number for number in range(int(rate * TICK_S))]
    with zmq.Context() as context, context.socket(zmq.PUSH) as push:
        push.connect(traffic.ENDPOINT)
        push.send(bodies[0])  # returns once there is a peer
        send, start = push.send, time.monotonic()
        for tick in itertools.count(1):
            for body in bodies:
                send(body)
            ahead = start + tick * TICK_S - time.monotonic()
            if ahead > 0:
                time.sleep(ahead)
            if time.monotonic() - start >= seconds:
                break
    result.send((1 + tick * len(bodies), time.monotonic() - start))


def _push_all(_: None, seconds: float, result: Connection) -> None:
    import zmq

    bodies = [b"measurement %010d ........." % number for number in range(10_000)]
    with zmq.Context() as context, context.socket(zmq.PUSH) as push:
        push.connect(traffic.ENDPOINT)
        push.send(bodies[0])  # returns once there is a peer
        send, start = push.send, time.monotonic()
        rounds = 0
        while time.monotonic() - start < seconds:
            for body in bodies:
                send(body)
            rounds += 1
    result.send((1 + rounds * len(bodies), time.monotonic() - start))


def _push_few(interval: float, seconds: float, result: Connection) -> None:
    import zmq

    with zmq.Context() as context, context.socket(zmq.PUSH) as push:
        push.connect(traffic.ENDPOINT)
        push.send(b"the first")
        start, count = time.monotonic(), round(seconds / interval)
        for number in range(1, count + 1):
            push.send(b"measurement %010d ........." % number)
            time.sleep(max(0.0, start + number * interval - time.monotonic()))
    result.send((1 + count, time.monotonic() - start))
