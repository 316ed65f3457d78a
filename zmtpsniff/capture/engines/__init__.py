"""Engines: what captures packets from interfaces while they pass."""

from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple, Protocol, get_args

from zmtpsniff.capture.source import CaptureError, Fault, Packet

EngineName = Literal["auto", "dumpcap", "tcpdump"]
ENGINES: tuple[EngineName, ...] = get_args(EngineName)


class LiveOptions(NamedTuple):
    """What to capture."""

    interfaces: Sequence[str]
    capture_filter: str = ""  # in the language of libpcap (BPF)
    snaplen: int = 262_144  # octets
    buffer_mib: int = 16  # of the kernel, for each interface
    promiscuous: bool = True


class EngineMissingError(CaptureError):
    """What this engine needs is not installed; another engine may work."""


class PrivilegeError(CaptureError):
    """The user may not capture with this engine; another engine may work."""


class Engine(Protocol):
    """Captures packets until it is stopped or the interface goes away. A Source, read in a thread of its own."""

    name: str
    dropped: int
    faults: list[Fault]
    comments: list[str]

    def start(self) -> None:
        """Begin to capture.

        Raises EngineMissingError, PrivilegeError, or CaptureError for a wrong filter or interface, with the reason in
        one line.
        """

    def batches(self) -> Iterator[list[Packet]]:
        """Yield packets as they come, until the capture ends."""
        ...

    def stop(self) -> None:
        """End the capture; batches() then ends with what had come. May be called from another thread, and twice."""


def make_engine(name: EngineName, options: LiveOptions) -> Engine:
    """Start the engine of that name, or with ``auto`` the first that works here; raises as Engine.start() does."""
    from zmtpsniff.capture.engines.process import DumpcapEngine, TcpdumpEngine

    kinds = {"dumpcap": DumpcapEngine, "tcpdump": TcpdumpEngine}
    refusals: list[CaptureError] = []
    for kind in kinds.values() if name == "auto" else [kinds[name]]:
        engine = kind(options)
        try:
            engine.start()
        except (EngineMissingError, PrivilegeError) as error:
            refusals.append(error)
        else:
            return engine
    # A refusal for want of privilege says more than a missing program.
    raise next((error for error in refusals if isinstance(error, PrivilegeError)), refusals[0])
