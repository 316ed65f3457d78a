"""The requests of one connection that wait for a reply, and which of them a reply answers."""

from bisect import bisect_left
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from operator import attrgetter
from typing import Literal, NamedTuple

from dissectors.columns import TAKEN, WAITING
from dissectors.events import Message, Place
from zmtpsniff.analysis.patterns.alike import Alike
from zmtpsniff.analysis.patterns.conversation import can_know
from zmtpsniff.analysis.patterns.requests import Request

_ALIKE = 1024  # the most that may wait with the same envelope
_LOOKED_THROUGH = 1024  # so many to compare with the envelope of a reply of a REP
MOST_IN_COLUMNS = 512
"""Requests that may wait where messages are paired in columns."""
_OFFSET = attrgetter("offset")


class Answer(NamedTuple):
    """The request that a reply answers."""

    request: Request | None  # None if several requests may be meant
    paired: Literal["envelope", "order", "forwards"] | None = None
    passed_over: Sequence[Request] = ()  # requests that nobody will answer any more


def _packed(requests: Iterable[Request]) -> bytes:
    nowhere = Place(0, 0, 0)
    return b"".join(
        WAITING.pack(one.key, one.packet, one.time_ns, one.offset, via.packet, one.part, via.part, via.flow)
        for one in requests
        for via in (one.forwards or nowhere,)
    )


class InOrder:
    """The requests to a REP, which answers them in order."""

    def __init__(self) -> None:
        """Start without any."""
        self.waiting: deque[Request] = deque()
        self._keys: Counter[int] = Counter()

    def __len__(self) -> int:
        """How many wait."""
        return len(self.waiting)

    def add(self, request: Request) -> bool:
        """One more waits. Returns whether another one with its envelope does."""
        self.waiting.append(request)
        self._keys[request.key] += 1
        return self._keys[request.key] > 1

    def answer(self, event: Message, key: int, _meant: Place | None) -> Answer | None:
        """The request that a reply answers; None if it answers nothing."""
        waiting, keys = self.waiting, self._keys
        for place, request in enumerate(islice(waiting, _LOOKED_THROUGH)):
            if not can_know(event, request.offset):
                break
            if request.key == key:
                paired: Literal["order"] | None = "order" if keys[key] > 1 else None
                passed = [waiting.popleft() for _ in range(place + 1)]
                for one in passed:
                    keys[one.key] -= 1
                    if not keys[one.key]:
                        keys.pop(one.key)
                return Answer(request, paired, passed[:-1])
        return None

    def facts(self) -> tuple[bytes, bytes] | None:
        """The requests that wait, in order; None if they need a closer look."""
        if len(self.waiting) > MOST_IN_COLUMNS:
            return None
        return _packed(self.waiting), b""

    def go_on_from(self, waiting: bytes, _taken: bytes, request: Callable[[tuple[int, ...]], Request]) -> None:
        """Go on with these facts; ``request`` makes one."""
        self.clear()
        for one in WAITING.iter_unpack(waiting):
            self.add(request(one))

    def distrust(self, key: int) -> None:
        """There was a reply to nothing, which says nothing of the order."""

    def open(self) -> list[Request]:
        """The requests that wait."""
        return list(self.waiting)

    def clear(self) -> None:
        """Forget all."""
        self.waiting.clear()
        self._keys.clear()


class ByEnvelope:
    """The requests to any other socket. A reply answers one of those that have its envelope."""

    def __init__(self) -> None:
        """Start without any."""
        self._alike: dict[int, Alike[Request]] = {}
        self._length = 0

    def __len__(self) -> int:
        """How many wait."""
        return self._length

    def add(self, request: Request) -> bool:
        """One more waits. Returns whether another one with its envelope does."""
        alike = self._of(request.key)
        length = len(alike.waiting)
        alike.add(request)
        self._length += len(alike.waiting) - length
        return length > 0

    def _of(self, key: int) -> Alike[Request]:
        alike = self._alike.get(key)
        if alike is None:
            alike = self._alike[key] = Alike(_ALIKE)
            self._length += 1
        return alike

    def answer(self, event: Message, key: int, meant: Place | None) -> Answer | None:
        """The request that a reply answers, ``meant`` if that is known; None if it answers nothing."""
        alike = self._alike.get(key)
        if alike is None:
            return None
        waiting = alike.waiting
        length = len(waiting)
        if meant is not None:
            answer = Answer(next((one for one in waiting if one.place == meant), None), "forwards")
            if answer.request is not None:
                alike.remove(answer.request)
        else:
            known = bisect_left(waiting, event.seen, key=_OFFSET)
            if not alike.are_left(known):
                return None
            answer = Answer(alike.take(known), "envelope")
        self._length -= length - len(waiting)
        if not waiting and alike.is_certain:
            del self._alike[key]
            self._length -= 1
        return answer

    def facts(self) -> tuple[bytes, bytes] | None:
        """The requests that wait, and how many with one envelope are taken; None if they need a closer look."""
        alike = self._alike
        requests = self.open()
        if len(requests) > MOST_IN_COLUMNS or any(each.is_given_up for each in alike.values()):
            return None
        taken = [TAKEN.pack(key, each.taken) for key, each in alike.items() if not each.is_certain]
        return _packed(requests), b"".join(taken)

    def go_on_from(self, waiting: bytes, taken: bytes, request: Callable[[tuple[int, ...]], Request]) -> None:
        """Go on with these facts; ``request`` makes one."""
        self.clear()
        for one in WAITING.iter_unpack(waiting):
            self.add(request(one))
        for key, count in TAKEN.iter_unpack(taken):
            self._alike[key].taken = count

    def open(self) -> list[Request]:
        """The requests that wait, and some of those that may have got a reply."""
        return [one for each in self._alike.values() for one in each.waiting]

    def distrust(self, key: int) -> None:
        """There was a reply to nothing: whoever replies with this envelope says more than replies."""
        self._of(key).give_up()

    def clear(self) -> None:
        """Forget all."""
        self._alike.clear()
        self._length = 0
