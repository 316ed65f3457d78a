"""Facts that flows tell: notices, each at its place among the events, and problems of the capture as a whole."""

from typing import NamedTuple


class Refusal(NamedTuple):
    """A refused TCP connection from ``src`` to ``dst``. It is no event, since its protocol is unknown."""

    time_ns: int
    packet: int
    flow: int
    src: str
    dst: str


class Doubt(NamedTuple):
    """Octets of a connection are presumed lost from ``since_ns`` on. It is no event, since they may still come.

    It comes before any segment goes on that acknowledges them.
    """

    time_ns: int
    flow: int
    since_ns: int


class Delay(NamedTuple):
    """Octets of a connection that were sent after ``since_ns`` are still missing, or come only now.

    Flows repeat it with each packet while octets wait for others, before any of it goes on.
    """

    time_ns: int
    flow: int
    since_ns: int


class CaptureProblem(NamedTuple):
    """A problem of the capture as a whole. It is an event once the capture is over."""

    code: str
    detail: str  # a sentence
    by_ns: int | None = None  # how late packets came, or by how much clocks differ, if that is known


Notice = Refusal | Doubt | Delay
"""Flows tell it at a place among the events. It is no event."""
