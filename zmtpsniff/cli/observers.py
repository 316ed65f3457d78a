"""Options of commands that give other programs what passes: ``--metrics``, ``--otlp``, ``--on-finding``."""

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import click

from zmtpsniff.cli.help import MONITORS
from zmtpsniff.cli.output import tell
from zmtpsniff.cli.shared_options import OptionGroup
from zmtpsniff.errors import Error
from zmtpsniff.words.counts import were

if TYPE_CHECKING:
    from collections.abc import Callable

    from dissectors.events import AnyEvent
    from zmtpsniff.analysis.findings import Diagnosis
    from zmtpsniff.analysis.findings.finding import Finding
    from zmtpsniff.analysis.findings.finding_watch import FindingWatch
    from zmtpsniff.dissection import Dissection
    from zmtpsniff.engine.settings import Settings
    from zmtpsniff.export import Observer
    from zmtpsniff.export.finding_calls import FindingCalls


class ObserverSettings(NamedTuple):
    """Where metrics, spans and findings go."""

    metrics: str | None  # ADDR:PORT
    otlp: str | None  # a URL
    on_finding: str | None = None  # a program with arguments


otlp_option = MONITORS.rare(
    "--otlp", metavar="URL", help="Send spans of requests to an OTLP collector: http://127.0.0.1:4318."
)
on_finding_option = MONITORS.rare(
    "--on-finding",
    metavar="PROGRAM",
    help="Run PROGRAM when a finding comes or worsens, and when it has not happened for a minute. It gets the finding "
    "as JSON on standard input, and 10 seconds.",
)
observer_options = OptionGroup(
    "observer",
    ObserverSettings,
    MONITORS.rare("--metrics", metavar="ADDR:PORT", help="Serve metrics for Prometheus there: 127.0.0.1:9464."),
    otlp_option,
    on_finding_option,
)


def load_observers(settings: ObserverSettings) -> None:
    """Import the modules of the observers while they can be read. Raises Error for an extra that is not installed."""
    for wanted, module, package, extra in (
        (settings.metrics, "metrics", "prometheus_client", "metrics"),
        (settings.otlp, "spans", "opentelemetry", "otlp"),
    ):
        if wanted is not None:
            try:
                __import__(f"zmtpsniff.export.{module}")
            except ImportError:
                message = f"--{extra} needs {package}, which is not installed: pip install 'zmtpsniff[{extra}]'"
                raise Error(message) from None
    if settings.metrics is not None:
        parse_address(settings.metrics)
    load_calls(settings.on_finding)


def load_calls(command: str | None) -> None:
    """Import the modules of ``--on-finding``."""
    if command is not None:
        import zmtpsniff.export.finding_calls  # noqa: F401


def make_diagnosis(settings: ObserverSettings, dissection: "Settings") -> "Diagnosis | None":
    """The witness that a dissection needs for the observers, None if they need none."""
    if settings.metrics is None and settings.on_finding is None:
        return None
    from zmtpsniff.analysis.findings import Diagnosis

    return Diagnosis(dissection.decode_as, dissection.reply_seconds, sampled=dissection.sample > 1)


def start_observers(
    settings: ObserverSettings, capture: "Dissection", diagnosis: "Diagnosis | None"
) -> "list[Observer]":
    """Begin to serve and to send; raises Error. It needs no privilege of capturing.

    ``diagnosis`` comes from make_diagnosis() and is the witness of ``capture``.
    """
    observers = start_spans(settings.otlp, waits=False)
    if diagnosis is None:
        return observers
    from zmtpsniff.analysis.findings.finding_watch import FindingWatch

    watch = FindingWatch(diagnosis.findings)
    if settings.metrics is not None:
        from zmtpsniff.export.metrics import Metrics

        address, port = parse_address(settings.metrics)
        metrics = Metrics(capture, diagnosis, watch)
        served = metrics.serve(address, port)
        observers.append(metrics)
        if served != port:
            shown = f"[{address}]" if ":" in address else address
            tell(f"metrics at http://{shown}:{served}/metrics")
    take = diagnosis.take if settings.metrics is None else None
    observers.append(FindingTeller(take, watch, start_calls(settings.on_finding)))
    return observers


def start_calls(command: str | None) -> "FindingCalls | None":
    """The calls of the program of ``--on-finding``, if there is one; raises Error."""
    if command is None:
        return None
    from zmtpsniff.export.finding_calls import FindingCalls

    return FindingCalls(command)


def end_calls(calls: "FindingCalls | None") -> None:
    """Make the calls that wait, and say which were not made."""
    if calls is None:
        return
    calls.close()
    for reason in calls.failures:
        tell(f"--on-finding: {reason}")
    if calls.missed:
        tell(f"--on-finding: {were(calls.missed, 'finding')} not passed on, since the program took too long")


class FindingTeller(NamedTuple):
    """Asks for findings while events pass, and passes those on that come and go."""

    first: "Callable[[Sequence[AnyEvent]], object] | None"  # gets the events first; None: somebody else takes them
    watch: "FindingWatch"
    calls: "FindingCalls | None"  # gets the findings
    write: "Callable[[Sequence[Finding]], None] | None" = None  # likewise

    def take(self, events: "Sequence[AnyEvent]") -> None:
        """Look at events, and tell if it is time."""
        if self.first is not None:
            self.first(events)
        self._pass_on(self.watch.look(time.monotonic_ns()))  # the other clock may be set

    def finish(self, tells: bool = True) -> None:
        """Pass on the findings that the end shows; to the calls only unless it ``tells``."""
        self._pass_on(self.watch.finish(), tells)

    def close(self) -> None:
        """Pass on the findings that the end shows, and wait for the calls."""
        self.finish()
        end_calls(self.calls)

    def _pass_on(self, findings: "Sequence[Finding]", tells: bool = True) -> None:
        if findings and tells and self.write is not None:
            self.write(findings)
        if self.calls is not None:
            self.calls.call(findings)


def start_spans(url: str | None, *, waits: bool) -> "list[Observer]":
    """An observer that sends spans to the collector at a URL, if there is one; ``waits`` as in make_spans()."""
    if url is None:
        return []
    from zmtpsniff.export.spans import make_spans

    return [make_spans(url, waits=waits)]


def parse_address(text: str) -> tuple[str, int]:
    """The host and the port of ADDR:PORT; raises click.UsageError."""
    address, _, port = text.rpartition(":")
    if not address or not port.isdecimal() or int(port) > 65535:
        raise click.UsageError(f"--metrics {text}: must be ADDR:PORT, such as 127.0.0.1:9464")
    return address.strip("[]"), int(port)
