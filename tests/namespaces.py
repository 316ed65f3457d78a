"""Two network namespaces joined by a veth pair: a small network of its own for tests."""

import itertools
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import pytest

needs_namespaces = pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("ip") is None, reason="network namespaces need root and ip (iproute2)"
)
_numbers = itertools.count()


class Side(NamedTuple):
    """One of the two namespaces."""

    namespace: str
    interface: str
    ipv4: str
    ipv6: str

    def command(self, *words: str) -> list[str]:
        """The command that runs this one in the namespace."""
        return ["ip", "netns", "exec", self.namespace, *words]

    def ip(self, *words: str) -> None:
        """Run ``ip`` on the namespace."""
        _run("ip", "-n", self.namespace, *words)


@contextmanager
def joined_namespaces() -> Iterator[tuple[Side, Side]]:
    """Two namespaces, each with an interface that is up, IPv4 and IPv6 addresses, and a loopback interface."""
    name = f"{os.getpid()}n{next(_numbers)}"
    sides = tuple(
        Side(f"zmtpsniff-{name}{letter}", f"v{name}{letter}", f"10.77.0.{number}", f"fd00:77::{number}")
        for number, letter in enumerate("ab", 1)
    )
    left, right = sides
    made = []
    try:
        for side in sides:
            added = subprocess.run(["ip", "netns", "add", side.namespace], capture_output=True, text=True, check=False)
            if added.returncode:
                pytest.skip(f"no network namespace can be made here: {added.stderr.strip()}")
            made.append(side)
        _run(
            *("ip", "link", "add", left.interface, "netns", left.namespace, "type", "veth"),
            *("peer", "name", right.interface, "netns", right.namespace),
        )
        for side in sides:
            side.ip("link", "set", "lo", "up")
            side.ip("address", "add", f"{side.ipv4}/24", "dev", side.interface)
            # Without a search for duplicates, which takes a second before the address can be used.
            side.ip("address", "add", f"{side.ipv6}/64", "dev", side.interface, "nodad")
            side.ip("link", "set", side.interface, "up")
        yield left, right
    finally:
        for side in made:
            _run("ip", "netns", "delete", side.namespace)


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(command)}: {done.stderr}"
