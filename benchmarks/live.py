"""Measure ``zmtpsniff live`` with each engine beside tshark and tcpdump, under load, and write the table.

    sudo python benchmarks/live.py [--tshark COMMAND] [--engine NAME]... [--quick]

benchmarks/README.md says what is measured and needed.
"""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

import keys
import live_report
import loads
import network
import observe
import observers
import price
import tools
import traffic

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "LIVE.md"
WORK = HERE / "work"
ENGINES = ("dumpcap", "scapy", "tshark", "tcpdump")

RATES = (50_000, 100_000)  # packets a second
FLOOD_RATES = (10_000, 100_000, 500_000)  # messages a second
HIGHEST_RATES = (600_000, 500_000, 400_000, 300_000, 200_000)  # packets a second, tried in this order
COST_RATES = (2_000, 20_000, 50_000)  # packets a second, each with a message
ROUND_TRIPS, COST_ROUND_TRIPS = 5_000, 500  # of the connection that is replayed many times
SECONDS, COST_SECONDS = 10.0, 60.0
DRIP_INTERVAL_S, DRIP_SECONDS = 0.01, 5.0
LIMIT_ENGINE = "scapy"
KEPT_RATE = 0.95  # so much of a rate the load must reach
QUICK_PART = 10


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    beside = shlex.quote(str(Path(sys.executable).with_name("zmtpsniff")))
    parser.add_argument("--zmtpsniff", default=beside, metavar="COMMAND", help="default: the one of this Python")
    parser.add_argument("--tshark", default="tshark", metavar="COMMAND", help='e.g. "chroot /opt/trixie tshark"')
    parser.add_argument(
        "--engine",
        action="append",
        metavar="NAME",
        help=f"an engine of zmtpsniff; repeatable, the ratios refer to the first (default: {', '.join(ENGINES)})",
    )
    parser.add_argument(
        "--patience", type=float, default=10.0, metavar="N", help="seconds to catch up after a load (default: 10)"
    )
    parser.add_argument("--quick", action="store_true", help="a tenth of the time; LIVE.md stays as it is")
    parser.add_argument("--repeat", type=int, default=1, metavar="N", help="runs of each, the best counts (default: 1)")
    return parser.parse_args()


def main() -> int:
    """Measure, write; the exit status says whether all could be run, not whether the targets were met."""
    options = _arguments()
    try:
        network.enter()
        recording, shorter = (traffic.ensure("ping-pong", count, WORK) for count in (ROUND_TRIPS, COST_ROUND_TRIPS))
    except (network.NoNetworkError, traffic.CannotRecordError) as reason:
        print(f"live.py: {reason}", file=sys.stderr)
        return 1
    zmtpsniff, engines = shlex.split(options.zmtpsniff), options.engine or ENGINES
    tshark = tools.find_tshark(shlex.split(options.tshark))
    chosen = [
        *(observers.of_engine(zmtpsniff, engine) for engine in engines),
        observers.of_tshark(tshark),
        observers.of_tcpdump(),
    ]

    saved = WORK / "cost.pcap"
    left_running = [
        observers.of_engine(zmtpsniff, "auto"),
        observers.of_tcpdump(saved),
        observers.of_tcpdump(),
    ]
    part = QUICK_PART if options.quick else 1
    seconds, cost_seconds = SECONDS / part, COST_SECONDS / part

    def compare(load: loads.Load, *, terminal: bool = False) -> live_report.Comparison:
        return _compare(load, chosen, options.repeat, options.patience, terminal=terminal)

    under_load = [
        compare(load)
        for load in (
            *(_replay(recording, rate, seconds) for rate in RATES),
            *(loads.flood(rate, seconds) for rate in FLOOD_RATES),
        )
    ]
    cost = [
        _compare(load, left_running, 1, options.patience, terminal=False)
        for load in (loads.idle(cost_seconds), *(_replay(shorter, rate, cost_seconds) for rate in COST_RATES))
    ]
    at_the_limit = [observers.of_engine(zmtpsniff, LIMIT_ENGINE), observers.of_tcpdump(saved)]
    limits = [
        _compare(load, at_the_limit, options.repeat, options.patience, terminal=False)
        for load in (_fastest_replay(recording, seconds, cost_seconds, saved), loads.endless_flood(seconds))
    ]
    for path in (saved, *WORK.glob("*-by-*.pcap")):
        path.unlink(missing_ok=True)
    drip = loads.drip(DRIP_INTERVAL_S, min(seconds, DRIP_SECONDS))
    measurements = live_report.Measurements(
        versions={
            "zmtpsniff": tools.version(zmtpsniff),
            "Python": sys.version.partition(" ")[0],
            "dumpcap": tools.version(["dumpcap"]),
            "tshark": tshark.version,
            "tcpdump": tools.version(["tcpdump"]),
            "tcpreplay": tools.version(["tcpreplay"]),
        },
        tshark_knows_zmtp=tshark.knows_zmtp,
        repeat=options.repeat,
        seconds=seconds,
        cost_seconds=cost_seconds,
        patience=options.patience,
        loads=under_load,
        cost=cost,
        watched=under_load[0],
        fast=under_load[len(RATES) - 1],
        limits=limits,
        pipe=compare(drip),
        terminal=compare(drip, terminal=True),
        engines=engines,
    )
    return _publish(measurements, worth_keeping=not options.quick)


