"""Measure what ``zmtpsniff live --metrics`` costs: processor time with and without it, under the same load.

    sudo python benchmarks/metrics.py [--rate N] [--seconds N] [--repeat N]
    python benchmarks/metrics.py --file CAPTURE [--repeat N]

PUSH and PULL on a loopback of its own say so many messages a second. Runs with and without metrics take turns; somebody
asks for the metrics every five seconds. The line at the end has the medians.

With a file, what metrics cost is measured without capturing: dissecting it and writing JSON Lines, the least of all
runs. Other patterns cost more, since findings look at their messages.
"""

from __future__ import annotations

import argparse
import os
import signal
import statistics
import subprocess
import sys
import threading
import time
import urllib.request
from pathlib import Path

import loads
import network

PORT = 9464
_BETWEEN_S = 5.0  # two looks at the metrics; Prometheus looks every 15 s or less often
TARGET = 0.05  # of the processor time without metrics


def main() -> int:
    """Measure and print; the exit status is 1 if it costs more than it should."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rate", type=int, default=50_000, metavar="N", help="messages a second (default: 50,000)")
    parser.add_argument("--seconds", type=float, default=20.0, metavar="N", help="of each run (default: 20)")
    parser.add_argument("--repeat", type=int, default=3, metavar="N", help="runs of each (default: 3)")
    parser.add_argument("--file", metavar="CAPTURE", help="dissect this instead of a live load")
    options = parser.parse_args()
    if options.file:
        runs = [(_dissect(options.file, False), _dissect(options.file, True)) for _ in range(options.repeat)]
        alone, counted = map(min, zip(*runs, strict=True))
        print(f"{options.file}: {alone:.2f} µs an event, with metrics {counted:.2f} ({counted / alone - 1:+.1%})")
        return 0
    network.enter()
    without, beside = [], []
    for _ in range(options.repeat):
        without.append(_run(options.rate, options.seconds, []))
        beside.append(_run(options.rate, options.seconds, ["--metrics", f"127.0.0.1:{PORT}"]))
    cost = statistics.median(beside) / statistics.median(without) - 1
    print(
        f"{options.rate:,} messages a second: {statistics.median(without):.2f} µs of processor time a message, with "
        f"metrics {statistics.median(beside):.2f} ({cost:+.1%})"
    )
    return int(cost > TARGET)


def _run(rate: int, seconds: float, more: list[str]) -> float:
    """The processor time of a capture, in µs for each message that it shows."""
    command = [sys.executable, "-m", "zmtpsniff", "live", "-i", "lo", "-f", "tcp port not 9464", "-v", "-T", "json"]
    records = Path(f"/tmp/zmtpsniff-metrics-{os.getpid()}.json")
    with open(records, "wb") as file:
        process = subprocess.Popen([*command, *more], stdout=file, stderr=subprocess.PIPE, cwd=Path(__file__).parent)
    assert process.stderr
    while b"capturing on" not in process.stderr.readline():
        pass
    begin = _processor_time(process.pid)
    ended = threading.Event()
    if more:
        threading.Thread(target=_scrape, args=[ended], daemon=True).start()
    loads.flood(rate, seconds).send()
    time.sleep(2)  # for what still waits
    used = _processor_time(process.pid) - begin
    ended.set()
    process.send_signal(signal.SIGINT)
    process.wait(60)
    with open(records, "rb") as file:
        messages = sum(b'"type":"message"' in line for line in file)
    records.unlink()
    return used / messages * 1e6


def _dissect(file: str, with_metrics: bool) -> float:
    """The processor time in this process, in µs for each event."""
    from zmtpsniff.analysis.findings import Diagnosis
    from zmtpsniff.analysis.findings.finding_watch import FindingWatch
    from zmtpsniff.dissection import open_files
    from zmtpsniff.engine.memory import spare_collector
    from zmtpsniff.engine.settings import Settings
    from zmtpsniff.engine.sniffer import Collaborators
    from zmtpsniff.export.metrics import Metrics
    from zmtpsniff.render import make_renderer

    spare_collector()
    diagnosis = Diagnosis() if with_metrics else None
    capture = open_files([file], Settings(), Collaborators(witness=diagnosis))
    metrics = Metrics(capture, diagnosis, FindingWatch(diagnosis.findings)) if diagnosis else None
    with open(os.devnull, "w", encoding="utf-8") as nowhere:
        renderer = make_renderer("json", nowhere)
        begin, events = time.process_time(), 0
        for batch in capture.batches():
            events += len(batch)
            if metrics:
                metrics.take(batch)
            renderer.write(batch)
        return (time.process_time() - begin) / events * 1e6


def _processor_time(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _scrape(ended: threading.Event) -> None:
    while not ended.wait(_BETWEEN_S):
        with urllib.request.urlopen(f"http://127.0.0.1:{PORT}/metrics", timeout=10) as answer:
            answer.read()


if __name__ == "__main__":
    sys.exit(main())
