"""A network of the benchmark's own: a namespace that ends with the process, a veth pair, who captures on it."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import traffic

SENDING, CAPTURED = "replay0", "replay1"  # the ends of the veth pair
SETTLED_S = 1.0
START_WAIT_S = 20.0
_INSIDE = "ZMTPSNIFF_OWN_NETWORK"


class NoNetworkError(Exception):
    """The network could not be made; the message is one line for the user."""


def enter() -> None:
    """Start this program again in a network namespace of its own, with loopback on and a veth pair.

    Nothing else is on that network, and the kernel takes all of it away when the last process in it ends. Returns
    inside of it; raises NoNetworkError where the system does not allow it.
    """
    # A shell lets what runs in the background ignore interrupts, all that it starts would, too, and never end.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if os.environ.get(_INSIDE):
        _set_up()
        return
    for program, package in (("unshare", "util-linux"), ("ip", "iproute2")):
        if shutil.which(program) is None:
            raise NoNetworkError(f"{program} is not installed (apt install {package})")
    allowed = subprocess.run(["unshare", "--net", "true"], capture_output=True, text=True, check=False)
    if allowed.returncode != 0:
        raise NoNetworkError(f"cannot make a network namespace, run this as root ({allowed.stderr.strip()})")
    sys.stdout.flush()
    command = ["unshare", "--net", sys.executable, *sys.argv]
    os.execvpe(command[0], command, {**os.environ, _INSIDE: "1"})


def _set_up() -> None:
    traffic.loopback_up()
    # Else the kernel greets its neighbours in packets that nobody has counted.
    quiet = Path("/proc/sys/net/ipv6/conf/default/disable_ipv6")
    if quiet.exists():
        quiet.write_text("1\n")
    for command in (
        f"link add {SENDING} type veth peer name {CAPTURED}",
        f"link set {SENDING} up",
        f"link set {CAPTURED} up",
    ):
        done = subprocess.run(["ip", *command.split()], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise NoNetworkError(f"ip {command}: {done.stderr.strip()}")


def packets(interface: str) -> int:
    """Return how many packets an interface has received."""
    for line in Path("/proc/net/dev").read_text().splitlines():
        name, _, counts = line.partition(":")
        if name.strip() == interface:
            return int(counts.split()[1])
    raise NoNetworkError(f"{interface}: no such interface")


def wait_for_capture(alive: Callable[[], bool]) -> bool:
    """Wait until a packet socket is open and stays so; False if the program ends before that, or none is opened.

    Programs say that they capture before they do, or not at all; the kernel knows.
    """
    patience = time.monotonic() + START_WAIT_S
    since: float | None = None
    while alive() and (now := time.monotonic()) < patience:
        open_sockets = len(Path("/proc/net/packet").read_text().splitlines()) - 1
        since = (since or now) if open_sockets > 0 else None
        if since is not None and now - since > SETTLED_S:
            return True
        time.sleep(0.05)
    return False
