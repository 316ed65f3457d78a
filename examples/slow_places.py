"""Where the time of the requests to a service went: python slow_places.py SERVICE CAPTURE..., such as 10.0.0.1:5555."""

import sys
from collections import defaultdict
from statistics import median

import zmtpsniff


def main(service: str, *paths: str) -> None:
    """Print how long requests took, and the places where most of their time went, the slowest place first."""
    with zmtpsniff.open(paths) as capture:
        ways = [way for way in capture.ways() if way.kind == "request" and way.legs[0].dst == service]
    places: defaultdict[tuple[str, str], list[int]] = defaultdict(list)
    for way in ways:
        if way.slowest is not None:
            places[way.slowest.at, way.slowest.what].append(way.slowest.ns)
    took = [way.duration_ns for way in ways if way.answered]
    lost = sum(way.answered is False for way in ways)
    print(f"{len(ways)} requests to {service}, {lost} without a reply", end="")
    print(f"; half of the others took up to {median(took) / 1e6:.3f} ms" if took else "")
    for (at, what), times in sorted(places.items(), key=lambda item: -sum(item[1])):
        print(f"{sum(times) / 1e6:10.3f} ms  {what:8} {at}  ({len(times)} times the slowest place)")


if __name__ == "__main__":
    main(*sys.argv[1:])
