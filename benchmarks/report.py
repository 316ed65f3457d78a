"""The results as Markdown: the tables, and which targets were met."""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from measure import Run
from tools import BEFORE, DIAGNOSE, EK, FIELDS, JSON, NO_PATTERNS, NO_PAYLOAD, PYTHON, STATS, SUMMARY, TRACE, TREE
from traffic import Recording

MEMORY_LIMIT_MIB = 100
PATTERNS_COST = 0.25  # of the time without them
PAYLOAD_COST = 0.15  # of the time without looking for it
PEOPLE_COST = 0.6  # of the time of version 0.9.0
PYTHON_COST = 1.5  # of the processor time of version 0.9.0's `read -T json`
BROKER_COST = 0.3  # the same
IN_TURN_COST = 1.0  # the same: what follows flows must not cost more where each has one packet in a block
WAYS_COST = 1.5  # of the processor time of `read -T json`, and of 0.9.0's `diagnose`
# Of the processor time of version 0.9.0, start excepted: pushed messages, round trips.
PROCESSOR_COST = {JSON: (0.27, 0.15), STATS: (0.23, 0.2), DIAGNOSE: (0.27, 0.21)}
LINEAR_TOLERANCE = 1.15  # of the time that a file twice, four times as large may take


@dataclass
class Row:
    """One command on one capture."""

    tool: str
    runs: list[Run] = field(default_factory=list)
    result: str = ""
    failure: str = ""

    @property
    def best(self) -> float | None:
        """The fastest run: what disturbs a measurement only ever makes it longer. None after a failure."""
        return min(run.seconds for run in self.runs) if self.runs and not self.failure else None

    @property
    def processor(self) -> float | None:
        """The least time of processors. None after a failure."""
        return min(run.processor for run in self.runs) if self.runs and not self.failure else None

    @property
    def peak(self) -> Run | None:
        """The run with the highest memory peak."""
        return max(self.runs, key=lambda run: run.peak_mib) if self.runs and not self.failure else None


@dataclass
class Comparison:
    """All the commands on one capture."""

    title: str
    recording: Recording
    rows: list[Row]

    @property
    def name(self) -> str:
        """The title within a sentence."""
        return self.title[0].lower() + self.title[1:]

    def row(self, tool: str) -> Row:
        """Return the row of a command."""
        return next(row for row in self.rows if row.tool == tool)

    def ratio(self, slower: str) -> float | None:
        """Return how many times as long as ``zmtpsniff -T json`` a command took."""
        time, reference = self.row(slower).best, self.row(JSON).best
        return time / reference if time is not None and reference is not None else None


@dataclass
class StartUp:
    """How long it takes until something is seen: seconds of each repetition, or why there are none."""

    what: str
    limit: float
    seconds: list[float] = field(default_factory=list)
    processor: list[float] = field(default_factory=list)
    failure: str = ""


@dataclass(frozen=True)
class Target:
    """The targets of the program, and whether it met them (None: unknown)."""

    wanted: str
    measured: str
    met: bool | None


@dataclass
class Measurements:
    """Everything that one run of the benchmark has found."""

    versions: dict[str, str]
    tshark_knows_zmtp: bool
    repeat: int
    once_over: float
    push: Comparison
    round_trip: Comparison
    large: Comparison
    connections: Comparison
    mixed: Comparison
    broker: Comparison
    in_turn: Comparison
    brokers: Comparison
    growth: list[Comparison]
    start_up: list[StartUp]
    when: datetime = field(default_factory=lambda: datetime.now(UTC))

    @property
    def comparisons(self) -> list[Comparison]:
        """The side-by-side tables in their order."""
        return [self.push, self.round_trip, self.large, self.connections, self.mixed]

    @property
    def own(self) -> list[Comparison]:
        """The tables without other programs in their order."""
        return [self.broker, self.in_turn, self.brokers]

    @property
    def start_processor(self) -> float:
        """The least time of processors that `zmtpsniff --version` takes."""
        return min(self.start_up[0].processor, default=0.0)

    def failures(self) -> list[str]:
        """Return what could not be run, one line each."""
        compared = [*self.comparisons, *self.own, *self.growth]
        rows = [(comparison, row) for comparison in compared for row in comparison.rows]
        failed = [
            f"{row.tool} on {comparison.recording.path.name}: {row.failure}" for comparison, row in rows if row.failure
        ]
        failed += [f"{start.what}: {start.failure}" for start in self.start_up if start.failure]
        return list(dict.fromkeys(failed))


