"""Two network namespaces, joined by a veth pair or by what a test puts between them: a small network of its own."""

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

    def ip(self, *words: str, lines: str = "") -> None:
        """Run ``ip`` on the namespace, with these ``lines`` as its standard input."""
        run("ip", "-n", self.namespace, *words, lines=lines)

    def bring_up(self) -> None:
        """Give the interface its addresses, and turn it and the loopback interface on."""
        # Without a search for duplicates, which takes a second before the address can be used.
        self.ip("-batch", "-", lines=f"""
            link set lo up
            address add {self.ipv4}/24 dev {self.interface}
            address add {self.ipv6}/64 dev {self.interface} nodad
            link set {self.interface} up
        """)  # fmt: skip


@contextmanager
def joined_namespaces() -> Iterator[tuple[Side, Side]]:
    """Two namespaces, each with an interface that is up, IPv4 and IPv6 addresses, and a loopback interface."""
    with separate_namespaces() as (left, right):
        run(
            *("ip", "link", "add", left.interface, "netns", left.namespace, "type", "veth"),
            *("peer", "name", right.interface, "netns", right.namespace),
        )
        for side in (left, right):
            side.bring_up()
        yield left, right


@contextmanager
def separate_namespaces() -> Iterator[tuple[Side, Side]]:
    """Two namespaces without the interfaces that are to join them."""
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
        yield left, right
    finally:
        for side in made:
            run("ip", "netns", "delete", side.namespace)


def run(*command: str, lines: str = "") -> None:
    """Run a command that must succeed."""
    done = subprocess.run(command, input=lines, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(command)}: {done.stderr}"
