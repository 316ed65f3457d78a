"""The options for tshark, and what follows from them."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from zmtpsniff.cli.options import File, options

if TYPE_CHECKING:
    from zmtpsniff.capture.plaintexts import Plaintexts
    from zmtpsniff.net.tls import Tls

tshark_options = options(
    click.option(
        "--tls-keys", multiple=True, type=File(), metavar="FILE",
        help="Decrypt TLS, with --engine tshark: a key log (SSLKEYLOGFILE) or a private key of the server (PEM). "
        "Repeatable.",
    ),
    click.option(
        "--tshark-option", "tshark_options", multiple=True, metavar="NAME:VALUE",
        help="A preference of tshark, or LAYER==SELECTOR,PROTOCOL to decode as: udp.port==8472,vxlan. Repeatable.",
    ),
)  # fmt: skip


class Tshark(NamedTuple):
    """How tshark is run."""

    arguments: list[str]
    decrypted: "Plaintexts | None"  # where what it decrypts of TLS goes, None if it has no keys
    tls: "Tls | None"  # what takes it from there, None if this is not tshark


def plan_tshark(options: dict[str, Any], captures: Sequence[str] = ()) -> Tshark:
    """How to run tshark as the options say; raises click.UsageError, CaptureError.

    Keys of TLS are looked for in ``captures``, too.
    """
    if options["engine"] != "tshark":
        for option, name in (("--tls-keys", "tls_keys"), ("--tshark-option", "tshark_options")):
            if options[name]:
                raise click.UsageError(f"{option}: only with --engine tshark")
        return Tshark([], None, None)
    from zmtpsniff.capture.plaintexts import Plaintexts
    from zmtpsniff.capture.tls_keys import brings_secrets, gives_keys, key_arguments
    from zmtpsniff.capture.tshark import parse_option
    from zmtpsniff.net.tls import Tls

    try:
        arguments = [argument for value in options["tshark_options"] for argument in parse_option(value)]
    except ValueError as error:
        raise click.UsageError(f"--tshark-option {error}") from error
    try:
        arguments += key_arguments(options["tls_keys"])
    except ValueError as error:
        raise click.UsageError(f"--tls-keys {error}") from error
    has_keys = options["tls_keys"] or any(map(gives_keys, options["tshark_options"]))
    decrypted = Plaintexts() if has_keys or any(map(brings_secrets, captures)) else None
    return Tshark(arguments, decrypted, Tls(decrypted))