def median(values: Sequence[float]) -> float:
    """Return the middle one (the module ``statistics`` would weigh on the floor of the memory figures)."""
    ordered = sorted(values)
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2


def targets(measurements: Measurements) -> list[Target]:
    """Hold the figures against what the program is meant to reach."""
    push, round_trip = measurements.push, measurements.round_trip
    comparable = measurements.tshark_knows_zmtp
    return [
        _rate(push, "pushed small messages: at least 500,000 messages a second", push.recording.messages, 500_000),
        *[_faster(one, "at least twice as fast as", FIELDS, 2, comparable) for one in measurements.comparisons],
        *[_faster(one, "at least 8 times as fast as", EK, 8, comparable) for one in (push, round_trip)],
        _rate(round_trip, "round trips: at least 150,000 packets a second", round_trip.recording.packets, 150_000),
        _cost(push, "patterns cost", NO_PATTERNS, PATTERNS_COST),
        _cost(round_trip, "patterns cost", NO_PATTERNS, PATTERNS_COST),
        _cost(push, "looking for payloads costs", NO_PAYLOAD, PAYLOAD_COST),
        _cost(round_trip, "looking for payloads costs", NO_PAYLOAD, PAYLOAD_COST),
        *_processor_targets(measurements),
        *[_for_people(comparison, tool) for comparison in (push, round_trip) for tool in (SUMMARY, TREE)],
        _memory(measurements),
        _linear(measurements.growth),
        *map(_start_up, measurements.start_up),
    ]


def _rate(comparison: Comparison, wanted: str, amount: int, least: int) -> Target:
    time = comparison.row(JSON).best
    if time is None:
        return Target(wanted, "failed", None)
    return Target(wanted, f"{amount / time:,.0f}", amount / time >= least)


def _faster(comparison: Comparison, what: str, tool: str, least: float, comparable: bool) -> Target:
    wanted = f"{comparison.name}: {what} `{tool}`"
    ratio = comparison.ratio(tool)
    if ratio is None:
        return Target(wanted, "failed", None)
    if not comparable:
        return Target(wanted, f"{ratio:.2f} times, but that tshark knows no ZMTP", None)
    return Target(wanted, f"{ratio:.2f} times", ratio >= least)


def _cost(comparison: Comparison, what: str, without: str, most: float) -> Target:
    wanted = f"{comparison.name}: {what} under {most:.0%}"
    ratio = comparison.ratio(without)
    if ratio is None:
        return Target(wanted, "failed", None)
    return Target(wanted, f"{1 / ratio - 1:.0%}", 1 / ratio - 1 < most)


def _for_people(comparison: Comparison, tool: str) -> Target:
    wanted = f"{comparison.name}: `{tool}` in at most {PEOPLE_COST} of the time of version 0.9.0"
    before = next((row for row in comparison.rows if row.tool == BEFORE.format(tool)), None)
    if before is None:
        return Target(wanted, "that version is not here", None)
    times = comparison.row(tool).best, before.best
    if times[0] is None or times[1] is None:
        return Target(wanted, "failed", None)
    return Target(wanted, f"{times[0] / times[1]:.2f}", times[0] / times[1] <= PEOPLE_COST)


def _processor_targets(measurements: Measurements) -> list[Target]:
    """Processor time beyond the start, as parts and multiples of that of other commands."""
    push, round_trip, brokers = measurements.push, measurements.round_trip, measurements.brokers
    start = measurements.start_processor
    found = []
    for tool, most in PROCESSOR_COST.items():
        pairs = zip((push, round_trip), most, strict=True)
        found += [_processor(comparison, tool, BEFORE.format(tool), part, start) for comparison, part in pairs]
    found += [_processor(one, PYTHON, BEFORE.format(JSON), PYTHON_COST, start) for one in (push, round_trip)]
    for comparison, part in ((measurements.broker, BROKER_COST), (measurements.in_turn, IN_TURN_COST)):
        found.append(_processor(comparison, JSON, BEFORE.format(JSON), part, start))
    found.append(_processor(brokers, TRACE, JSON, WAYS_COST, start))
    found.append(_processor(brokers, DIAGNOSE, BEFORE.format(DIAGNOSE), WAYS_COST, start))
    return found


