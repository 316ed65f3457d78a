"""Pipelines (30/PIPELINE): how a bound PUSH socket shares out its messages among its workers."""

from collections.abc import Iterator

import msgspec

from dissectors.events import Connection, Share, Work

_WORKERS = 1000  # of one PUSH socket that get a record each
_PIPELINES = 1000


class Pipeline(msgspec.Struct, eq=False):
    """The messages that a PUSH socket has sent."""

    messages: int = 0
    workers: dict[str, int] = {}  # messages by address


class Pipelines:
    """The messages of all bound PUSH sockets, by worker."""

    def __init__(self) -> None:
        """Start without any."""
        self._pipelines: dict[str, Pipeline] = {}

    def end(self, event: Connection) -> None:
        """Count the messages that a bound PUSH socket gave to one of its workers.

        A PUSH socket that connects has another port on each connection, so nothing shows which of them belong together.
        """
        if event.server.socket_type != "PUSH" or event.client.socket_type != "PULL":
            return
        address = event.server.address
        if address not in self._pipelines and len(self._pipelines) >= _PIPELINES:
            return
        pipeline = self._pipelines.setdefault(address, Pipeline())
        pipeline.messages += event.messages.server
        worker = event.client.address
        if worker in pipeline.workers or len(pipeline.workers) < _WORKERS:
            pipeline.workers[worker] = pipeline.workers.get(worker, 0) + event.messages.server

    def work(self) -> Iterator[Work]:
        """A record for each socket with several workers."""
        for address, pipeline in self._pipelines.items():
            total = pipeline.messages
            if len(pipeline.workers) > 1 and total:
                shares = [Share(worker, count, round(count / total, 4)) for worker, count in pipeline.workers.items()]
                yield Work(address, total, sorted(shares, key=lambda share: -share.messages))
