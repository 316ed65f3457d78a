"""A report of a fleet, made up: what is drawn of it, with text that a hostile peer would choose."""

from zmtpsniff.spark.report.records import (
    AnyRecord,
    CutRow,
    LatencyRow,
    PairRow,
    ProblemRow,
    SocketRow,
    StormRow,
    TimelineRow,
    TopicRow,
    TotalRow,
    VersionRow,
)

HOUR = 3_600_000_000_000
MS = 1_000_000
BEGIN = 1_795_219_200_000_000_000  # 2026-11-21 00:00:00 UTC
HOSTILE = "</text></svg><script>alert(1)</script><img src=x onerror=alert(1)>"


def records() -> list[AnyRecord]:
    """Two days of it."""
    hours = range(48)
    found: list[AnyRecord] = [
        TotalRow(1920, 48_000_000, 12, 5230, 31_000_000, 9_300_000_000, 40, 131, BEGIN, BEGIN + 48 * HOUR),
        PairRow("10.0.0.7", "10.0.1.5:5555", 4000, 12, 20_000_000, 20_000_000, 10**9, 3 * 10**9, BEGIN, BEGIN + HOUR,
                "REQ", "REP"),
        PairRow("10.0.0.8", "[2001:db8::5]:5556", 30, 2, 0, 11_000_000, 10**6, 10**9, BEGIN, BEGIN + HOUR,
                "<b>SUB\x1b[31m", "PUB"),
        CutRow("report-pair", 210),
        SocketRow("10.0.1.5:5555", 4000, 12, 20_000_000, 20_000_000, 10**9, 3 * 10**9, BEGIN, 48 * HOUR,
                  {"REP": 4000}, {"REQ": 3990, "DEALER": 10}, {"3.1": 3000, "3.0": 1000}, {"NULL": 4000}),
    ]  # fmt: skip
    for hour in hours:
        start = BEGIN + hour * HOUR
        found.append(VersionRow(start, HOUR, 80 + hour % 7 * 5, "3.1", "NULL"))
        found.append(VersionRow(start, HOUR, 40 - hour // 2, "3.0", "PLAIN"))
    found.append(VersionRow(BEGIN + HOUR, HOUR, 6, None, None))
    topics = [b"weather.berlin", b"$\\frac{1}$", HOSTILE.encode(), b"_hidden", b"", b"\x00\xff\x80", "東京".encode()]
    for place, topic in enumerate(topics):
        found.append(TopicRow(topic, 5_000_000 // (place + 1), 10**8 // (place + 1), 10 - place, 12))
    found.append(LatencyRow(20_000_000, 90_000, 200_000, 2 * MS, 9 * MS, 4000 * MS))
    services = ["10.0.1.5:5555", "10.0.1.6:5555"]
    found += [LatencyRow(10_000_000, 90_000, 200_000, 2 * MS, 9 * MS, 4000 * MS, service) for service in services]
    for place, service in enumerate(services):
        for hour in hours:
            p95 = (2 + place) * MS * (1 + (hour * 7 % 24) // 6)
            times = (90_000, 200_000, p95, 4 * p95, 400 * p95)
            found.append(LatencyRow(200_000, *times, service, BEGIN + hour * HOUR))
    found += [TimelineRow(BEGIN + hour * HOUR, HOUR, 400_000 + hour * 37 % 24 * 20_000, 10**8) for hour in hours]
    found.append(StormRow("10.0.0.9", "10.0.1.5:5555", 620, BEGIN + HOUR, BEGIN + 2 * HOUR, "incomplete"))
    found += [
        ProblemRow("error", "bad-metadata", 3, f"the value of {HOSTILE!r}", "10.0.0.9", BEGIN, "/c/web1/1.pcap", 17),
        ProblemRow("warning", "handshake-incomplete", 120, "the connection was closed", "10.0.0.9", BEGIN + HOUR),
        ProblemRow("warning", "capture-gap", 7, "octets are missing", "10.0.0.7", BEGIN + HOUR),
        ProblemRow("error", "file-broken", 1, "the file ends in the middle", None, None, "/c/web2/3.pcap"),
    ]
    return found