def _replay(recording: traffic.Recording, rate: int, seconds: float) -> loads.Load:
    longer, connections = loads.lengthen(recording, round(rate * seconds))
    return loads.replay(longer, connections, rate)


def _fastest_replay(recording: traffic.Recording, seconds: float, long_seconds: float, saved: Path) -> loads.Load:
    """The replay of ``long_seconds`` at the highest rate at which tcpdump loses nothing in ``seconds``.

    A rate counts only if the load keeps it. If none does, it is the lowest one.
    """
    for rate in HIGHEST_RATES:
        ((row,)) = _compare(_replay(recording, rate, seconds), [observers.of_tcpdump(saved)], 1, 0, terminal=False).rows
        run = row.best
        if run and not run.drops.kernel and run.sent.packets / run.sent.seconds > KEPT_RATE * rate:
            break
    return _replay(recording, rate, long_seconds)


def _compare(
    load: loads.Load, chosen: Sequence[observe.Observer], repeat: int, patience: float, *, terminal: bool
) -> live_report.Comparison:
    """Run the commands in turn, so that a machine that is busy for a while is so for all of them."""
    rows = [live_report.Row(observer) for observer in chosen]
    for _ in range(repeat):
        for row in rows:
            # One failure is told, and has another try: tshark has been seen to crash.
            for _ in range(2):
                if row.failure and len(row.failures) > 1:
                    break
                _say(f"{load.title}{' (terminal)' if terminal else ''}: {row.observer.name}")
                try:
                    row.runs.append(observe.observe(row.observer, load, patience, terminal=terminal))
                    break
                except observe.Failure as reason:
                    row.failures.append(str(reason))
                    _say(f"  {reason}")
    return live_report.Comparison(load, rows)


def _publish(measurements: live_report.Measurements, *, worth_keeping: bool) -> int:
    """Print the report, and write it where it is kept if its figures are worth keeping."""
    text = live_report.markdown(measurements)
    print(text)
    failures = measurements.failures()
    if not worth_keeping:
        _say("a quick run: nothing written")
    else:
        kept = price.part(RESULTS.read_text()) + keys.part(RESULTS.read_text())  # they are measured apart
        RESULTS.write_text(f"# Live benchmark results\n\nWritten by `benchmarks/live.py`.\n\n{text}\n{kept}")
        _say(f"written: {RESULTS.name}")
    for failure in failures:
        print(f"live.py: {failure}", file=sys.stderr)
    return 1 if failures else 0


def _say(what: str) -> None:
    print(what, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
