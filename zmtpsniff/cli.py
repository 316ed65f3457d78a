"""The command line: reads options, builds the objects, and is the only place that ends the program."""

import sys

import click

from zmtpsniff import __version__


@click.group()
@click.version_option(__version__)
def main() -> None:
    """See what ZeroMQ programs say to each other."""


@main.command()
@click.argument("captures", nargs=-1, required=True)
@click.option("-T", "fmt", default="tree")
@click.option("--max-bytes", type=int, default=None)
def read(captures, fmt, max_bytes) -> None:
    from dissectors.zmtp.framing import Limits
    from zmtpsniff.capture.files import open_captures
    from zmtpsniff.render.jsonl import JsonlRenderer
    from zmtpsniff.sniffer import Sniffer

    source = open_captures(captures)
    sniffer = Sniffer(source, Limits(body_octets=65536 if max_bytes is None else max_bytes))
    renderer = JsonlRenderer(sys.stdout.buffer, 65536 if max_bytes is None else max_bytes)
    for events in sniffer.events():
        renderer.write(events)
    renderer.close()
