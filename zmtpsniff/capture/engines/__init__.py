"""Engines: what captures packets from interfaces while they pass."""

from collections.abc import Callable, Iterator, Sequence
from typing import Literal, NamedTuple, Protocol, get_args

from zmtpsniff.capture.source import CaptureError, Fault, Packet

EngineName = Literal["auto", "dumpcap", "tcpdump", "scapy", "tshark"]
ENGINES: tuple[EngineName, ...] = get_args(EngineName)
HOW_TO_BE_ALLOWED = (
    "no permission to capture: run it with sudo, or allow dumpcap to you "
    "(apt install tshark; dpkg-reconfigure wireshark-common; adduser YOU wireshark; log in again)"
)


class LiveOptions(NamedTuple):
    """What to capture."""

    interfaces: Sequence[str]
    capture_filter: str = ""  # in the language of libpcap (BPF)
    snaplen: int = 262_144  # octets
    buffer_mib: int = 64  # of the kernel, for each interface
    promiscuous: bool = True
    tshark_options: Sequence[str] = ()  # arguments of tshark, as parse_option() makes them


class EngineMissingError(CaptureError):
    """What this engine needs is not installed; another engine may work."""


class PrivilegeError(CaptureError):
    """The user may not capture with this engine; another engine may work."""


class Engine(Protocol):
    """Captures packets until it is stopped or the interface goes away. A Source, read in a thread of its own."""

    name: str
    dropped: int  # packets by the kernel, as far as is known yet
    failure: str | None  # why the capture ended although nobody had asked it to
    faults: list[Fault]
    comments: list[str]

    def start(self) -> None:
        """Open what needs privileges, and begin to capture.

        Raises EngineMissingError, PrivilegeError, or CaptureError for a wrong filter or interface, with the reason in
        one line.
        """

    def batches(self) -> Iterator[list[Packet]]:
        """Yield packets as they come, until the capture ends."""
        ...

    def count_drops(self) -> None:
        """Find out how many packets were dropped by now, where that can be known before the end."""

    def stop(self) -> None:
        """Ask it to end; batches() then ends with what had come.

        Does not wait. May be called from another thread, from a signal handler, and twice.
        """

    def close(self) -> None:
        """End it whatever that takes; when this returns nothing of it is left."""


def make_engine(name: EngineName, options: LiveOptions) -> Engine:
    """Start the engine of that name, or with ``auto`` the first that works here; raises as Engine.start() does."""
    from zmtpsniff.capture.engines.process import DumpcapEngine, TcpdumpEngine
    from zmtpsniff.capture.engines.scapy import ScapyEngine

    refusals: list[CaptureError] = []
    kinds: list[Callable[[], Engine]]
    match name:
        case "auto":
            # An old dumpcap keeps packets for too long, so it is the last but one resort.
            kinds = [
                lambda: DumpcapEngine(options, must_be_prompt=True),
                lambda: ScapyEngine(options),
                lambda: DumpcapEngine(options),
                lambda: TcpdumpEngine(options),
            ]
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
