"""Which engine captures: the one that was asked for, or the first that works here."""

from collections.abc import Callable

from zmtpsniff.capture.engines.engine import Engine, EngineMissingError, EngineName, LiveOptions, PrivilegeError
from zmtpsniff.capture.source import CaptureError


def make_engine(name: EngineName, options: LiveOptions) -> Engine:
    """Start the engine of that name, or with ``auto`` the first that works here; raises as Engine.start() does."""
    from zmtpsniff.capture.engines.process import DumpcapEngine, TcpdumpEngine
    from zmtpsniff.capture.engines.scapy import ScapyEngine

    refusals: list[CaptureError] = []
    kinds: list[Callable[[], Engine]]
    match name:
        case "auto":
            # dumpcap needs no root, but keeps packets for longer than a record may take.
            kinds = [lambda: ScapyEngine(options), lambda: DumpcapEngine(options), lambda: TcpdumpEngine(options)]
        case "dumpcap":
            kinds = [lambda: DumpcapEngine(options), lambda: TcpdumpEngine(options)]
        case "tcpdump":
            kinds = [lambda: TcpdumpEngine(options)]
        case "scapy":
            kinds = [lambda: ScapyEngine(options)]
        case "tshark":
            from zmtpsniff.capture.engines.tshark import TsharkEngine

            kinds = [lambda: TsharkEngine(options)]
    for kind in kinds:
        engine = kind()
        try:
            engine.start()
        except (EngineMissingError, PrivilegeError) as error:
            refusals.append(error)
        else:
            return engine
    # A refusal for want of privilege says more than a missing program.
    raise next((error for error in refusals if isinstance(error, PrivilegeError)), refusals[0])