def _processor(comparison: Comparison, tool: str, other: str, most: float, start: float) -> Target:
    wanted = f"{comparison.name}: `{tool}` in at most {most} of the processor time of `{other}`"
    rows = {row.tool: row for row in comparison.rows}
    if other not in rows:
        return Target(wanted, "that version is not here", None)
    times = rows[tool].processor, rows[other].processor
    if times[0] is None or times[1] is None:
        return Target(wanted, "failed", None)
    ratio = (times[0] - start) / (times[1] - start)
    return Target(wanted, f"{ratio:.2f} ({times[0] - start:.2f} s)", ratio <= most)


def _memory(measurements: Measurements) -> Target:
    wanted = f"peak memory under {MEMORY_LIMIT_MIB} MiB, whatever the file"
    comparisons = [*measurements.comparisons, *measurements.growth]
    peaks = [(comparison, comparison.row(tool).peak) for comparison in comparisons for tool in (JSON, SUMMARY, TREE)]
    known = [(peak.peak_mib, comparison) for comparison, peak in peaks if peak]
    if len(known) < len(peaks):
        return Target(wanted, "failed", None)
    highest, comparison = max(known, key=lambda found: found[0])
    measured = f"{highest:.0f} MiB at most ({comparison.name}, a file of {_size(comparison.recording)})"
    return Target(wanted, measured, highest < MEMORY_LIMIT_MIB)


def _linear(growth: Sequence[Comparison]) -> Target:
    wanted = f"time grows linearly with the file (within {LINEAR_TOLERANCE - 1:.0%})"
    times = [comparison.row(JSON).best for comparison in growth]
    first = times[0]
    if first is None or None in times:
        return Target(wanted, "failed", None)
    sizes = [comparison.recording.messages / growth[0].recording.messages for comparison in growth]
    ratios = [(size, time / first) for size, time in zip(sizes, times, strict=True) if time is not None]
    measured = ", ".join(f"{ratio:.2f} times the time for {size:g} times the file" for size, ratio in ratios[1:])
    return Target(wanted, measured, all(ratio <= size * LINEAR_TOLERANCE for size, ratio in ratios))


def _start_up(start: StartUp) -> Target:
    wanted = f"{start.what}: under {start.limit:g} s"
    if start.failure:
        return Target(wanted, "failed", None)
    return Target(wanted, f"{median(start.seconds):.3f} s", median(start.seconds) < start.limit)


def markdown(measurements: Measurements) -> str:
    """Return the whole report, without a heading, so that it fits into any document."""
    parts = [_preface(measurements), targets_table(targets(measurements))]
    for comparison in [*measurements.comparisons, *measurements.own]:
        parts += [_caption(comparison), _comparison_table(comparison)]
    parts += ["**Growing files**: pushed small messages, more and more of them.", _growth_table(measurements.growth)]
    parts += [
        "**Start-up**, until the command is done or its first record is out.",
        _start_up_table(measurements.start_up),
    ]
    return "\n\n".join(parts) + "\n"


def headline(measurements: Measurements) -> str:
    """Return the README's table: a row for each kind of traffic, with figures that the whole report has, too."""
    header = ("Traffic", "Messages/s", "Packets/s", f"Time of `{FIELDS}`", "Peak memory")
    lines = []
    for comparison in measurements.comparisons:
        row, recording, ratio = comparison.row(JSON), comparison.recording, comparison.ratio(FIELDS)
        if row.best is None or row.peak is None or ratio is None:
            lines.append((comparison.title, "-", "-", "-", "-"))
            continue
        messages, packets = recording.messages / row.best, recording.packets / row.best
        lines.append((comparison.title, f"{messages:,.0f}", f"{packets:,.0f}", f"{ratio:.2f} times", _peak(row.peak)))
    versions = ", ".join(f"{name} {number}" for name, number in measurements.versions.items() if name != "tcpdump")
    preface = (
        f"`zmtpsniff read -T json`, measured on {measurements.when:%Y-%m-%d} with {versions} on {os.cpu_count()} cores;"
        f" the fourth column says how many times as long `{FIELDS}` took."
    )
    return f"{preface}\n\n{table(header, lines)}\n"


