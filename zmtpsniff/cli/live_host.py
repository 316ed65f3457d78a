"""The help that a live capture gets from its machine. It starts before privileges are given up."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

from zmtpsniff.capture.source import CaptureError
from zmtpsniff.cli.output import tell

if TYPE_CHECKING:
    from zmtpsniff.capture.live import LiveSource
    from zmtpsniff.capture.saver import Saver
    from zmtpsniff.capture.source import Source
    from zmtpsniff.host.local import LocalHost


@contextmanager
def started_host(
    *, with_processes: bool, with_keys: bool, say: Callable[[str], None] = tell
) -> "Iterator[LocalHost | None]":
    """The helper that keeps the privileges of now, closed in the end; None if no option needs a helper.

    With keys, the helper follows every library in use that makes keys once it is there. If that is not possible, one
    line says why, and the helper looks for keys only in memory. Raises CaptureError. ``say`` is called with lines for
    people, then and later, in any thread.
    """
    if not with_processes and not with_keys:
        yield None
        return
    if with_keys:
        need_sodium()
        import zmtpsniff.capture.keyed_source  # noqa: F401  # for pass_keys(): once privileges are given up it may be out of reach
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
            helper.watch(long_term=True)
        except NoUprobesError as error:
            watches = False
            say(f"zmtpsniff looks for keys in memory only: {error}")
    host = LocalHost(helper, say, with_processes=with_processes, with_keys=with_keys)
    host.watches = watches
    host.start()
    try:
        yield host
    finally:
        host.close()


def pass_keys(
    host: "LocalHost | None", source: "LiveSource", saver: "Saver | None" = None
) -> Callable[["Source"], "Source"] | None:
    """Give a live capture the keys that its machine's programs make, if ``host`` has them, and ``saver`` those to save.

    Returns a function that makes the packets wait for these keys, None if they need not.
    """
    if host is None or host.keys is None:
        return None
    from zmtpsniff.capture.keyed_source import KeyedSource

    source.key_lines = host.keys.lines
    if saver is not None:
        host.keys.save = saver.add_keys
    return partial(KeyedSource, keys=host) if host.watches else None


def need_sodium() -> None:
    """Check that PyNaCl, which opens boxes, is installed. Raises CaptureError, which says what to install."""
    from dissectors.zmtp.curve_keys import NoSodiumError, sodium

    try:
        sodium()
    except NoSodiumError as error:
        raise CaptureError(str(error)) from None
