"""Events to count and records to compare, for the tests of statistics."""

import io
import json
import math
from fractions import Fraction
from typing import Any

from dissectors.events import Connection, Message, Octets, Peer, Sides
from zmtpsniff.analysis.statistics.sketch import ACCURACY
from zmtpsniff.analysis.statistics.stats_records import AnyRecord
from zmtpsniff.render.jsonl import JsonlRenderer

ALL = 1_000_000


def as_json(events: list[Any]) -> list[dict[str, Any]]:
    stream = io.BytesIO()
    JsonlRenderer(stream).write(events)
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def rows(records: list[AnyRecord], kind: type) -> list[Any]:
    return [record for record in records if type(record) is kind]


def check_percentile(found: int, values: list[int], percent: int) -> None:
    exact = nearest_rank(values, percent)
    if exact > 0:
        assert abs(found - exact) <= exact * ACCURACY + 1  # results are whole nanoseconds
    else:  # of times that went backwards only the number and the first is known
        assert min(values) <= found <= 0


def nearest_rank(values: list[int], percent: int) -> int:
    return sorted(values)[max(0, math.ceil(Fraction(percent, 100) * len(values)) - 1)]


def published(topic: Octets, flow: int = 1, time_ns: int = 10**18) -> Message:
    return Message(time_ns, 1, flow, "10.0.0.1:5555", "10.0.0.2:40000", [topic, b"body"], "PUB", matched=topic)


def connection(flow: int, address: str = "10.0.0.1:5555", messages: int = 0) -> Connection:
    client = Peer("10.0.0.2:40000", "3.1", "SUB", b"i" * 1000)
    server = Peer(address, "3.1", "PUB")
    return Connection(flow, "tcp", client, server, Sides(0, messages), Sides(64, 64), flow, flow + 10**9, "fin")
