"""How many messages a second each topic of a capture has: python rates_by_topic.py CAPTURE..."""

import sys
from collections import Counter

import zmtpsniff


def main(*paths: str) -> None:
    """Print a line for each topic, the busiest first."""
    counts: Counter[bytes] = Counter()
    octets: Counter[bytes] = Counter()
    with zmtpsniff.open(paths, where='type == "message" && topic') as capture:
        for message in capture.messages():
            topic = message.octets(0)
            counts[topic] += 1
            octets[topic] += sum(map(len, message.frames))
        seconds = capture.totals.duration_ns / 1e9 or 1
    for topic, count in counts.most_common():
        print(f"{count / seconds:8.1f}/s {octets[topic] / seconds:10.0f} B/s  {topic!r}")


if __name__ == "__main__":
    main(*sys.argv[1:])
