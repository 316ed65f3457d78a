"""Parts of a batch are counted together, as long as nothing else is asked of their messages."""

from collections.abc import Callable, Sequence, Set

from dissectors.batches import BatchSide, MessageBatch
from dissectors.columns import MESSAGE
from dissectors.events import Problem
from zmtpsniff.analysis.findings.counted_parts import CountedParts
from zmtpsniff.analysis.findings.inquiry import Listener
from zmtpsniff.analysis.findings.unanswered_requests import Requests

ASKS, TELLS = 1, 2  # flows
SENDERS = [BatchSide(flow, "a", "b", None, flow == ASKS, False, True) for flow in (ASKS, ASKS, TELLS, TELLS)]


class _CountedRequests(Requests):
    """Requests of one flow, of which only the sizes of batches are noted."""

    def __init__(self) -> None:
        super().__init__(lambda _: False)
        self.sizes: list[int] = []

    def counts_columns(self, flow: int) -> bool:
        return flow == ASKS

    def take_columns(self, batch: MessageBatch, flows: Set[int]) -> None:
        assert flows == {ASKS}
        self.sizes.append(len(batch))


def _batch(senders: list[BatchSide] = SENDERS) -> MessageBatch:
    return MessageBatch(b"", b"", 1, bytes(9 * MESSAGE.size), bytes(8), b"", senders)


def _ignore(_: object) -> None:
    """Listen to nothing."""


def _problem_of(flow: int | None) -> Problem:
    return Problem("note", "flow-gap", "some", flow=flow)


def _parts(
    requests: Requests, follows: Callable[[int], bool] = lambda _: False
) -> tuple[dict[int, Sequence[Listener]], CountedParts]:
    listeners: dict[int, Sequence[Listener]] = {ASKS: [_ignore]}
    return listeners, CountedParts(listeners, requests, follows)


def test_parts_are_counted_together() -> None:
    """Another batch is another sum."""
    requests = _CountedRequests()
    _, parts = _parts(requests)
    whole, other = _batch(), _batch()
    assert parts.add(whole.part(0, 2))
    assert parts.add(whole.part(2, 5))
    assert requests.sizes == []
    assert parts.add(other)
    assert requests.sizes == [5]
    parts.count()
    parts.count()
    assert requests.sizes == [5, 9]


def test_events_of_other_connections_do_not_matter() -> None:
    """One of their own does, so they are to be counted before."""
    _, parts = _parts(_CountedRequests())
    assert not parts.concerns([_problem_of(ASKS)])
    assert parts.add(_batch())
    assert not parts.concerns([_problem_of(7), _problem_of(None)])
    assert parts.concerns([_problem_of(7), _problem_of(ASKS)])


def test_messages_that_somebody_listens_to_are_not_added() -> None:
    """A listener may begin between two parts: what came before counts."""
    requests = _CountedRequests()
    listeners, parts = _parts(requests)
    whole = _batch()
    assert parts.add(whole.part(0, 4))
    listeners[TELLS] = [_ignore]
    assert not parts.add(whole.part(4, 9))
    assert requests.sizes == [4]


def test_messages_on_ways_are_not_added() -> None:
    """They may be from now on."""
    requests, followed = _CountedRequests(), set[int]()
    _, parts = _parts(requests, followed.__contains__)
    whole = _batch()
    assert parts.add(whole.part(0, 4))
    followed.add(TELLS)
    assert not parts.add(whole.part(4, 9))
    assert requests.sizes == [4]


def test_nothing_to_count_needs_no_sum() -> None:
    """A PUSH asks for nothing."""
    requests = _CountedRequests()
    _, parts = _parts(requests)
    assert parts.add(_batch(SENDERS[2:]))
    parts.count()
    assert requests.sizes == []
