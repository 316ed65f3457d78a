"""``zmtpsniff live``."""

import sys
import time

import click

from zmtpsniff.cli.help import PACKETS, CommandWithHelp
from zmtpsniff.cli.live_capture import LiveSettings, capturing, live_options
from zmtpsniff.cli.live_host import pass_keys, started_host
from zmtpsniff.cli.observers import ObserverSettings, load_observers, make_diagnosis, observer_options, start_observers
from zmtpsniff.cli.output import tell
from zmtpsniff.cli.run import keeping, load_dissection, load_renderer, reads_columns, run
from zmtpsniff.cli.saver_options import (
    SaverSettings,
    fail_if_nothing_to_select,
    make_selector,
    packets_only,
    saver_options,
)
from zmtpsniff.cli.shared_options import IntRange, Output, capture_record, live_dissection_options, output_options
from zmtpsniff.cli.tshark_options import TsharkSettings, tshark_options
from zmtpsniff.engine.settings import Settings


@click.command(cls=CommandWithHelp, short_help="Dissect live traffic.")
@click.argument("command", nargs=-1, metavar="[-- COMMAND [ARG]...]")
@live_options
@PACKETS.option(
    "--pid",
    "pids",
    type=IntRange(1),
    multiple=True,
    metavar="PID",
    help="Instead of an interface trace this process, by strace: tcp:// and ipc://. Repeatable.",
)
@PACKETS.rare("--status/--no-status", default=None, help="A line with counts; by default on a terminal.")
@PACKETS.rare(
    "--processes/--no-processes", default=sys.platform == "linux",
    help="Say which processes of this machine have the connections (Linux).",
)  # fmt: skip
@PACKETS.rare(
    "--sample", type=IntRange(1), default=1, metavar="N",
    help="Look at one of N connections, each whole, and the same on every host. Nothing is said then of messages that "
    "cross several connections. -w without -Y saves all packets.",
)  # fmt: skip
@observer_options
@tshark_options
@saver_options
@packets_only
@live_dissection_options
@output_options
@capture_record
def live(
    command: tuple[str, ...],
    pids: tuple[int, ...],
    live: LiveSettings,
    status: bool | None,
    processes: bool,
    sample: int,
    observer: ObserverSettings,
    tshark: TsharkSettings,
    saver: SaverSettings,
    packets_only: bool,
    dissection: Settings,
    capture_record: bool,
    output: Output,
) -> None:
    """Dissect traffic while it passes.

    \b
    zmtpsniff live -i lo
    zmtpsniff live -i any -f 'tcp port 5555' -T json | jq -c .frames
    zmtpsniff live -i eth0 -w day.pcapng -b filesize:100000 -b files:10
    sudo zmtpsniff live -i any --curve-keys auto
    zmtpsniff live -- python worker.py
    """
    from zmtpsniff.cli.status_line import make_status_line
    from zmtpsniff.dissection import Dissection
    from zmtpsniff.engine.sniffer import Collaborators

    fail_if_nothing_to_select(saver, output.passes, packets_only)
    live = live._replace(pids=pids, command=command)
    if sample > 1:
        if observer.otlp is not None:
            raise click.UsageError("--otlp: not with --sample, since spans follow messages over connections")
        dissection = dissection._replace(sample=sample)
        tell(f"one of {sample:,} connections is looked at; findings that compare connections are left out")
    dissectors = load_dissection(dissection)
    load_renderer(output)
    load_observers(observer)
    diagnosis = make_diagnosis(observer, dissection)
    with (
        started_host(with_processes=processes, with_keys=dissection.host_keys) as host,
        capturing(
            live,
            tshark,
            saver,
            dissection,
            records=output.file,
            verbosity=output.verbosity,
            saves_all=output.passes is None,
        ) as started,
    ):
        source = started.source
        if host is not None and diagnosis is not None:
            diagnosis.know_processes(host.owners.process)
            diagnosis.know_queues(host.queues.of)
        through = pass_keys(host, source, started.saver)
        selector = make_selector(started.saver, source, output.passes, packets_only)
        # It runs plug-ins, so without the privileges of capturing.
        collaborators = Collaborators(
            clock=time.time_ns,
            monotonic=time.monotonic_ns,
            tls=started.tls,
            host=host,
            dissectors=dissectors,
            witness=diagnosis,
            selector=selector,
        )
        batches = reads_columns(output) and selector is None and observer.otlp is None
        settings = keeping(dissection, output)._replace(batches=batches)
        capture = Dissection(source, settings, collaborators, through=through)
        run(
            capture,
            dissection,
            output,
            make_status_line(capture, output.file, status),
            is_live=True,
            observers=start_observers(observer, capture, diagnosis),
            selector=selector,
            capture_record=capture_record,
        )
