"""Results of live measurements, as Markdown: the tables, and which targets were met."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from loads import Load
from observe import Observation, Observer
from observers import TCPDUMP, TCPDUMP_SAVING, engine_name
from report import Target, machine, median, table, targets_table

LATENCY_LIMIT_S = 0.1
WATCHING_COST = 0.1  # of a core, at 50,000 packets a second
LATEST_S = 1.0  # for the last record of a flood


@dataclass
class Row:
    """One command under one load."""

    observer: Observer
    runs: list[Observation] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)

    @property
    def failure(self) -> str:
        """Why there is no run at all."""
        return "" if self.runs or not self.failures else self.failures[-1]

    @property
    def best(self) -> Observation | None:
        """The run that missed least, and of those the one that cost least."""
        if not self.runs:
            return None
        return min(self.runs, key=lambda run: (self.missed(run) or 0, run.cpu_seconds))

    def missed(self, run: Observation) -> int | None:
        """Return how many results a run should have had and had not, None if that is not known."""
        expected = self.observer.expected(run.sent)
        return None if expected is None else expected - run.seen


@dataclass
class Comparison:
    """All the commands under one load; the ratios refer to the first one that worked."""

    load: Load
    rows: list[Row]

    @property
    def name(self) -> str:
        """The title of the load within a sentence."""
        return self.load.title[0].lower() + self.load.title[1:]

    def row(self, name: str) -> Row | None:
        """Return the row of a command, None if it was not among them."""
        return next((row for row in self.rows if row.observer.name == name), None)


@dataclass
class Measurements:
    """Everything that one run of the benchmark has found."""

    versions: dict[str, str]
    tshark_knows_zmtp: bool
    repeat: int
    seconds: float
    cost_seconds: float
    patience: float
    loads: list[Comparison]
    cost: list[Comparison]  # of one that is left running: zmtpsniff, tcpdump -w, tcpdump -l
    watched: Comparison  # the one of ``loads`` that says what watching costs
    fast: Comparison  # the one of ``loads`` in which no engine of ours may lose packets
    limits: list[Comparison]  # the fastest replay, the fastest flood: zmtpsniff, tcpdump -w
    pipe: Comparison
    terminal: Comparison
    engines: Sequence[str]
    when: datetime = field(default_factory=lambda: datetime.now(UTC))

    def failures(self) -> list[str]:
        """Return what could not be run, one line each."""
        failed = [
            f"{row.observer.name}: {row.failure}"
            for comparison in [*self.loads, *self.cost, *self.limits, self.pipe, self.terminal]
            for row in comparison.rows
            if row.failure
        ]
        return list(dict.fromkeys(failed))


def targets(measurements: Measurements) -> list[Target]:
    """Hold the figures against what the program is meant to reach."""
    found = [_cost(measurements.watched, "scapy", WATCHING_COST), _nothing_lost(measurements.fast, "dumpcap")]
    found += [*_at_the_limit(*measurements.limits)]
    for engine in measurements.engines:
        found += [
            _in_time(measurements.pipe, engine, "pipe"),
            _in_time(measurements.terminal, engine, "terminal"),
        ]
    return found


def _cost(comparison: Comparison, engine: str, most: float) -> Target:
    wanted = f"`--engine {engine}`, {comparison.name}: at most {most:.0%} of a core"
    row = comparison.row(engine_name(engine))
    run = row.best if row else None
    share = None if run is None else run.cpu_seconds / run.sent.seconds
    return Target(wanted, "failed" if share is None else f"{share:.1%}", None if share is None else share <= most)


def _at_the_limit(replay: Comparison, flood: Comparison) -> Iterator[Target]:
    """Of the fastest replay and the fastest flood: hold zmtpsniff against ``tcpdump -w``."""
    how = (
        f"99% of the records within {LATENCY_LIMIT_S * 1000:.0f} ms, on one core",
        f"the last record within {LATEST_S:g} s",
    )
    for comparison, how_late in zip((replay, flood), how, strict=True):
        wanted = f"{comparison.name}: drops nothing that `{TCPDUMP_SAVING}` keeps, {how_late}"
        ours, other = (row.best for row in comparison.rows)
        if ours is None or other is None:
            yield Target(wanted, "failed", None)
            continue
        late = ours.latency(0.99) if comparison is replay else ours.late_seconds
        share = ours.cpu_seconds / ours.sent.seconds
        dropped, others = ours.drops.kernel or 0, other.drops.kernel or 0
        measured = f"{dropped:,} dropped ({others:,} by tcpdump), {_milliseconds(late)}, {share:.0%} of a core"
        is_soon = late is not None and late <= (LATENCY_LIMIT_S if comparison is replay else LATEST_S)
        yield Target(wanted, measured, dropped <= others and is_soon and (comparison is flood or share <= 1))


def _nothing_lost(comparison: Comparison, engine: str) -> Target:
    wanted = f"`--engine {engine}`, {comparison.name}: no packet dropped"
    row = comparison.row(engine_name(engine))
    run = row.best if row else None
    if row is None or run is None:
        return Target(wanted, "failed", None)
    dropped = [run.drops.kernel, run.drops.own]
    measured = f"{_count(run.drops.kernel)} in the kernel, {_count(run.drops.own)} by us, {row.missed(run):,} missed"
    return Target(wanted, measured, dropped == [0, 0] and row.missed(run) == 0)


def _in_time(comparison: Comparison, engine: str, where: str) -> Target:
    wanted = f"`--engine {engine}`, {where}: every record at most {LATENCY_LIMIT_S * 1000:.0f} ms after its packet"
    row = comparison.row(engine_name(engine))
    latest = row.best.latency(1) if row and row.best else None
    return Target(wanted, _milliseconds(latest), None if latest is None else latest <= LATENCY_LIMIT_S)


def markdown(measurements: Measurements) -> str:
    """Return the whole report, without a heading, so that it fits into any document."""
    parts = [_preface(measurements), targets_table(targets(measurements))]
    parts += [
        f"**Left running**: processor time as a share of one core, {measurements.cost_seconds:g} s each, one after the "
        "other, each packet with a message of 32 octets. zmtpsniff chooses its engine, and writes `-T json` to a pipe.",
        _cost_table(measurements.cost),
    ]
    for comparison in (*measurements.loads, *measurements.limits):
        parts += [_caption(comparison), _load_table(comparison)]
    parts += [
        "**Latency of single messages**: one every 10 ms, from the kernel's time of its packet to the arrival of its "
        "line, through a pipe and on a terminal.",
        _latency_table(measurements.pipe, measurements.terminal),
    ]
    return "\n\n".join(parts) + "\n"


def _preface(measurements: Measurements) -> str:
    versions = ", ".join(f"{name} {number}" for name, number in measurements.versions.items())
    dissector = "with its own ZMTP dissector" if measurements.tshark_knows_zmtp else "which has no ZMTP dissector"
    times = "once" if measurements.repeat == 1 else f"{measurements.repeat} times, of which the best is shown,"
    return (
        f"Measured on {measurements.when:%Y-%m-%d} with {versions}; tshark is one {dissector}. {machine()}, on which "
        "the load is made, too.\n"
        f"Each command ran {times} for {measurements.seconds:g} s under each load, and had {measurements.patience:g} s "
        "more to catch up. Processor time is that of the command and all that it starts, in user mode and in the "
        "kernel, as a share of one core while the load lasted; latency goes from the kernel's time of the packet to "
        "the arrival of its line at a pipe."
    )


def _caption(comparison: Comparison) -> str:
    sent = next((row.best.sent for row in comparison.rows if row.best), None)
    if sent is None:
        return f"**{comparison.load.title}**"
    rates = [
        (row.best.sent.messages / row.best.sent.seconds, row.best.sent.packets / row.best.sent.seconds)
        for row in comparison.rows
        if row.best
    ]
    messages, packets = ([rate[column] for rate in rates] for column in (0, 1))
    return (
        f"**{comparison.load.title}**: in truth {_range(messages)} messages and {_range(packets)} packets a second, "
        f"{sent.connections:,} connection{'s' if sent.connections > 1 else ''}."
    )


def _range(values: Sequence[float]) -> str:
    low, high = f"{min(values):,.0f}", f"{max(values):,.0f}"
    return low if low == high else f"{low} to {high} (median {median(values):,.0f})"


def _load_table(comparison: Comparison) -> str:
    header = (
        "Command",
        "Seen",
        "Dropped in the kernel",
        "by itself",
        "Processor",
        "µs a packet",
        "Ratio",
        "Median latency",
        "99%",
        "Done after",
    )
    first = next((run for row in comparison.rows if (run := row.best)), None)
    return table(header, [_cells(row, first) for row in comparison.rows])


def _cells(row: Row, first: Observation | None) -> tuple[str, ...]:
    run = row.best
    if run is None or first is None:
        return (f"`{row.observer.name}`", f"failed: {row.failure}", *"--------")
    cost = run.cpu_seconds / run.sent.packets
    return (
        f"`{row.observer.name}`",
        _seen(row, run),
        _count(run.drops.kernel),
        _count(run.drops.own),
        f"{run.cpu_seconds / run.sent.seconds:.0%}",
        f"{cost * 1e6:.1f}",
        f"{cost / (first.cpu_seconds / first.sent.packets):.2f}" if first.cpu_seconds else "-",
        _milliseconds(run.latency(0.5)),
        _milliseconds(run.latency(0.99)),
        "not done" if run.late_seconds is None else f"{run.late_seconds:.1f} s",
    )


def _seen(row: Row, run: Observation) -> str:
    failed = f"; in another run: {row.failures[-1]}" if row.failures else ""
    return _share(row, run) + failed


def _share(row: Row, run: Observation) -> str:
    expected = row.observer.expected(run.sent)
    if not expected:
        return f"{run.seen:,} {row.observer.unit}" if run.seen else "-"
    if run.seen == expected:
        return f"all {expected:,} {row.observer.unit}"
    return f"{run.seen:,} of {expected:,} {row.observer.unit} ({run.seen / expected:.1%})"


def _latency_table(pipe: Comparison, terminal: Comparison) -> str:
    header = ("Command", "Seen", *(f"{where}: {what}" for where in ("pipe", "terminal") for what in _FIGURES))
    lines = []
    for piped, shown in zip(pipe.rows, terminal.rows, strict=True):
        if piped.best is None or shown.best is None:
            lines.append((f"`{piped.observer.name}`", f"failed: {piped.failure or shown.failure}", *"------"))
            continue
        cells = [f"`{piped.observer.name}`", _seen(piped, piped.best)]
        for run in (piped.best, shown.best):
            cells += [_milliseconds(run.latency(part)) for part in _FIGURES.values()]
        lines.append(tuple(cells))
    return table(header, lines)


def _cost_table(cost: Sequence[Comparison]) -> str:
    header = ("Load", *(f"`{name}`" for name in ("zmtpsniff live", TCPDUMP_SAVING, TCPDUMP)))
    times = [f"Times `{name}`" for name in (TCPDUMP_SAVING, TCPDUMP)]
    header = (*header, *times, "zmtpsniff saw", "Dropped by the kernel")
    return table(header, [_cost_cells(comparison) for comparison in cost])


def _cost_cells(comparison: Comparison) -> tuple[str, ...]:
    shares = [run.cpu_seconds / run.sent.seconds if (run := row.best) else None for row in comparison.rows]
    ours, own = comparison.rows[0], shares[0]
    cells = ["failed" if share is None else f"{share:.1%}" for share in shares]
    cells += [f"{own / other:.1f}" if own is not None and other else "-" for other in shares[1:]]
    run = ours.best
    if run is None:
        return (comparison.load.title, *cells, f"failed: {ours.failure}", "-")
    return (comparison.load.title, *cells, _share(ours, run), _count(run.drops.kernel))


_FIGURES = {"median": 0.5, "99%": 0.99, "longest": 1.0}


def _count(number: int | None) -> str:
    return "-" if number is None else f"{number:,}"


def _milliseconds(seconds: float | None) -> str:
    if seconds is None:
        return "-"
    return f"{seconds * 1000:.1f} ms" if seconds < 1 else f"{seconds:.1f} s"
