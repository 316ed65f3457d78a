"""The command line: reads options, builds the objects, and is the only place that ends the program."""

import gc
import os
import signal
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from zmtpsniff import __version__, decode_as
from zmtpsniff.capture.engines import ENGINES
from zmtpsniff.capture.source import CaptureError
from zmtpsniff.output import OutputError, discard_standard_output, open_output, undisturbed
from zmtpsniff.render import FORMATS, make_renderer

if TYPE_CHECKING:
    from dissectors.events import AnyEvent
    from zmtpsniff.capture.source import Source
    from zmtpsniff.sniffer import Sniffer

_Command = TypeVar("_Command", bound=Callable[..., Any])
_INTERRUPTED = 130  # 128 + SIGINT, what shells expect


class _DecodeAs(click.ParamType):  # type: ignore[type-arg]  # generic from click 8.4 on only
    name = "rule"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> decode_as.DecodeAs:
        try:
            return decode_as.parse(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


def _options(*options: Callable[[_Command], _Command]) -> Callable[[_Command], _Command]:
    def add(command: _Command) -> _Command:
        for option in reversed(options):
            command = option(command)
        return command

    return add


_decoding = _options(
    click.option("-c", "count", type=click.IntRange(1), metavar="N", help="Stop after N packets."),
    click.option(
        "-d", "rules", type=_DecodeAs(), multiple=True, metavar="RULE",
        help="Take a port for ZMTP whatever its octets say: tcp.port==5555,zmtp (zmtp1, zmtp2, zmtp3 for a version, "
        "5555-5560 for several ports). Repeatable.",
    ),
    click.option("--show-secrets", is_flag=True, help="Show passwords; else only their length."),
    click.option(
        "--max-flows", type=click.IntRange(1), default=50_000, show_default=True, metavar="N",
        help="Connections to follow at once; the one idle for longest gives way.",
    ),
    click.option(
        "--max-waiting", type=click.IntRange(1), default=64, show_default=True, metavar="MIB",
        help="Memory for segments that wait for a missing one, of all connections; one may use a sixteenth.",
    ),
    click.option(
        "--idle-timeout", type=click.FloatRange(1), default=86_400, show_default=True, metavar="SECONDS",
        help="End a connection after so long without a packet.",
    ),
)  # fmt: skip

_output = _options(
    click.option(
        "-T", "format", type=click.Choice(FORMATS), default="tree", show_default=True,
        help="tree: for people; json: JSON Lines; summary: a line each; dump: as zhelpers' s_dump.",
    ),
    click.option(
        "--max-bytes", type=click.IntRange(0), metavar="N",
        help="Octets to show of each body, 0 for all. By default a few dozen, with -vv 4,096, in JSON 65,536, in "
        "dump all.",
    ),
    click.option("-o", "output", metavar="FILE", help="Write to FILE; until complete it is FILE.partial."),
    click.option(
        "-v", "verbosity", count=True,
        help="Show every field, frame and topic, and nanoseconds (tree, summary); -vv: also up to 4,096 octets of "
        "each body.",
    ),
    click.option("--utc", is_flag=True, help="Show times in UTC, not in local time."),
    click.option(
        "--color", type=click.Choice(["auto", "always", "never"]), default="auto", show_default=True,
        help="auto: on a terminal, unless NO_COLOR is set.",
    ),
)  # fmt: skip


@click.group(no_args_is_help=False, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, "-V", "--version", message="%(prog)s %(version)s")
def cli() -> None:
    """See what ZeroMQ programs say to each other.

    \b
    zmtpsniff read capture.pcap                  a tree of everything that was said
    zmtpsniff read -T json capture.pcap | jq .   JSON Lines for programs
    tcpdump -i any -U -w - | zmtpsniff read -    as it happens
    """


@cli.command(short_help="Dissect capture files.")
@click.argument("captures", nargs=-1, required=True, metavar="CAPTURE...")
@_decoding
@_output
def read(captures: tuple[str, ...], **options: Any) -> None:
    """Dissect capture files: pcap or pcapng, plain or compressed; "-" is standard input.

    Several files are read as one capture, merged by time. No port has to be given: a connection is ZMTP if its
    octets say so.

    \b
    zmtpsniff read capture.pcapng.gz
    zmtpsniff read -T summary monday.pcap tuesday.pcap
    zmtpsniff read -d tcp.port==5555,zmtp started-too-late.pcap
    """
    from zmtpsniff.capture.files import open_captures

    target = options["output"]
    if target is not None and any(os.path.exists(name) and _is_same(name, target) for name in captures):
        raise click.UsageError(f"-o {target}: this is one of the captures to read")
    _run(_sniffer(open_captures(captures), options), options)


@cli.command(short_help="Dissect live traffic.")
@click.option("-i", "interfaces", multiple=True, required=True, metavar="INTERFACE", help='Repeatable; "any" for all.')
@click.option("-f", "capture_filter", default="", metavar="FILTER", help='In libpcap\'s language: "tcp port 5555".')
@click.option("-a", "autostop", metavar="duration:N", help="Stop after N seconds.")
@click.option(
    "-s", "snaplen", type=click.IntRange(64, 262_144), default=262_144, metavar="N", help="Octets of each packet."
)
@click.option(
    "-B", "buffer_mib", type=click.IntRange(1), default=16, show_default=True, metavar="MIB", help="Kernel buffer."
)
@click.option("-p", "not_promiscuous", is_flag=True, help="Do not put the interface into promiscuous mode.")
@click.option(
    "--engine",
    type=click.Choice(ENGINES),
    default="auto",
    show_default=True,
    help="What captures: auto takes the first that works here and says so with -v.",
)
@_decoding
@_output
def live(interfaces: tuple[str, ...], **options: Any) -> None:  # fmt: skip
    """Dissect traffic while it passes.

    \b
    zmtpsniff live -i lo
    zmtpsniff live -i any -f 'tcp port 5555' -T json | jq -c .frames
    zmtpsniff live -i eth0 -a duration:60 -T summary
    """
    from zmtpsniff.capture.engines import LiveOptions, make_engine
    from zmtpsniff.capture.live import LiveSource

    seconds = _duration(options["autostop"])
    captured = LiveOptions(
        interfaces,
        options["capture_filter"],
        options["snaplen"],
        options["buffer_mib"],
        not options["not_promiscuous"],
    )
    engine = make_engine(options["engine"], captured)
    if options["verbosity"]:
        click.echo(f"zmtpsniff: capturing on {', '.join(interfaces)} with {engine.name}", err=True)
    source = LiveSource(engine, seconds=seconds)
    # A signal ends the capture, not the program: what has come is given out, and the totals.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: source.stop())
    try:
        _run(_sniffer(source, options), options)
    finally:
        source.stop()


def _duration(autostop: str | None) -> float | None:
    """The seconds of ``duration:N``."""
    if autostop is None:
        return None
    kind, _, number = autostop.partition(":")
    if kind != "duration" or not number.replace(".", "", 1).isdigit():
        raise click.UsageError(f"-a {autostop}: must be duration:N, with N in seconds")
    return float(number)


@cli.command(short_help="Print the JSON Schema of the records.")
def schema() -> None:
    """Print the JSON Schema (2020-12) of the records that -T json writes."""
    import json

    from zmtpsniff.render.schema import json_schema

    click.echo(json.dumps(json_schema(), indent=2))


def _is_same(name: str, other: str) -> bool:
    return os.path.exists(other) and os.path.samefile(name, other)


def _sniffer(source: "Source", options: dict[str, Any]) -> "Sniffer":
    from dissectors.zmtp.stream import Limits as DissectorLimits
    from zmtpsniff.flows import Limits as FlowLimits
    from zmtpsniff.sniffer import Sniffer

    body_octets = options["max_bytes"]
    if body_octets is None:  # s_dump prints all
        body_octets = 0 if options["format"] == "dump" else DissectorLimits().body_octets
    waiting = options["max_waiting"] << 20
    return Sniffer(
        source,
        DissectorLimits(body_octets, options["show_secrets"]),
        FlowLimits(
            waiting_octets_per_direction=waiting // 16,
            waiting_octets=waiting,
            flows=options["max_flows"],
            idle_seconds=options["idle_timeout"],
        ),
        options["rules"],
        options["count"],
    )


def _run(sniffer: "Sniffer", options: dict[str, Any]) -> None:
    """Write all events; an interrupt ends that with the totals, too."""
    # Events and packets are many, short-lived and in no cycles, so looking for cycles among them is wasted time.
    gc.set_threshold(100_000, 20, 100)
    with open_output(options["output"], binary=options["format"] == "json") as stream:
        renderer = make_renderer(
            options["format"],
            stream,
            max_bytes=options["max_bytes"],
            verbosity=options["verbosity"],
            utc=options["utc"],
            color=options["color"],
        )
        try:
            for events in sniffer.events():
                with undisturbed():
                    renderer.write(events)
                if options["format"] == "dump":
                    _tell_capture_problems(events)
        except KeyboardInterrupt:
            renderer.write(sniffer.finish())
            renderer.close()
            raise
        renderer.close()


def _tell_capture_problems(events: "list[AnyEvent]") -> None:
    """Tell what is wrong with the capture itself where the format has no place for it."""
    from dissectors.events import Problem

    for event in events:
        if isinstance(event, Problem) and event.flow is None and event.severity != "note":
            click.echo(f"zmtpsniff: {event.detail}", err=True)


def main() -> None:
    """Run the program: 0 done, 2 wrong usage or unreadable input with one line that says why."""
    try:
        # Not cli.main(): click has its own mind about closed pipes and interrupts.
        with cli.make_context("zmtpsniff", sys.argv[1:]) as context:
            cli.invoke(context)
        status = 0
    except click.exceptions.Exit as done:
        status = done.exit_code
    except click.UsageError as error:
        command = error.ctx.command_path if error.ctx else "zmtpsniff"
        status = _fail(f"{error.format_message().rstrip('.')} (see {command} --help)")
    except (click.ClickException, CaptureError, OutputError) as error:
        status = _fail(error.format_message() if isinstance(error, click.ClickException) else str(error))
    except BrokenPipeError:
        discard_standard_output()
        status = 0
    except KeyboardInterrupt:
        status = _INTERRUPTED
    sys.exit(status)


def _fail(reason: str) -> int:
    click.echo(f"zmtpsniff: {' '.join(reason.split())}", err=True)
    return 2


if __name__ == "__main__":
    main()
