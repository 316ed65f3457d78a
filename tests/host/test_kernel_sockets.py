"""Which process has a connection, what names it, and what waits at its ends: never those of who had its port before."""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from tests.support.live_program import wait_for
from tests.support.namespaces import joined_namespaces, needs_namespaces
from tests.support.ports import free_port
from zmtpsniff.host import processes
from zmtpsniff.host.kernel_sockets import KernelQueues, SocketEnds, SocketTable
from zmtpsniff.host.processes import container_of, look_up, pod_of, process_of

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="/proc is Linux's")


def text(address: tuple[str, int]) -> str:
    return f"[{address[0]}]:{address[1]}" if ":" in address[0] else f"{address[0]}:{address[1]}"


@contextmanager
def connection(host: str) -> Iterator[tuple[socket.socket, socket.socket]]:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with (
        socket.create_server((host, 0), family=family) as server,
        socket.create_connection(server.getsockname()[:2]) as client,
    ):
        accepted, _ = server.accept()
        with accepted:
            yield client, accepted


def ends(end: socket.socket) -> SocketEnds:
    return SocketEnds(text(end.getsockname()), text(end.getpeername()))


@pytest.mark.parametrize("kernel", ["asked", "without sock_diag", "without its module for TCP"])
@pytest.mark.parametrize(
    ("bound", "connected"),
    [("127.0.0.1", "127.0.0.1"), ("::1", "::1"), ("::", "127.0.0.1")],  # the last: an IPv4 address as an IPv6 one
)
def test_both_ends(bound: str, connected: str, kernel: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if kernel == "asked":
        try:
            socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 4).close()
        except OSError as error:
            pytest.skip(f"this kernel has no sock_diag: {error}")
    elif kernel == "without sock_diag":
        monkeypatch.setattr(socket, "AF_NETLINK", -1)
    else:
        monkeypatch.setattr(socket, "IPPROTO_TCP", 199)  # then it says of each socket that there is none
    kind = socket.AF_INET6 if ":" in bound else socket.AF_INET
    with socket.create_server((bound, 0), family=kind, dualstack_ipv6=bound == "::") as server:
        client = socket.create_connection((connected, server.getsockname()[1]))
        table, later = SocketTable(), SocketTable()
        with client:
            here = ends(client)
            there = SocketEnds(here.remote, here.local)
            if kernel == "asked":
                monkeypatch.setattr("builtins.open", lambda *_, **__: pytest.fail("it walks the kernel's whole table"))
            assert table.owners([here]) == {here: os.getpid()}
            monkeypatch.undo()
            assert table.owners([there, there._replace(remote=text((connected, 1)))]) == {}  # nobody accepted it yet
            accepted, _ = server.accept()
            with accepted:
                assert later.owners([here, there]) == dict.fromkeys([here, there], os.getpid())


def test_a_port_that_is_another_programs_now(monkeypatch: pytest.MonkeyPatch) -> None:
    """A remembered owner is looked at again before it is told."""
    table = SocketTable()
    with connection("127.0.0.1") as (client, _):
        asked = ends(client)
        assert table.owners([asked]) == {asked: os.getpid()}
        child = "import socket, sys; end = socket.socket(fileno=int(sys.argv[1])); print(flush=True); sys.stdin.read()"
        with subprocess.Popen(
            [sys.executable, "-c", child, str(client.fileno())],
            pass_fds=[client.fileno()], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        ) as other:  # fmt: skip
            assert other.stdout
            other.stdout.readline()
            client.close()
            found = {}
            for _ in range(50):
                found = table.owners([asked])
                if found:
                    break
            assert found in ({}, {asked: other.pid})
            later = time.monotonic() + 3600
            monkeypatch.setattr(time, "monotonic", lambda: later)
            assert table.owners([asked]) == {asked: other.pid}
            monkeypatch.undo()
            assert other.stdin
            other.stdin.close()
    assert table.owners([asked]) == {}


