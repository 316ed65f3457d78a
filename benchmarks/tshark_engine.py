"""The costs of ``read --engine tshark``, beside our own reader and pyshark's packets, on the same capture.

    python benchmarks/tshark_engine.py [--renew] [--quick]

Records the captures if they are not there (root is needed for that). The tables go between the markers of
``docs/tshark.md``, unless ``--quick`` is given.
"""

from __future__ import annotations

import argparse
import datetime
import hashlib
import subprocess
import sys
from pathlib import Path

import measure
import report
import tools
import traffic

WORK = Path(__file__).parent / "work"
PAGE = Path(__file__).parent.parent / "docs" / "tshark.md"
READ = [sys.executable, "-m", "zmtpsniff", "read", "-T", "json"]
REPEAT = 3
# All that the engine takes from a packet, taken from pyshark's; what the engine puts aside in tshark is put aside, too.
PYSHARK = """
import sys, pyshark
preferences = ["tcp.desegment_tcp_streams", "tcp.analyze_sequence_numbers", "tcp.calculate_timestamps"]
options = {"use_ek": True, "keep_packets": False, "override_prefs": dict.fromkeys(preferences, "FALSE")}
with pyshark.FileCapture(sys.argv[1], **options) as capture:
    for packet in capture:
        tcp = packet.tcp
        fields = tcp.srcport, tcp.dstport, tcp.seq_raw, tcp.ack_raw, tcp.flags.value, tcp.get("payload")
"""
COMMANDS = {
    "zmtpsniff read": READ,
    "zmtpsniff read --engine tshark": [*READ, "--engine", "tshark"],
    "a loop over pyshark's packets": [sys.executable, "-c", PYSHARK],
}
READERS = tuple(COMMANDS)[:2]
SCENARIOS = {"round-trip": 25_000, "push": 200_000}


def main() -> int:
    """Measure, print, publish; 1 if a command fails or the two readers differ."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--renew", action="store_true", help="record the captures again")
    parser.add_argument("--quick", action="store_true", help="a twentieth of the traffic; prints, but writes nothing")
    options = parser.parse_args()
    part = 20 if options.quick else 1
    text = (
        f"Measured on {datetime.date.today()} with Python {sys.version.split()[0]}, tshark "
        f"{tools.version(['tshark'])}. {report.machine()}. Best of {REPEAT} runs, in turn (pyshark's loop: one); "
        "output thrown away.\n"
    )
    try:
        for scenario, count in SCENARIOS.items():
            recording = traffic.ensure(scenario, count // part, WORK, renew=options.renew)
            text += "\n" + _compare(recording)
    except (measure.CommandFailedError, traffic.CannotRecordError, DifferentError) as error:
        print(f"tshark_engine.py: {error}", file=sys.stderr)
        return 1
    print(text)
    if not options.quick:
        report.put_between_markers(PAGE, text)
    return 0


class DifferentError(Exception):
    """The engines do not give the same records."""


def _compare(recording: traffic.Recording) -> str:
    capture = str(recording.path)
    digests = {_digest([*COMMANDS[name], capture]) for name in READERS}
    if len(digests) != 1:
        raise DifferentError(f"{capture}: the records of the two engines differ")
    best: dict[str, measure.Run] = {}
    for turn in range(REPEAT):
        for name, command in COMMANDS.items():
            if turn and name not in READERS:  # it takes too long
                continue
            run = measure.run([*command, capture])
            best[name] = min(run, best.get(name, run), key=lambda run: run.seconds)
    lines = [
        (
            f"`{name}`" if name in READERS else name,
            f"{run.seconds:.2f} s",
            f"{recording.packets / run.seconds:,.0f}",
            f"{recording.messages / run.seconds:,.0f}",
            f"{run.seconds / best['zmtpsniff read'].seconds:.1f}",
        )
        for name, run in best.items()
    ]
    table = report.table(("What", "Best", "Packets/s", "Messages/s", "Ratio"), lines)
    return f"{recording.messages:,} messages in {recording.packets:,} packets:\n\n{table}\n"


def _digest(command: list[str]) -> str:
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True)
    return hashlib.sha256(done.stdout).hexdigest()


if __name__ == "__main__":
    sys.exit(main())
