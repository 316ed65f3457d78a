"""Options of commands that give other programs what passes: ``--metrics``, ``--otlp``."""

from typing import TYPE_CHECKING, NamedTuple

import click

from zmtpsniff.cli.help import MONITORS
from zmtpsniff.cli.output import tell
from zmtpsniff.cli.shared_options import OptionGroup
from zmtpsniff.errors import Error

if TYPE_CHECKING:
    from zmtpsniff.analysis.findings import Diagnosis
    from zmtpsniff.dissection import Dissection
    from zmtpsniff.engine.settings import Settings
    from zmtpsniff.export import Observer


class ObserverSettings(NamedTuple):
    """Where metrics and spans go."""

    metrics: str | None  # ADDR:PORT
    otlp: str | None  # a URL


otlp_option = MONITORS.rare(
    "--otlp", metavar="URL", help="Send spans of requests to an OTLP collector: http://127.0.0.1:4318."
)
observer_options = OptionGroup(
    "observer",
    ObserverSettings,
    MONITORS.rare("--metrics", metavar="ADDR:PORT", help="Serve metrics for Prometheus there: 127.0.0.1:9464."),
    otlp_option,
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


def make_diagnosis(settings: ObserverSettings, dissection: "Settings") -> "Diagnosis | None":
    """The witness that a dissection needs for the observers, None if they need none."""
    if settings.metrics is None:
        return None
    from zmtpsniff.analysis.findings import Diagnosis

    return Diagnosis(dissection.decode_as, dissection.reply_seconds)


def start_observers(
    settings: ObserverSettings, capture: "Dissection", diagnosis: "Diagnosis | None"
) -> "list[Observer]":
    """Begin to serve and to send; raises Error. It needs no privilege of capturing.

    ``diagnosis`` comes from make_diagnosis() and is the witness of ``capture``.
    """
    observers = start_spans(settings.otlp, waits=False)
    if settings.metrics is not None and diagnosis is not None:
        from zmtpsniff.export.metrics import Metrics

        address, port = parse_address(settings.metrics)
        metrics = Metrics(capture, diagnosis)
        served = metrics.serve(address, port)
        observers.append(metrics)
        if served != port:
            shown = f"[{address}]" if ":" in address else address
            tell(f"metrics at http://{shown}:{served}/metrics")
    return observers


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
