"""``zmtpsniff extcap``."""

import time
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from dissectors.zmtp.limits import Limits
from zmtpsniff import __version__
from zmtpsniff.cli.help import ASKED, DECODING, DIALOG, SETUP, CommandWithHelp
from zmtpsniff.cli.live_capture import LiveSettings, capturing
from zmtpsniff.cli.live_host import pass_keys, started_host
from zmtpsniff.cli.output import must_be_read, open_output, tell
from zmtpsniff.cli.run import load_dissection
from zmtpsniff.cli.saver_options import SaverSettings
from zmtpsniff.cli.shared_options import AUTO_KEYS, DisplayFilter, FilePath, decode_as_rule, key_files, read_curve_keys
from zmtpsniff.cli.tshark_options import TsharkSettings
from zmtpsniff.engine.settings import Settings
from zmtpsniff.errors import Error

if TYPE_CHECKING:
    from typing import IO

    from zmtpsniff.decode_as import DecodeAs
    from zmtpsniff.dissection import Dissection
    from zmtpsniff.filters import Filter


class ExtcapSettings(NamedTuple):
    """The options of extcap, given by Wireshark or by the user who links zmtpsniff."""

    link: bool
    folder: str | None
    interfaces: bool
    link_types: bool
    config: bool
    capture: bool
    interface: str | None  # one of those that we offer
    version: str | None  # of Wireshark
    capture_filter: str
    fifo: str | None
    network_interface: str | None
    file: str | None
    curve_keys: tuple[str, ...]
    auto_keys: bool
    passes: "Filter | None"
    rules: "tuple[DecodeAs, ...]"
    dissector: str
    show_secrets: bool


@click.command(cls=CommandWithHelp, short_help="Give Wireshark decoded messages.")
@SETUP.option("--link", is_flag=True, help="Put zmtpsniff into Wireshark's folder for such programs, and say where.")
@SETUP.option("--folder", type=FilePath(), metavar="DIR", help="Another folder for --link.")
@DIALOG.option("--interface", "network_interface", metavar="NAME", help="Live: the network interface to capture on.")
@DIALOG.option("--file", type=FilePath(), metavar="FILE", help="The capture file to take messages from.")
@DECODING.rare(
    "--curve-keys", type=FilePath(), multiple=True, metavar="FILE",
    help="Decrypt CURVE with the keys in FILE. Live, auto takes the keys of this machine's programs.",
)  # fmt: skip
@DIALOG.rare(
    "--auto-keys", is_flag=True, help="As --curve-keys auto: Wireshark's dialog takes nothing but files there."
)
@DIALOG.option("--filter", "passes", type=DisplayFilter(), metavar="FILTER", help="Give only records that pass.")
@DIALOG.option(
    "--decode-as", "rules", type=decode_as_rule, multiple=True, metavar="RULE",
    help="Take a port for ZMTP: tcp.port==5555,zmtp.",
)  # fmt: skip
@DIALOG.option(
    "--dissector", default="zmtp", show_default=True, metavar="NAME",
    help="Wireshark's dissector. zmtp gets whole records, and is in Wireshark 4.2 and later; any other, such as json, "
    "gets the body of each frame.",
)  # fmt: skip
@DECODING.option("--show-secrets", is_flag=True, help="Give passwords, too.")
@ASKED.option("--extcap-interfaces", "interfaces", is_flag=True, help="Wireshark asks: which interfaces are there?")
@ASKED.option("--extcap-dlts", "link_types", is_flag=True, help="Wireshark asks: which link types?")
@ASKED.option("--extcap-config", "config", is_flag=True, help="Wireshark asks: which options?")
@ASKED.option("--extcap-interface", "interface", metavar="NAME", help="The interface that Wireshark speaks of.")
@ASKED.option("--extcap-version", "version", metavar="VERSION", help="The version of Wireshark.")
@DIALOG.option(
    "--extcap-capture-filter", "capture_filter", default="", metavar="FILTER", help="Live: in libpcap's language."
)
@ASKED.option("--capture", is_flag=True, help="Wireshark says: capture.")
@ASKED.option("--fifo", type=FilePath(), metavar="FILE", help="Where the packets go.")
def extcap(**options: Any) -> None:
    """Be a capture interface of Wireshark, which calls this. It gets messages, not packets.

    \b
    zmtpsniff extcap --link
    zmtpsniff extcap --capture --file capture.pcap --fifo messages.pcapng
    """
    settings = ExtcapSettings(**options)
    if settings.link:
        _link(settings.folder)
    elif settings.interfaces:
        _interfaces()
    elif settings.link_types or settings.config:
        _answer(settings)
    elif settings.capture:
        _capture(settings)
    elif not settings.capture_filter:  # which alone is a question whether it is one: an empty answer says yes
        raise click.UsageError("give --link; all else is for Wireshark to ask")


