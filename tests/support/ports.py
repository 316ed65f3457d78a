"""Ports that nobody uses, for programs that must be told theirs before they bind it."""

import random
import socket

_FIRST, _LAST = 15_000, 29_999  # below those that systems give to connections by themselves (ip_local_port_range)


def free_port() -> int:
    """A TCP port of loopback; nobody else comes to have it by chance before it is used."""
    while True:
        port = random.SystemRandom().randint(_FIRST, _LAST)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:  # taken
                continue
        return port
