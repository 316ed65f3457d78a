"""What a live capture learns from the machine that it runs on: started before privileges are given up."""

from typing import TYPE_CHECKING

import click

from zmtpsniff.capture.source import CaptureError

if TYPE_CHECKING:
    from zmtpsniff.host.local import LocalHost


def start_host(*, with_processes: bool, with_keys: bool) -> "LocalHost | None":
    """Start the helper that keeps the privileges of now; None if nothing is asked of it.

    The caller closes what is returned. With keys every library in use that makes some is followed once this returns; if
    that is not possible one line says why, and keys are looked for in memory alone. Raises CaptureError.
    """
    if not with_processes and not with_keys:
        return None
    if with_keys:
        need_sodium()
    from zmtpsniff.host.client import HelperClient
    from zmtpsniff.host.local import LocalHost
    from zmtpsniff.host.uprobes import NoUprobesError

    try:
        helper = HelperClient()
    except OSError as error:
        raise CaptureError(f"the helper for processes and keys does not start ({error.strerror or error})") from error
    watches = with_keys
    if with_keys:
        try:
            helper.watch(for_live=True)
        except NoUprobesError as error:
            watches = False
            _tell(f"zmtpsniff looks for keys in memory only: {error}")
    host = LocalHost(helper, _tell, with_processes=with_processes, with_keys=with_keys)
    host.watches = watches
    host.start()
    return host


def need_sodium() -> None:
    """See that what opens boxes is installed; raises CaptureError, which says what to install."""
    from dissectors.zmtp.curve_keys import NoSodiumError, sodium

    try:
        sodium()
    except NoSodiumError as error:
        raise CaptureError(str(error)) from None


def _tell(text: str) -> None:
    from zmtpsniff.render.text import escape

    click.echo(f"zmtpsniff: {escape(text)}", err=True)