def _link(folder: str | None) -> None:
    from pathlib import Path

    from zmtpsniff.extcap.link import link, personal_folder

    click.echo(link(Path(folder) if folder else personal_folder()))


def _interfaces() -> None:
    from zmtpsniff.extcap.dialog import interface_lines

    for line in interface_lines(__version__):
        click.echo(line)


def _answer(settings: ExtcapSettings) -> None:
    from zmtpsniff.capture.interfaces import interface_names
    from zmtpsniff.extcap.dialog import INTERFACES, link_type_lines, option_lines

    if settings.interface not in INTERFACES:
        raise click.UsageError(f"--extcap-interface: must be one of {', '.join(INTERFACES)}")
    names = interface_names()
    for line in option_lines(settings.interface, names) if settings.config else link_type_lines():
        click.echo(line)


def _capture(settings: ExtcapSettings) -> None:
    if settings.fifo is None:
        raise click.UsageError("--fifo: missing; it says where the packets go")
    # Whatever is wrong, Wireshark waits until somebody opens this; and a user without root's rights may not.
    with open_output(settings.fifo, binary=True) as fifo:
        try:
            _give(settings, fifo)
        except (click.ClickException, Error) as error:
            # Wireshark no longer looks for what is said once this is closed.
            tell(str(error))
            raise click.exceptions.Exit(2) from None


def _give(settings: ExtcapSettings, fifo: "IO[bytes]") -> None:
    """Write the messages of what is asked for; raises click.UsageError, Error."""
    if bool(settings.file) == bool(settings.network_interface):
        raise click.UsageError("either --file or --interface: what to take messages from")
    with_host_keys = settings.auto_keys or AUTO_KEYS in settings.curve_keys
    if settings.file and with_host_keys:
        raise click.UsageError("--curve-keys auto: only with --interface; a file of this name is ./auto")
    dissection = Settings(
        decode_as=settings.rules,
        limits=Limits(body_octets=0, show_secrets=settings.show_secrets),
        curve_keys=read_curve_keys(key_files(settings.curve_keys)),
        host_keys=with_host_keys,
    )
    if settings.network_interface:
        _capture_live(settings.network_interface, settings, dissection, fifo)
    elif settings.file:
        from zmtpsniff.dissection import open_files

        _write(open_files([settings.file], dissection, where=settings.passes), settings, fifo, is_live=False)


def _capture_live(interface: str, settings: ExtcapSettings, dissection: Settings, fifo: "IO[bytes]") -> None:
    from zmtpsniff.dissection import Dissection
    from zmtpsniff.engine.sniffer import Collaborators

    dissectors = load_dissection(dissection)
    import zmtpsniff.extcap.pdus  # noqa: F401  # as long as it can be read

    live = LiveSettings((interface,), settings.capture_filter)
    with (
        started_host(with_processes=False, with_keys=dissection.host_keys) as host,
        capturing(live, TsharkSettings(), SaverSettings(), dissection) as started,
    ):
        through = pass_keys(host, started.source)
        collaborators = Collaborators(clock=time.time_ns, host=host, dissectors=dissectors)
        capture = Dissection(started.source, dissection, collaborators, through=through, where=settings.passes)
        _write(capture, settings, fifo, is_live=True)


def _write(capture: "Dissection", settings: ExtcapSettings, stream: "IO[bytes]", *, is_live: bool) -> None:
    """Write what passes as pcapng, until the capture is over or nobody reads any more (BrokenPipeError)."""
    from zmtpsniff.capture.block import Block
    from zmtpsniff.capture.pcapng_writer import PcapngSection, Provenance
    from zmtpsniff.extcap.pdus import PduEncoder

    section = PcapngSection(Provenance(f"zmtpsniff {__version__}"))
    encoder = PduEncoder(settings.dissector, settings.show_secrets)
    stream.write(section.header([]))
    stream.flush()  # Wireshark waits for it
    for events in capture.batches():
        if is_live:
            must_be_read(stream)
        if packets := list(encoder.packets(events)):
            stream.write(section.packets(Block.of(packets)))
            stream.flush()