def _preface(measurements: Measurements) -> str:
    versions = ", ".join(f"{name} {number}" for name, number in measurements.versions.items())
    dissector = "with its own ZMTP dissector" if measurements.tshark_knows_zmtp else "which has no ZMTP dissector"
    return (
        f"Measured on {measurements.when:%Y-%m-%d} with {versions}; tshark is one {dissector}. "
        f"{machine()}.\n"
        f"Each command ran {measurements.repeat} times, in turn with the others (once if it took more than "
        f"{measurements.once_over:g} s), its output thrown away. Rates and ratios are those of the best time; a ratio "
        f"of 3 means three times as long as `{JSON}`."
    )


def machine() -> str:
    """Say on what was measured."""
    return f"{platform.system()} {os.uname().release}, {platform.machine()}, {os.cpu_count()} cores"


def targets_table(found: Sequence[Target]) -> str:
    """Return the table of the targets and whether each was met."""
    verdicts = {True: "met", False: "**missed**", None: "not known"}
    return table(("Target", "Measured", ""), [(t.wanted, t.measured, verdicts[t.met]) for t in found], left=3)


def _caption(comparison: Comparison) -> str:
    recording = comparison.recording
    return (
        f"**{comparison.title}**: {recording.messages:,} messages in {recording.packets:,} packets, {_size(recording)}."
    )


def _size(recording: Recording) -> str:
    return f"{recording.octets / 2**20:,.1f} MiB"


def _comparison_table(comparison: Comparison) -> str:
    header = ("Command", "Best", "Median", "Messages/s", "Packets/s", "Ratio", "Peak memory", "Result")
    return table(header, [_cells(comparison, row) for row in comparison.rows])


def _cells(comparison: Comparison, row: Row) -> tuple[str, ...]:
    if row.best is None or row.peak is None:
        return (f"`{row.tool}`", "-", "-", "-", "-", "-", "-", f"failed: {row.failure}")
    recording, ratio = comparison.recording, comparison.ratio(row.tool)
    return (
        f"`{row.tool}`",
        f"{row.best:.2f} s",
        f"{median([run.seconds for run in row.runs]):.2f} s" if len(row.runs) > 1 else "once",
        f"{recording.messages / row.best:,.0f}",
        f"{recording.packets / row.best:,.0f}",
        f"{ratio:.2f}" if ratio is not None else "-",
        _peak(row.peak),
        row.result,
    )


def _peak(run: Run) -> str:
    return f"{'≤ ' if run.peak_is_limit else ''}{run.peak_mib:.0f} MiB"


def _growth_table(growth: Sequence[Comparison]) -> str:
    lines = []
    for comparison in growth:
        cells = [f"{comparison.recording.messages:,}", _size(comparison.recording)]
        for row in comparison.rows:
            cells += [f"{row.best:.2f} s", _peak(row.peak)] if row.best is not None and row.peak else ["failed", "-"]
        lines.append(tuple(cells))
    titles = [title for row in growth[0].rows for title in (f"`{row.tool.removeprefix('zmtpsniff ')}`", "Peak memory")]
    return table(("Messages", "File", *titles), lines, left=0)


def _start_up_table(start_up: Sequence[StartUp]) -> str:
    lines = []
    for start in start_up:
        if start.failure:
            lines.append((start.what, "-", f"failed: {start.failure}"))
        else:
            lines.append((start.what, f"{min(start.seconds):.3f} s", f"{median(start.seconds):.3f} s"))
    return table(("What", "Best", "Median"), lines)


def table(header: Sequence[str], lines: Sequence[Sequence[str]], left: int = 1) -> str:
    """Return a Markdown table: so many columns to the left, figures to the right, what is said about them last."""
    rule = [":--" if column < left or title == "Result" else "--:" for column, title in enumerate(header)]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in (header, rule, *lines))


def put_between_markers(document: Path, text: str, name: str = "benchmarks") -> bool:
    """Replace what is between the markers of that name in a document; tell whether it has them."""
    begin_marker, end_marker = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
    content = document.read_text() if document.exists() else ""
    before, begin, rest = content.partition(begin_marker)
    _, end, after = rest.partition(end_marker)
    if not begin or not end:
        return False
    document.write_text(f"{before}{begin}\n\n{text}\n{end}{after}")
    return True
