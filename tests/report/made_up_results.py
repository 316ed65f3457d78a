"""A report of a fleet, made up, with text that a hostile peer would choose."""

from dissectors.events import Process
from zmtpsniff.analysis.findings.finding import Evidence, Finding
from zmtpsniff.analysis.ways.way_records import Leg, Slowest, Terminus, Way
from zmtpsniff.report.results import (
    ReportClock,
    ReportConversation,
    ReportCut,
    ReportDelay,
    ReportFile,
    ReportLatency,
    ReportPair,
    ReportPeer,
    ReportProblem,
    ReportQueue,
    ReportReplies,
    ReportSeries,
    ReportSilence,
    ReportSocket,
    ReportStep,
    ReportStorm,
    ReportSubscription,
    ReportTimeline,
    ReportTopic,
    ReportTotal,
    ReportVersion,
    Results,
)

HOUR = 3_600_000_000_000
MS = 1_000_000
BEGIN = 1_795_219_200_000_000_000  # 2026-11-21 00:00:00 UTC
HOSTILE = "</script></text></svg><script>alert(1)</script><img src=x onerror=alert(1)>"
SERVICES = ["10.0.1.5:5555", "10.0.1.6:5555"]


def results() -> Results:
    """Two days of such results."""
    hours = [BEGIN + hour * HOUR for hour in range(48)]
    total = ReportTotal(1920, 48_000_000, 12, 5230, 31_000_000, 9_300_000_000, 40, 131, BEGIN, BEGIN + 48 * HOUR, 1)
    made = Results(total)
    made.findings = [
        Finding("error", "endpoint-refused", f"nobody listens at {HOSTILE}", "17 SYNs got a RST", "Start <it>.", 17,
                [Evidence(17, 3)], ["10.0.1.9:5555"], "likely", BEGIN, BEGIN + HOUR),
    ]  # fmt: skip
    legs = [
        Leg("10.0.0.7:40000", SERVICES[0], 1, 17, BEGIN),
        Leg(f"10.0.1.5:{HOSTILE}", SERVICES[1], 2, 18, BEGIN + MS, joined="envelope"),
        Leg(SERVICES[1], f"10.0.1.5:{HOSTILE}", 2, 19, BEGIN + 9 * MS, reply=True, joined="order", certain=False),
        Leg(SERVICES[0], "10.0.0.7:40000", 1, 20, BEGIN + 10 * MS, reply=True, joined="envelope"),
    ]
    made.ways = [
        Way("request", BEGIN, 10 * MS, legs, True, Slowest(SERVICES[1], 8 * MS, "inside")),
        Way("request", BEGIN, MS, legs[:2], False, None, Terminus(f"10.0.1.5:{HOSTILE}", "closed")),
    ]
    made.pairs = [
        ReportPair("10.0.0.7", SERVICES[0], 4000, 12, 20_000_000, 20_000_000, 10**9, 3 * 10**9, BEGIN, BEGIN + HOUR,
                   "REQ", "REP", {"warning": 3}),
        ReportPair("10.0.0.8", "[2001:db8::5]:5556", 30, 2, 0, 11_000_000, 10**6, 10**9, BEGIN, BEGIN + HOUR,
                   "<b>SUB\x1b[31m", "PUB"),
        ReportPair("10.0.0.9", SERVICES[0], 620, 0, 0, 0, 6200, 0, BEGIN, BEGIN + HOUR, None, None, {"error": 1}),
    ]  # fmt: skip
    made.sockets = [
        ReportSocket(SERVICES[0], 4000, 12, 20_000_000, 20_000_000, 10**9, 3 * 10**9, BEGIN, 48 * HOUR,
                     {"REP": 4000}, {"REQ": 3990, "DEALER": 10}, {"3.1": 3000, "3.0": 1000}, {"NULL": 4000}),
        ReportSocket("[2001:db8::5]:5556", 30, 2, 0, 11_000_000, 10**6, 10**9, BEGIN, HOUR, {HOSTILE: 30}),
    ]  # fmt: skip
    made.peers = [
        ReportPeer(SERVICES[0], f"10.0.1.{place}:40000", 1, "worker", HOSTILE, Process(place, HOSTILE), 90 - place,
                   90 - place, 0.25, 80, MS, 2 * MS, 9 * MS, place, 0, place * MS, 0)
        for place in range(4)
    ]  # fmt: skip
    made.queues = [ReportQueue(SERVICES[0], 900, 800, 120, BEGIN + HOUR, 100), ReportQueue(HOSTILE, 9, 9, 0, BEGIN, 0)]
    for hour, start in enumerate(hours):
        made.versions.append(ReportVersion(start, HOUR, 80 + hour % 7 * 5, "3.1", "NULL"))
        made.versions.append(ReportVersion(start, HOUR, 40 - hour // 2, "3.0", "PLAIN"))
    made.versions.append(ReportVersion(BEGIN + HOUR, HOUR, 6, None, None))
    topics = [b"weather.berlin", b"$\\frac{1}$", HOSTILE.encode(), b"_hidden", b"", b"\x00\xff\x80", "東京".encode()]
    for place, topic in enumerate(topics):
        counts = (5_000_000 // (place + 1), 10**8 // (place + 1))
        made.topics.append(ReportTopic(topic, *counts))
        made.subscriptions.append(ReportSubscription(topic, *counts, 10 - place, 12))
    made.latencies = [
        ReportLatency(20_000_000 // (1 + bool(name)), 90_000, 200_000, 2 * MS, 9 * MS, 4000 * MS, name)
        for name in (None, *SERVICES)
    ]
    for place, service in enumerate((None, *SERVICES)):
        for hour, start in enumerate(hours):
            count = 400_000 + hour * 37 % 24 * 20_000
            made.timeline.append(ReportTimeline(start, HOUR, count // (1 + bool(place)), 10**8, service))
            for least, share in ((100_000, 3), (125_893, 9), (1_000_000, 1 + place), (10_000_000, hour % 2)):
                made.replies.append(ReportReplies(start, HOUR, least, least * 5 // 4, 1000 * share, service))
    made.delays = [ReportDelay(SERVICES[0], 9000, 40_000, 90_000, 100_000, 2 * MS, 45_000, 95_000)]
    made.clocks = [ReportClock("/c/web1", "/c/web2", BEGIN, -3 * MS, 1.25, 40_000)]
    made.storms = [ReportStorm("10.0.0.9", SERVICES[0], 620, BEGIN + HOUR, BEGIN + 2 * HOUR, "incomplete")]
    made.problems = [
        ReportProblem("error", "bad-metadata", 3, f"the value of {HOSTILE!r}", "10.0.0.9", BEGIN, "/c/web1/1.pcap", 17),
        ReportProblem("warning", "handshake-incomplete", 120, "the connection was closed", "10.0.0.9", BEGIN + HOUR),
        ReportProblem("warning", "capture-gap", 7, "octets are missing", "10.0.0.7", BEGIN + HOUR),
        ReportProblem("error", "capture-corrupt", 1, "the file ends in the middle", None, None, "/c/web2/3.pcap"),
    ]
    made.series = [
        ReportSeries("/c/web1", 960, 24_000_000, 12, 0, BEGIN, BEGIN + 48 * HOUR),
        ReportSeries("/c/web2", 960, 24_000_000, 0, 1, BEGIN, BEGIN + 31 * HOUR, 17 * HOUR),
    ]
    made.files = [ReportFile("/c/web2/<3>.pcap", "damaged", "the file ends in the middle of a packet")]
    made.silences = [ReportSilence("10.0.0.8", 11_000_000, 2, BEGIN + 30 * HOUR, 18 * HOUR, HOUR)]
    steps = [
        ReportStep(BEGIN, "greeting", "greeting ZMTP 3.1 NULL", 4, True),
        ReportStep(BEGIN + MS, "greeting", "greeting ZMTP 3.1 NULL", 5, False),
        ReportStep(BEGIN + 2 * MS, "message", f'REQ "" "{HOSTILE}"', 9, True),
        ReportStep(BEGIN + 9 * MS, "problem", f"error bad-metadata: {HOSTILE}", 17, False, 130, "error"),
    ]
    made.conversations = [
        ReportConversation(3, "10.0.0.7:41000", SERVICES[0], 200, BEGIN, BEGIN + HOUR, "open", "REQ", "REP",
                           {"error": 1}, steps),
    ]  # fmt: skip
    made.cuts = [ReportCut("report-pair", 210)]
    return made
