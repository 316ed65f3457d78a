"""The costs of display filters: microseconds a record, best of fifteen, for filters from simple to not so simple.

Run it with ``python benchmarks/filters.py`` while nothing else runs.
"""

from __future__ import annotations

import time
import timeit

from dissectors.events import Greeting, Message
from zmtpsniff.filters import compile_filter

FILTERS = [
    'type == "message"',
    'socket_type == "PUB"',
    "packet > 1000",
    'type == "message" && frames[0].text == "orders"',
    'frames[0] == "orders" || frames[0] == "prices"',
    'frames contains "42"',
    'frames[-1].text contains "42"',
    'frames[0] matches "^ord.rs$"',
    "tcp.port == 5555",
    "ip.addr == 10.0.0.0/8",
    'flow in {1, 3 .. 9} && !(socket_type == "SUB")',
    "count(frames) > 1 and len(frames[1]) > 10",
]
NUMBER = 50_000


def _cost(filter_text: str, event: object) -> float:
    """Microseconds a call."""
    names = {"passes": compile_filter(filter_text), "e": event}
    call = min(timeit.repeat("passes(e)", globals=names, number=NUMBER, repeat=15))
    return call / NUMBER * 1e6


def main() -> None:
    """Print a table in Markdown."""
    place = (1_700_000_000_000_000_000, 4000, 3, "10.0.0.1:5555", "10.0.0.2:40000")
    message = Message(*place, [b"orders", b"an order of 42 pieces"], "PUB")
    greeting = Greeting(*place, "3.1", "NULL", False)
    began = time.perf_counter()
    compile_filter(FILTERS[0])
    print(f"The first filter is compiled in {(time.perf_counter() - began) * 1000:.0f} ms, imports included.\n")
    print("| Filter | µs a message | µs a greeting | compiled in ms |\n| :-- | --: | --: | --: |")
    for text in FILTERS:
        began = time.perf_counter()
        compile_filter(text)
        took = (time.perf_counter() - began) * 1000
        shown = text.replace("|", "\\|")
        print(f"| `{shown}` | {_cost(text, message):.2f} | {_cost(text, greeting):.2f} | {took:.1f} |")


if __name__ == "__main__":
    main()
