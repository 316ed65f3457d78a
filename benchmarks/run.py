"""Measure zmtpsniff beside tshark and tcpdump, on captures of its own making, and write the tables.

    python benchmarks/run.py [--tshark COMMAND] [--quick]

benchmarks/README.md describes the measurements, and how to come by a tshark that knows ZMTP.
"""

from __future__ import annotations

import argparse
import os
import shlex
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import loads
import measure
import report
import tools
import traffic

HERE = Path(__file__).resolve().parent
README = HERE.parent / "README.md"
RESULTS = HERE / "RESULTS.md"
WORK = HERE / "work"

PUSHED, ROUND_TRIPS, LARGE, CONNECTIONS, OVER_BROKERS = 1_000_000, 100_000, 1_000, 5_000, 10_000
IN_TURN, IN_TURN_ROUND_TRIPS = 10_000, 10  # connections that take turns packet by packet, and what each has
GROWTH = (1, 2, 4)
QUICK_PART = 20
SMALL_ROUND_TRIPS = 5
START_UPS = 10


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    beside = shlex.quote(str(Path(sys.executable).with_name("zmtpsniff")))
    parser.add_argument("--zmtpsniff", default=beside, metavar="COMMAND", help="default: the one of this Python")
    parser.add_argument("--before", default="", metavar="COMMAND", help="the zmtpsniff of version 0.9.0")
    parser.add_argument("--tshark", default="tshark", metavar="COMMAND", help='e.g. "chroot /opt/trixie tshark"')
    parser.add_argument("--repeat", type=int, default=3, metavar="N", help="runs of each command (default: 3)")
    parser.add_argument(
        "--once-over",
        type=float,
        default=30.0,
        metavar="SECONDS",
        help="do not repeat a command that took longer (default: 30)",
    )
    parser.add_argument("--quick", action="store_true", help="a twentieth of the traffic; RESULTS.md stays as it is")
    parser.add_argument("--renew", action="store_true", help="record the captures again")
    parser.add_argument("--record-only", action="store_true", help="record the captures and stop")
    return parser.parse_args()


def main() -> int:
    """Record, measure, write; the exit status says whether all could be run, not whether the targets were met."""
    options = _arguments()
    # An installed program has bytecode. Where none may be written, Python compiles all modules anew in each run.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    try:
        recordings, others, growing, small = _record(QUICK_PART if options.quick else 1, options.renew)
    except traffic.CannotRecordError as reason:
        print(f"run.py: {reason}", file=sys.stderr)
        return 1
    if options.record_only:
        return 0
    zmtpsniff = shlex.split(options.zmtpsniff)
    tshark = tools.find_tshark(shlex.split(options.tshark))
    commands = tools.compared(zmtpsniff, tshark)

    def compare(title: str, recording: traffic.Recording, chosen: Sequence[tools.Tool]) -> report.Comparison:
        _say(f"measuring {recording.path.name}")
        return report.Comparison(title, recording, _compare(recording, chosen, options.repeat, options.once_over))

    without = [tools.in_python(zmtpsniff), tools.without_patterns(zmtpsniff), tools.without_payload(zmtpsniff)]
    without += [tools.totals(name, zmtpsniff) for name in (tools.STATS, tools.DIAGNOSE)]
    before = tools.of_before(shlex.split(options.before)) if options.before else []
    not_for_people = [tool for tool in before if tool.name in map(tools.BEFORE.format, tools.RECORDS)]
    with_cost = [commands[0], *without, *commands[1:3], *before, *commands[3:]]
    push, round_trip, large, connections, mixed = (
        compare(title, recording, chosen)
        for title, recording, chosen in zip(
            (
                "Pushed small messages",
                "Round trips",
                "Messages of 1 MiB",
                "Short connections",
                "Pushed beside short connections",
            ),
            recordings,
            (with_cost, with_cost, commands, commands, commands),
            strict=True,
        )
    )
    broker, brokers, in_turn = others
    json_before = [tool for tool in before if tool.name == tools.BEFORE.format(tools.JSON)]
    own = [tool for tool in commands if tool.name in (tools.JSON, tools.SUMMARY, tools.TREE)]
    measurements = report.Measurements(
        versions={
            "zmtpsniff": tools.version(zmtpsniff),
            "Python": sys.version.partition(" ")[0],
            "tshark": tshark.version,
            "tcpdump": tools.version(["tcpdump"]),
        },
        tshark_knows_zmtp=tshark.knows_zmtp,
        repeat=options.repeat,
        once_over=options.once_over,
        push=push,
        round_trip=round_trip,
        large=large,
        connections=connections,
        mixed=mixed,
        broker=compare("Round trips over a broker", broker, [commands[0], *json_before]),
        in_turn=compare("Connections that take turns", in_turn, [commands[0], *json_before]),
        brokers=compare("Requests over three brokers", brokers, [*tools.of_brokers(zmtpsniff), *not_for_people]),
        growth=[compare("Growing files", recording, own) for recording in growing],
        start_up=_start_up(zmtpsniff, small),
    )
    return _publish(measurements, options.quick)


