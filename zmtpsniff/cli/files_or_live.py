"""Commands that take capture files or, with --live, what passes: their options, and the dissection of either."""

import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from zmtpsniff.capture.files import Captures
from zmtpsniff.cli.help import TASKS
from zmtpsniff.cli.live_capture import LiveSettings, capturing, live_options
from zmtpsniff.cli.live_host import started_host
from zmtpsniff.cli.output import fail_if_overwritten, tell
from zmtpsniff.cli.run import load_dissection
from zmtpsniff.cli.saver_options import SaverSettings, saver_options
from zmtpsniff.cli.shared_options import FilePath, OptionGroup, dissection_options_without_secrets
from zmtpsniff.cli.tshark_options import TsharkSettings, open_packets, plan_tshark, tshark_options
from zmtpsniff.cli.window_options import ANY_TIME, WindowSettings
from zmtpsniff.engine.settings import Settings

if TYPE_CHECKING:
    from zmtpsniff.dissection import ClosableSource, Dissection
    from zmtpsniff.host.local import LocalHost
    from zmtpsniff.net.skew import FileComparison

_TOLD_NS = 1_000_000  # a clock that differs by less is put right without a word
_TOLD_DRIFT_NS = 10_000  # in a second


class CaptureSettings(NamedTuple):
    """The packets that a command looks at, and how it reads them."""

    captures: tuple[str, ...]
    is_live: bool
    live: LiveSettings
    tshark: TsharkSettings
    saver: SaverSettings
    dissection: Settings  # without secrets: what these commands write is passed on

    def fail_on_contradiction(self, file: str | None = None) -> None:
        """Raise click.UsageError unless there are either captures, or --live and options of a live capture.

        ``file`` is where the output goes, which may be no capture.
        """
        if self.is_live:
            if self.captures:
                raise click.UsageError("--live: takes no captures; interfaces are given with -i")
        elif self.live.interfaces or self.live.autostop or self.live.capture_filter or self.saver.path:
            raise click.UsageError("-i, -f, -a and -w: only with --live")
        elif not self.captures:
            raise click.UsageError("CAPTURE: missing; give capture files, or --live -i INTERFACE")
        fail_if_overwritten(self.captures, file)


def capture_options(verb: str, captures: str = "CAPTURE...") -> OptionGroup:
    """The options of a command that does with traffic what ``verb`` says; its usage names ``captures``."""
    return OptionGroup(
        "capture",
        CaptureSettings,
        click.argument("captures", nargs=-1, type=FilePath(), metavar=captures),
        TASKS.option(
            "--live", "is_live", is_flag=True,
            help=f"{verb} traffic while it passes. From -i, until -a, -c or Ctrl-C.",
        ),
        live_options,
        tshark_options,
        saver_options,
        dissection_options_without_secrets,
    )  # fmt: skip


@contextmanager
def dissecting(
    settings: CaptureSettings,
    *,
    records: str | None,
    window: WindowSettings = ANY_TIME,
    verbosity: int = 0,
    batches: bool = False,
    load: Callable[[], None] = lambda: None,
    source: "ClosableSource | None" = None,
    with_one_clock: bool = False,
    meet: "Callable[[LocalHost], None] | None" = None,
    **collaborators: Any,
) -> "Iterator[Dissection]":
    """Dissect captures, or what passes. Raises click.UsageError, CaptureError; the latter also in the end.

    ``records`` is the file that the output goes to, ``window`` has the times of the packets of captures. ``batches``
    says whether messages may come in columns. ``load`` imports what is needed once privileges are given up.
    ``source`` has the packets of the captures, if they are not to be merged as usual. ``with_one_clock`` says that the
    times of captures of several hosts are to be put right. ``meet`` is called with the machine of a live capture, which
    knows its processes.
    ``collaborators`` are those of the Dissection.
    """
    from zmtpsniff.dissection import Dissection
    from zmtpsniff.engine.sniffer import Collaborators

    dissection = settings.dissection._replace(batches=batches)
    if not settings.is_live:
        plan = plan_tshark(settings.tshark, settings.live.engine, settings.captures)
        captures, dissection = window.select(settings.captures, dissection)
        packets = open_packets(captures, plan, dissection.window) if source is None else source
        if with_one_clock and isinstance(packets, Captures):
            comparison = _set_clocks(packets, captures)
            if comparison is not None and dissection.window is None:
                collaborators["translations"] = comparison.translations
        yield Dissection(packets, dissection, Collaborators(tls=plan.tls, **collaborators))
        return
    window.fail_if_live()
    dissectors = load_dissection(dissection)
    import zmtpsniff.cli.progress_line  # noqa: F401  # for pump()

    load()
    with (
        started_host(with_processes=meet is not None and sys.platform == "linux", with_keys=False) as host,
        capturing(
            settings.live, settings.tshark, settings.saver, dissection, records=records, verbosity=verbosity
        ) as running,
    ):
        if host is not None and meet is not None:
            meet(host)
        yield Dissection(
            running.source,
            dissection,
            Collaborators(
                clock=time.time_ns,
                monotonic=time.monotonic_ns,
                tls=running.tls,
                host=host,
                dissectors=dissectors,
                **collaborators,
            ),
        )


def _set_clocks(source: Captures, names: Sequence[str]) -> "FileComparison | None":
    """Give the files of several hosts one clock, and say which differ. Returns how they compare, if there are some."""
    if len(names) == 1 or not all(map(os.path.isfile, names)):
        return None
    from zmtpsniff.capture.files import open_captures
    from zmtpsniff.net.skew import compare
    from zmtpsniff.words.durations import brief

    files = [open_captures([name]) for name in names]
    try:
        comparison = compare([file.batches() for file in files])
    finally:
        for file in files:
            file.close()
    differences = comparison.clocks
    for name, one in zip(names, differences, strict=True):
        drift_ns = round(one.drift * 1e9)  # in a second
        if abs(one.ahead_ns) >= _TOLD_NS or abs(drift_ns) >= _TOLD_DRIFT_NS:
            words = (
                f"{brief(abs(one.ahead_ns))} {'behind' if one.ahead_ns < 0 else 'ahead of'} that of {names[one.other]}"
            )
            if abs(drift_ns) >= _TOLD_DRIFT_NS:
                words += f" and {'gains' if drift_ns > 0 else 'loses'} {brief(abs(drift_ns))} a second"
            tell(f"{name}: its clock is {words}; its times are put right")
    source.set_clocks([one.right if one.ahead_ns or one.drift else None for one in differences])
    return comparison