@needs_namespaces
def test_connections_of_other_network_namespaces() -> None:
    """Those of containers; but not their loopback, whose addresses are those of ours."""
    # Other tests, of another run, too, have the same addresses in namespaces of their own.
    port, own_port = free_port(), free_port()
    code = (
        f"import socket; server = socket.create_server(('{{0}}', {port})); "
        f"end = socket.create_connection(('{{0}}', {port}), source_address=('{{0}}', {own_port})); "
        "accepted, _ = server.accept(); print(flush=True); input()"
    )
    with joined_namespaces() as (side, _):
        for host, seen in ((side.ipv4, True), ("127.0.0.1", False)):
            words = side.command(sys.executable, "-c", code.format(host))
            with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
                assert other.stdout
                other.stdout.readline()
                asked = SocketEnds(f"{host}:{own_port}", f"{host}:{port}")
                assert SocketTable().owners([asked]) == ({asked: other.pid} if seen else {})
                other.communicate(b"\n")


@pytest.mark.parametrize("end", ["", "127.0.0.1", "name:80", "[::1:80", "127.0.0.1:http"])
def test_what_is_no_end(end: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011
        SocketTable().owners([SocketEnds(end, "127.0.0.1:80")])
    assert KernelQueues().of(end, "127.0.0.1:80") is None


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
            here, there = text(client.getsockname()), text(client.getpeername())
            assert KernelQueues().of(here, there) == (0, 0)
            client.send(b"x" * 1000)
            wait_for(lambda: KernelQueues().of(there, here) == (1000, 0))
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


def test_names() -> None:
    me = look_up(os.getpid())
    assert me is not None
    assert (me.pid, me.name) == (os.getpid(), Path("/proc/self/comm").read_text().strip())
    assert look_up(4194303) is None
    assert process_of(os.getpid()) == os.getpid()


ID = "8f3ab2c41d90" + "0123456789abcdef" * 3 + "0123"


@pytest.mark.parametrize(
    ("groups", "container"),
    [
        (f"0::/system.slice/docker-{ID}.scope\n", ID[:12]),
        (f"12:cpu:/docker/{ID}\n0::/docker/{ID}\n", ID[:12]),
        (f"0::/kubepods.slice/kubepods-pod1.slice/cri-containerd-{ID}.scope\n", ID[:12]),
        (f"0::/user.slice/user-1000.slice/libpod-{ID}.scope/container\n", ID[:12]),
        ("0::/lxc.payload.web/system.slice\n", "web"),
        ("0::/user.slice/user-1000.slice/session-2.scope\n", None),
        ("0::/\n", None),
        ("0::/system.slice/docker.service\n", None),
    ],
)
def test_containers(groups: str, container: str | None) -> None:
    assert container_of(groups) == container


UID = "0f4c1d3e-9a8b-4c7d-8e6f-0123456789ab"


@pytest.mark.parametrize(
    ("groups", "pod"),
    [
        (f"0::/kubepods.slice/kubepods-pod{UID.replace('-', '_')}.slice/cri-containerd-{ID}.scope\n", "shop/orders-0"),
        (f"0::/kubepods/burstable/pod{UID}/{ID}\n", "shop/orders-0"),
        (f"0::/kubepods/pod{'a' * 32}/{ID}\n", "kube-system/etcd-one"),  # a static pod
        (f"0::/kubepods/pod{UID[:-1]}0/{ID}\n", None),
        (f"0::/docker/{ID}\n", None),
    ],
)
def test_pods(groups: str, pod: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for folder in (f"shop_orders-0_{UID}", f"shop_orders-1_{UID[:-1]}f", f"kube-system_etcd-one_{'a' * 32}", "odd"):
        (tmp_path / folder).mkdir()
    monkeypatch.setattr(processes, "_PODS", str(tmp_path))
    assert pod_of(groups) == pod
    monkeypatch.setattr(processes, "_PODS", str(tmp_path / "nothing"))
    assert pod_of(groups) is None
