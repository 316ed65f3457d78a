"""A Sniffer made as settings ask: what stands between a capture and its events."""

from collections.abc import Callable, Sequence
from importlib.metadata import EntryPoint

from dissectors.zmtp.curve import Curve
from dissectors.zmtp.curve_keys import KeyRing
from zmtpsniff.analysis.patterns import Patterns
from zmtpsniff.analysis.payloads import Payloads
from zmtpsniff.analysis.plugins import load_dissectors
from zmtpsniff.capture.source import Source
from zmtpsniff.host.local import LocalHost
from zmtpsniff.net.tls import Tls
from zmtpsniff.net.witness import Witness
from zmtpsniff.selector import PacketSelector
from zmtpsniff.settings import Settings
from zmtpsniff.sniffer import Sniffer


def make_sniffer(
    source: Source,
    settings: Settings,
    *,
    clock: Callable[[], int] | None = None,
    tls: Tls | None = None,
    entries: Sequence[EntryPoint] | None = None,
    witness: Witness | None = None,
    host: LocalHost | None = None,
    selector: PacketSelector | None = None,
) -> Sniffer:
    """A Sniffer over the source. Plug-ins are run here.

    ``clock`` tells the time where packets come as they pass (see Sniffer), ``tls`` takes out of TLS what has been
    decrypted, ``entries`` are plug-ins of installed packages if these have been looked up already, ``witness`` is told
    what connections show below their octets, ``host`` says which processes have them, ``selector`` saves some of the
    packets. Raises PluginError, NoSodiumError
    for keys without PyNaCl, and ValueError for a rule that names a protocol of payloads that nobody knows.
    """
    return Sniffer(
        source,
        settings.limits,
        settings.flow_limits,
        settings.decode_as,
        settings.count,
        clock,
        Patterns(settings.reply_seconds, settings.decode_as) if settings.patterns else None,
        _make_payloads(settings, entries) if settings.payload else None,
        tls,
        Curve(KeyRing(settings.curve_keys)),
        witness,
        host=host,
        selector=selector,
    )


def _make_payloads(settings: Settings, entries: Sequence[EntryPoint] | None) -> Payloads:
    bodies = None
    if settings.decode_bodies:
        from zmtpsniff.analysis.bodies import bodies_of  # which takes longer to import than most captures to read

        bodies = bodies_of
    dissectors = load_dissectors(settings.plugins, entries)
    return Payloads(dissectors, settings.decode_as, settings.limits.show_secrets, bodies)
