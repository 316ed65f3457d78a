"""The options ``-w`` and ``-b``, which save packets, and the Saver that they ask for."""

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import click

from zmtpsniff import __version__
from zmtpsniff.capture.source import CaptureError
from zmtpsniff.cli.help import PACKETS
from zmtpsniff.cli.output import tell
from zmtpsniff.cli.shared_options import FilePath, OptionGroup
from zmtpsniff.words.counts import were

if TYPE_CHECKING:
    from dissectors.zmtp.curve_keys import Key
    from zmtpsniff.capture.saver import Saver
    from zmtpsniff.capture.source import Source
    from zmtpsniff.engine.selector import PacketSelector
    from zmtpsniff.filters import Filter


class SaverSettings(NamedTuple):
    """Where packets are saved."""

    path: str | None = None  # "-" is standard output; None: nowhere
    ring: tuple[str, ...] = ()  # such as filesize:1000


saver_options = OptionGroup(
    "saver",
    SaverSettings,
    PACKETS.option(
        "-w", "path", type=FilePath(), metavar="FILE",
        help='Save the packets, too, as pcapng. "-" is standard output, if the records go to a file (-o).',
    ),
    PACKETS.rare(
        "-b", "ring", multiple=True, metavar="KIND:N",
        help="Save to a ring of files: filesize:1000, files:10. Go on with another after filesize:N kB, duration:N "
        "seconds or packets:N; files:N keeps only the newest N. They are FILE_00001_20261121173000 and so on. "
        "Repeatable.",
    ),
)  # fmt: skip


packets_only = PACKETS.rare(
    "--packets-only", is_flag=True,
    help="With -Y and -w: save only packets that completed a record that passes, not whole connections.",
)  # fmt: skip


def fail_if_nothing_to_select(settings: SaverSettings, passes: "Filter | None", packets_only: bool) -> None:
    """Raise click.UsageError for ``--packets-only`` without the options that it needs."""
    if packets_only and (settings.path is None or passes is None):
        raise click.UsageError("--packets-only: needs -w FILE, and -Y FILTER that says which")


def make_selector(
    saver: "Saver | None", source: "Source", passes: "Filter | None", packets_only: bool
) -> "PacketSelector | None":
    """The selector of the packets of what passes, if there are a saver and a filter.

    It says on standard error what ``-w`` saves beside ``-Y``, which is not all packets.
    """
    if saver is None or passes is None:
        return None
    from zmtpsniff.engine.selector import PacketSelector

    what = "the packets that completed" if packets_only else "the whole connections of"
    tell(f"-w: saves only {what} records that pass -Y")
    return PacketSelector(saver, source, packets_only=packets_only)


def tell_missing_packets(selector: "PacketSelector") -> None:
    """Report on standard error packets that could not be held back until their connection passed."""
    if selector.missing:
        from zmtpsniff.engine.selector import HELD_OCTETS

        tell(
            f"-w: {were(selector.missing, 'packet')} left out of the file: their connections passed the filter only "
            f"after {HELD_OCTETS >> 20} MiB of packets had been held back"
        )


def make_saver(
    settings: SaverSettings,
    *,
    records: str | None,
    count: int | None,
    inputs: Sequence[str] = (),
    comments: list[str] | None = None,
    interface: str = "",
    capture_filter: str = "",
    snaplen: int = 0,
    keys: "Sequence[Key]" = (),
    more_keys: bool = False,
) -> "Saver | None":
    """Open what ``-w`` names and return what writes to it, or None if it is not given.

    ``records`` is the file that the records go to, ``count`` how many packets are taken at most; ``inputs`` are files
    that are read and must stay; ``comments`` those on the capture, a list that may grow; ``interface`` is its name if
    there is exactly one; ``keys`` of CURVE are saved, too, and
    ``more_keys`` says that others will come. Raises click.UsageError if the options contradict each
    other, CaptureError if the file cannot be written.
    """
    path = settings.path
    if path is None and not settings.ring:
        return None
    from zmtpsniff.capture.pcapng_writer import Provenance
    from zmtpsniff.capture.ring import parse_ring
    from zmtpsniff.capture.saver import STANDARD_OUTPUT, Saver

    try:
        ring = parse_ring(settings.ring)
    except ValueError as error:
        raise click.UsageError(f"-b {error}") from None
    if path is None:
        raise click.UsageError("-b: needs -w FILE, the files that it is about")
    if path == STANDARD_OUTPUT:
        if records in (None, STANDARD_OUTPUT):
            raise click.UsageError("-w -: the records go to standard output, too; give them a file with -o")
    elif records is not None and os.path.realpath(path) == os.path.realpath(records):
        raise click.UsageError(f"-w {path}: the records go to this file (-o)")
    origin = Provenance(f"zmtpsniff {__version__}", interface, capture_filter, snaplen)
    key_lines = None
    if keys or more_keys:
        from dissectors.zmtp.curve_keys import format_key

        key_lines = list(map(format_key, keys))
    return Saver(path, origin, ring, inputs=inputs, comments=comments, count=count, key_lines=key_lines)


def fail_if_unsaved(saver: "Saver | None") -> None:
    """Raise CaptureError if saving ended early, once all else is done; a reader that has gone is no failure."""
    if saver is not None and saver.faults and not saver.is_standard_output:
        raise CaptureError(saver.faults[0].detail)
