"""The options for tshark, and what follows from them."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import click

from zmtpsniff.cli.help import PACKETS
from zmtpsniff.cli.shared_options import FilePath, OptionGroup

if TYPE_CHECKING:
    from zmtpsniff.capture.plaintexts import Plaintexts
    from zmtpsniff.capture.time_window import TimeWindow
    from zmtpsniff.dissection import ClosableSource
    from zmtpsniff.net.tls import Tls


class TsharkSettings(NamedTuple):
    """The options for tshark."""

    tls_keys: tuple[str, ...] = ()  # files
    preferences: tuple[str, ...] = ()


tshark_options = OptionGroup(
    "tshark",
    TsharkSettings,
    PACKETS.rare(
        "--tls-keys", multiple=True, type=FilePath(), metavar="FILE",
        help="Decrypt TLS, with --engine tshark: a key log (SSLKEYLOGFILE) or a private key of the server (PEM). "
        "Repeatable.",
    ),
    PACKETS.rare(
        "--tshark-option", "preferences", multiple=True, metavar="NAME:VALUE",
        help="A preference of tshark, or LAYER==SELECTOR,PROTOCOL to decode as: udp.port==14789,vxlan. Repeatable.",
    ),
)  # fmt: skip


class TsharkPlan(NamedTuple):
    """How tshark is run."""

    arguments: list[str]
    decrypted: "Plaintexts | None"  # where what it decrypts of TLS goes, None if it has no keys
    tls: "Tls | None"  # what takes it from there, None if this is not tshark


def plan_tshark(settings: TsharkSettings, engine: str, captures: Sequence[str] = ()) -> TsharkPlan:
    """The way to run tshark, if it is the engine; raises click.UsageError, CaptureError.

    It also looks for keys of TLS in ``captures``.
    """
    if engine != "tshark":
        for option, given in (("--tls-keys", settings.tls_keys), ("--tshark-option", settings.preferences)):
            if given:
                raise click.UsageError(f"{option}: only with --engine tshark")
        return TsharkPlan([], None, None)
    from zmtpsniff.capture.plaintexts import Plaintexts
    from zmtpsniff.capture.tls_keys import brings_secrets, gives_keys, key_arguments
    from zmtpsniff.capture.tshark_packets import parse_option
    from zmtpsniff.net.tls import Tls

    try:
        arguments = [argument for value in settings.preferences for argument in parse_option(value)]
    except ValueError as error:
        raise click.UsageError(f"--tshark-option {error}") from error
    try:
        arguments += key_arguments(settings.tls_keys)
    except ValueError as error:
        raise click.UsageError(f"--tls-keys {error}") from error
    has_keys = settings.tls_keys or any(map(gives_keys, settings.preferences))
    decrypted = Plaintexts() if has_keys or any(map(brings_secrets, captures)) else None
    return TsharkPlan(arguments, decrypted, Tls(decrypted))


def open_packets(captures: Sequence[str], plan: TsharkPlan, window: "TimeWindow | None" = None) -> "ClosableSource":
    """The packets of capture files inside a window, read by tshark if that is the plan.

    Raises CaptureError, and click.UsageError for a window of what tshark reads.
    """
    if plan.tls is not None:
        if window is not None:
            raise click.UsageError("--last, --from, --until: not with --engine tshark")
        from zmtpsniff.capture.tshark_packets import open_with_tshark

        return open_with_tshark(captures, plan.arguments, plan.decrypted)
    from zmtpsniff.capture.files import open_captures

    return open_captures(captures, window)
