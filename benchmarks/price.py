"""Measure what zmtpsniff costs that is left on, ``live --metrics`` and ``live -w``; write a part of LIVE.md.

    sudo python benchmarks/price.py [--seconds 60]

benchmarks/README.md says what is measured and needed. docs/howto/monitoring.md gets the same table.
"""

from __future__ import annotations

import argparse
import datetime
import functools
import json
import os
import platform
import shlex
import subprocess
import sys
import tempfile
import threading
import urllib.request
from pathlib import Path

import keys
import loads
import network
import report
import traffic

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "LIVE.md"
PAGE = HERE.parent / "docs" / "howto" / "monitoring.md"
WORK = HERE / "work"
BEGIN, END = "<!-- price benchmarks: begin -->", "<!-- price benchmarks: end -->"
MESSAGES = (2_000, 20_000)  # a second
PACKETS = 50_000
GOALS = ("0.5%", "1.0%", "3.0%", "10.0%", "-")  # of a core
MEMORY_GOAL_MIB = 150
SETTLED_S = 10.0
PORT = 9464
SCRAPE_S = 15.0  # as Prometheus does by default
ROUND_TRIPS = (5_000, 500)  # of the connection that is replayed many times


def commands(zmtpsniff: list[str], folder: Path) -> dict[str, list[str]]:
    """The commands as the pages show them, but for the interface, by their titles."""
    ring = ["-w", str(folder / "price.pcapng"), "-b", "filesize:100000", "-b", "files:2"]
    return {
        "live --metrics": [
            *zmtpsniff,
            "live",
            "--metrics",
            f"127.0.0.1:{PORT}",
            "-T",
            "json",
            "-Y",
            'severity=="error"',
        ],
        "live -w": [*zmtpsniff, "live", *ring, "-T", "json"],
    }


def price(command: list[str], load: loads.Load, settled: float, said: Path) -> tuple[float, float, int]:
    """The share of a core that a command takes under a load, its memory in MiB, and the packets that it lost."""
    with subprocess.Popen(["tail", "-n", "1"], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as last:
        assert last.stdin
        assert last.stdout
        with keys.Watched([*command, "-i", load.interface], said, settled, last.stdin) as watched:
            last.stdin.close()
            ended = threading.Event()
            if "--metrics" in command:
                threading.Thread(target=_scrape, args=[ended], daemon=True).start()
            try:
                share, _ = watched.cost(load.send)
                memory = watched.memory_mib()
            finally:
                ended.set()
        totals = json.loads(last.stdout.read())
    return share, memory, totals.get("dropped", 0)


def _scrape(ended: threading.Event) -> None:
    while not ended.wait(SCRAPE_S):
        with urllib.request.urlopen(f"http://127.0.0.1:{PORT}/metrics", timeout=10) as answer:
            answer.read()


def measure(zmtpsniff: list[str], seconds: float) -> str:
    """Measure all, and say it in a table."""
    busy = os.getloadavg()[0]
    packets = round(PACKETS * seconds)
    replay = functools.partial(loads.replay, rate=PACKETS)
    replayed = [loads.lengthen(traffic.ensure("ping-pong", count, WORK), packets) for count in ROUND_TRIPS]
    all_loads = [
        ("nothing", loads.idle(seconds)),
        *((f"{rate:,} messages a second", loads.flood(rate, seconds)) for rate in MESSAGES),
        *(
            (f"{PACKETS:,} packets a second, {round(begun / seconds)} new connections a second", replay(longer, begun))
            for longer, begun in replayed
        ),
    ]
    with tempfile.TemporaryDirectory(dir=WORK) as name:
        titles = commands(zmtpsniff, Path(name))
        lines = []
        for (what, load), goal in zip(all_loads, GOALS, strict=True):
            cells = [what, goal]
            for title, command in titles.items():
                share, memory, lost = price(command, load, min(SETTLED_S, seconds), Path(name) / "said")
                cells.append(f"{share:.2%}, {memory:.0f} MiB{f', {lost:,} packets lost' if lost else ''}")
                print(what, title, cells[-1], file=sys.stderr, flush=True)
            lines.append(cells)
    for longer, _ in replayed:
        longer.path.unlink()
    table = report.table(("Traffic", "Goal", *(f"`{title}`" for title in titles)), lines)
    return (
        f"Measured on {datetime.date.today()}, Python {platform.python_version()}, {report.machine()} with a load of "
        f"{busy:.1f} before, {seconds:g} s each: the share of a core that all processes of the command take, and their "
        f"memory, of which 64 MiB are the kernel's ring (`-B`). The goal for memory is {MEMORY_GOAL_MIB} MiB.\n\n"
        f"{table}"
    )


def part(page: str) -> str:
    """The table in LIVE.md, with its markers."""
    return page[page.index(BEGIN) : page.index(END) + len(END)] + "\n\n" if BEGIN in page else ""


def write(text: str) -> None:
    """Put the table into LIVE.md, in front of the part on keys, and into the page for those who leave it on."""
    page = RESULTS.read_text()
    after = keys.part(page)
    before = page.removesuffix(after).replace(part(page), "").rstrip()
    said = f"**Price of what is left on**, written by `benchmarks/price.py`. {text}"
    RESULTS.write_text(f"{before}\n\n{BEGIN}\n\n{said}\n\n{END}\n\n{after}")
    report.put_between_markers(PAGE, f"{text}\n")


def main() -> int:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    beside = shlex.quote(str(Path(sys.executable).with_name("zmtpsniff")))
    parser.add_argument("--zmtpsniff", default=beside, metavar="COMMAND", help="default: the one of this Python")
    parser.add_argument("--seconds", type=float, default=60.0, metavar="N", help="of each measurement (default: 60)")
    parser.add_argument("--quick", action="store_true", help="5 seconds each; nothing is written")
    options = parser.parse_args()
    try:
        network.enter()
        text = measure(shlex.split(options.zmtpsniff), 5.0 if options.quick else options.seconds)
    except (network.NoNetworkError, traffic.CannotRecordError, loads.LoadFailedError) as reason:
        print(f"price.py: {reason}", file=sys.stderr)
        return 1
    print(text)
    if not options.quick:
        write(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
