"""The kernel's queues of sockets that are there."""

import socket
import sys
import time
from contextlib import suppress

import pytest

from zmtpsniff.host.kernel_queues import KernelQueues

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="sock_diag is Linux's")


def text_of(address: tuple[object, ...]) -> str:
    host, port = address[:2]
    return f"[{host}]:{port}" if ":" in str(host) else f"{host}:{port}"


@pytest.mark.parametrize(
    ("bound", "connected"),
    [("127.0.0.1", "127.0.0.1"), ("::1", "::1"), ("::", "127.0.0.1")],  # the last: an IPv4 address as an IPv6 one
)
def test_octets_that_nobody_takes(bound: str, connected: str) -> None:
    family = socket.AF_INET6 if ":" in bound else socket.AF_INET
    with socket.create_server((bound, 0), family=family, dualstack_ipv6=bound == "::") as server:
        client = socket.create_connection((connected, server.getsockname()[1]))
        accepted, _ = server.accept()
        with client, accepted:
            here, there = text_of(client.getsockname()), text_of(client.getpeername())
            assert KernelQueues().of(here, there) == (0, 0)
            client.send(b"x" * 1000)
            deadline = time.monotonic() + 10
            while KernelQueues().of(there, here) != (1000, 0) and time.monotonic() < deadline:
                time.sleep(0.01)
            assert KernelQueues().of(there, here) == (1000, 0)
            client.setblocking(False)
            with suppress(BlockingIOError):
                while True:
                    client.send(b"x" * 65_536)
            queues = KernelQueues()
            assert (queues.of(here, there) or (0, 0))[1] > 0
            assert queues.of(there, here) == queues.of(there, here)


def test_sockets_that_are_not_here() -> None:
    queues = KernelQueues()
    assert queues.of("192.0.2.1:1", "192.0.2.2:2") is None
    assert queues.of("pid-7:3", "peer-of-7:3") is None


def test_a_kernel_without_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError

    monkeypatch.setattr("zmtpsniff.host.kernel_queues.dump", refuse)
    assert KernelQueues().of("127.0.0.1:1", "127.0.0.1:2") is None
