"""``zmtpsniff live``."""

import signal
from typing import Any

import click

from zmtpsniff.capture.engines import ENGINES
from zmtpsniff.cli.options import decoding, output
from zmtpsniff.cli.run import make_sniffer, run


@click.command(short_help="Dissect live traffic.")
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
@decoding
@output
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
        run(make_sniffer(source, options), options)
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
