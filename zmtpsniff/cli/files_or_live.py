"""Commands that take capture files or, with --live, what passes: their options, and the dissection of either."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from zmtpsniff.capture.files import Captures
from zmtpsniff.cli.help import TASKS
from zmtpsniff.cli.live_capture import LiveSettings, capturing, live_options
from zmtpsniff.cli.live_host import started_host
from zmtpsniff.cli.one_clock import with_clocks_set
from zmtpsniff.cli.output import fail_if_overwritten
from zmtpsniff.cli.run import load_dissection
from zmtpsniff.cli.saver_options import SaverSettings, saver_options
from zmtpsniff.cli.shared_options import FilePath, OptionGroup, dissection_options_without_secrets
from zmtpsniff.cli.tshark_options import TsharkSettings, open_packets, plan_tshark, tshark_options
from zmtpsniff.cli.window_options import ANY_TIME, WindowSettings
from zmtpsniff.engine.settings import Settings

if TYPE_CHECKING:
    from zmtpsniff.dissection import ClosableSource, Dissection
    from zmtpsniff.host.local import LocalHost


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
        all_collaborators = Collaborators(tls=plan.tls, **collaborators)
        if with_one_clock and isinstance(packets, Captures):
            all_collaborators = with_clocks_set(packets, captures, dissection, all_collaborators)
        yield Dissection(packets, dissection, all_collaborators)
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