def _record(
    part: int, renew: bool
) -> tuple[list[traffic.Recording], list[traffic.Recording], list[traffic.Recording], traffic.Recording]:
    """Return the captures to compare on, those to compare with ourselves on, those that grow, and the small one."""
    done: dict[tuple[str, int], traffic.Recording] = {}

    def recording(scenario: str, count: int) -> traffic.Recording:
        if (scenario, count) not in done:
            _say(f"capture of {count:,} times {scenario}")
            done[scenario, count] = traffic.ensure(scenario, count, WORK, renew=renew)
        return done[scenario, count]

    compared = [
        recording("push", PUSHED // part),
        recording("round-trip", ROUND_TRIPS // part),
        recording("large", LARGE // part),
        recording("connections", CONNECTIONS // part),
        recording("mixed", CONNECTIONS // part),
    ]
    shortest = recording("ping-pong", IN_TURN_ROUND_TRIPS)
    in_turn, _ = loads.lengthen(shortest, shortest.packets * IN_TURN // part, IN_TURN // part)
    others = [recording("broker", ROUND_TRIPS // part), recording("brokers", OVER_BROKERS // part), in_turn]
    growing = [recording("push", PUSHED // part * size) for size in GROWTH]
    return compared, others, growing, recording("round-trip", SMALL_ROUND_TRIPS)


def _compare(
    recording: traffic.Recording, commands: Sequence[tools.Tool], repeat: int, once_over: float
) -> list[report.Row]:
    """Run the commands in turn, so that a machine that is busy for a while is so for all of them."""
    rows = [report.Row(tool.name) for tool in commands]
    for tool, row in zip(commands, rows, strict=True):
        # The results are counted apart from the clock; this also leaves the file in the page cache.
        with _failure_told(row):
            row.result = tool.verify(recording)
    for _ in range(repeat):
        for tool, row in zip(commands, rows, strict=True):
            if row.failure or (row.runs and row.runs[-1].seconds > once_over):
                continue
            with _failure_told(row):
                stdin = recording.path if tool.capture_on_stdin else None
                row.runs.append(measure.run(tool.command(recording.path), stdin))
    return rows


def _start_up(zmtpsniff: Sequence[str], small: traffic.Recording) -> list[report.StartUp]:
    """Measure how long a user waits for the first sign."""
    read = [*zmtpsniff, "read", "-T", "json", str(small.path)]
    version = report.StartUp("`zmtpsniff --version`", 0.2)
    record = report.StartUp("first record of a small capture", 0.35)
    for _ in range(START_UPS):
        with _failure_told(version):
            run = measure.run([*zmtpsniff, "--version"])
            version.seconds.append(run.seconds)
            version.processor.append(run.processor)
        with _failure_told(record):
            record.seconds.append(measure.first_line(read))
    return [version, record]


@contextmanager
def _failure_told(figures: report.Row | report.StartUp) -> Iterator[None]:
    """Make a command's failure a result: one that cannot run does not keep the others from being measured."""
    try:
        yield
    except measure.CommandFailedError as reason:
        figures.failure = str(reason)


def _publish(measurements: report.Measurements, quick: bool) -> int:
    """Print the report, and write it where it is kept if its figures are worth keeping."""
    text = report.markdown(measurements)
    print(text)
    failures = measurements.failures()
    if quick:
        _say("a quick run: nothing written")
    else:
        RESULTS.write_text(f"# Benchmark results\n\nWritten by `benchmarks/run.py`.\n\n{text}")
        _say(f"written: {RESULTS.name}")
        if failures:
            _say("README.md left as it is, because not all could be run")
        elif report.put_between_markers(README, report.headline(measurements)):
            _say("written: README.md")
    for failure in failures:
        print(f"run.py: {failure}", file=sys.stderr)
    return 1 if failures else 0


def _say(what: str) -> None:
    print(what, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
