"""Both sides of a connection, as one of them sees them: whose turn it is to read, and who draws conclusions.

A side may find out something that matters to the other side, or to the connection. It reports that to the pair, and
the pair decides what follows. Then it may be the other side's turn. A side reads and finds out only in its turn: it
holds what is left of its octets, and goes on when its turn comes again.

One loop wakes sides until none gets further (:meth:`ReadingTurns.settle`), as a queue of findings would. Two things
differ from a queue:

- Turns are a stack. The side that was woken reads all that it can before the side that woke it reads on. So what an
  answer makes known has its place in the events in front of what comes behind the question.
- The pair decides at once, and not after the turn. The next octet of the side may depend on it: whether frames that may
  be ZMTP 1.0 are proven, or whether the connection is rejected. A queue would hold the rest of the octets for each
  finding. The decision sets what both sides know, and reads no octets. So no side is entered twice.
"""

from collections.abc import Iterator
from typing import Literal, Protocol, TypeVar

from dissectors.events import AnyEvent
from dissectors.zmtp.opening import Fact
from dissectors.zmtp.resync import Discovery

Finding = (
    Fact
    | Literal[
        "proof",  # nothing but ZMTP begins as it did
        "silence",  # nothing more will be known of what the side says about versions
        "evidence",  # more frames of what may be ZMTP 1.0 have come
        "illegal",  # what comes now is none
        "lost",  # octets of its greeting are missing
        "hopeless",  # no frames are found in as much as is searched
    ]
)
"""A finding of a side for the pair: one of its opening, or another one."""


class Turn(Protocol):
    """One entry of the stack of turns."""

    def go_on(self) -> None:
        """Use this turn."""


class ReadingTurns:
    """The stack of turns: its top reads, and those below wait.

    To wake a side that may get further without new octets, it is put on the top. It leaves the top when it waits for
    more octets. So each side is entered once, and reads on where it was.
    """

    def __init__(self) -> None:
        """Begin without turns."""
        self._stack: list[Turn] = []

    def __len__(self) -> int:
        """The number of turns."""
        return len(self._stack)

    def __iter__(self) -> Iterator[Turn]:
        """The turns, the top last."""
        return iter(self._stack)

    def is_of(self, one: Turn) -> bool:
        """Whether it is the turn of ``one``."""
        return bool(self._stack) and self._stack[-1] is one

    def add(self, one: Turn) -> None:
        """It is the turn of ``one`` now."""
        self._stack.append(one)

    def clear(self) -> None:
        """Drop all turns: neither side has octets to read."""
        self._stack.clear()

    def wake(self, one: Turn) -> None:
        """Let ``one`` read when those that read now have come to an end, at once if there are none."""
        if one not in self._stack:
            self._stack.append(one)
            if len(self._stack) == 1:
                self.settle()

    def settle(self) -> None:
        """Use one turn after the other, from the top, until the stack is empty."""
        stack = self._stack
        while stack:
            one = stack[-1]
            one.go_on()
            if stack[-1] is one:
                stack.pop()


H = TypeVar("H", contravariant=True)


class Pair(Protocol[H]):
    """Both sides, of class ``H``, as one of them sees them."""

    turns: ReadingTurns

    def take(self, half: H, finding: Finding) -> None:
        """Draw the conclusions from what ``half`` has found out."""

    def refuse(self, half: H, code: str, detail: str) -> None:
        """The octets of ``half`` are not ZMTP. If there is a ``detail``, the problem says how that shows."""

    def found(self, half: H, skipped: int) -> None:
        """Frames were found in ``half``, after ``skipped`` octets; the capture lacks the start of the stream."""

    def read_again(self, half: H, out: list[AnyEvent], begin: int) -> None:
        """``half`` has read the octets in which frames were found. Their events are in ``out`` from ``begin`` on."""

    def believes(self, half: H, octets: bytes, found: Discovery) -> bool:
        """Whether the chain of frames in ``octets`` is ZMTP, on a connection that is not known to be."""
        ...
