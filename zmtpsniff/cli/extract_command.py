"""``zmtpsniff extract``."""

from typing import TYPE_CHECKING

import click

from zmtpsniff.cli.help import FILES, TARGET, CommandWithHelp
from zmtpsniff.cli.run import pump
from zmtpsniff.cli.shared_options import FilePath, display_filter, dissection_options
from zmtpsniff.engine.settings import Settings
from zmtpsniff.words.counts import plural

if TYPE_CHECKING:
    from zmtpsniff.filters import Filter


@click.command(cls=CommandWithHelp, short_help="Extract message bodies to files.")
@click.argument("captures", nargs=-1, required=True, type=FilePath(), metavar="CAPTURE...")
@TARGET.option("--to", "folder", required=True, type=FilePath(), metavar="DIR", help="A new or empty folder.")
@FILES.option(
    "--messages", "whole", is_flag=True, help="Write a file for each message, its frames joined, not for each frame."
)
@FILES.option("--decompress", is_flag=True, help="Undo gzip, zlib and zstd, up to 64 MiB a file.")
@dissection_options
@display_filter
def extract(
    captures: tuple[str, ...],
    folder: str,
    whole: bool,
    decompress: bool,
    dissection: Settings,
    passes: "Filter | None",
) -> None:
    """Extract message bodies to files, with an index of where each comes from (DIR/index.jsonl).

    \b
    zmtpsniff extract capture.pcap --to bodies
    zmtpsniff extract shop.pcap --to replies --messages -Y 'socket_type == "REP"'
    zmtpsniff extract feed.pcapng --to files --decompress -Y 'frames[0] == "cam1"'
    """
    from zmtpsniff.dissection import open_files
    from zmtpsniff.export.extraction import INDEX, Extractor

    whole_bodies = dissection._replace(limits=dissection.limits._replace(body_octets=0))
    capture = open_files(captures, whole_bodies, where=passes)
    extractor = Extractor(folder, whole=whole, unpacks=decompress, show_secrets=dissection.limits.show_secrets)
    try:
        pump(capture, dissection, extractor.take)
    finally:
        extractor.close()
    click.echo(f"{plural(extractor.messages, 'message')}, {plural(extractor.files, 'file')}, {folder}/{INDEX}")
