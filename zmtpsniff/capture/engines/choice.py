"""Which engine captures: the one that was asked for, or the first that works here."""

from collections.abc import Callable

from zmtpsniff.capture.engines.engine import Engine, EngineMissingError, EngineName, LiveOptions, PrivilegeError
from zmtpsniff.capture.source import CaptureError


def make_engine(name: EngineName, options: LiveOptions) -> Engine:
    """Start the engine of that name, or with ``auto`` the first that works here; raises as Engine.start() does."""
    from zmtpsniff.capture.engines.process import DumpcapEngine, TcpdumpEngine
    from zmtpsniff.capture.engines.scapy import ScapyEngine

    kinds: dict[EngineName, tuple[Callable[[LiveOptions], Engine], ...]] = {
        # dumpcap needs no root, but keeps packets for longer than a record may take.
        "auto": (ScapyEngine, DumpcapEngine, TcpdumpEngine),
        "dumpcap": (DumpcapEngine, TcpdumpEngine),
        "tcpdump": (TcpdumpEngine,),
        "scapy": (ScapyEngine,),
    }
    if name == "tshark":
        from zmtpsniff.capture.engines.tshark import TsharkEngine

        kinds["tshark"] = (TsharkEngine,)
    refusals: list[CaptureError] = []
    for kind in kinds[name]:
        engine = kind(options)
        try:
            engine.start()
        except (EngineMissingError, PrivilegeError) as error:
            refusals.append(error)
        else:
            return engine
    # A refusal for want of privilege says more than a missing program.
    raise next((error for error in refusals if isinstance(error, PrivilegeError)), refusals[0])
