"""An engine captures packets from interfaces while they pass."""

from collections.abc import Iterator, Sequence
from typing import Any, Literal, NamedTuple, Protocol, get_args

from zmtpsniff.capture.block import Block
from zmtpsniff.capture.plaintexts import Plaintexts
from zmtpsniff.capture.source import CaptureError, SourceState

EngineName = Literal["auto", "dumpcap", "tcpdump", "scapy", "tshark"]
ENGINES: tuple[EngineName, ...] = get_args(EngineName)
HOW_TO_BE_ALLOWED = (
    "no permission to capture: run it with sudo, or let dumpcap capture for you "
    "(apt install tshark; dpkg-reconfigure wireshark-common; adduser YOU wireshark; log in again)"
)


class LiveOptions(NamedTuple):
    """The packets to capture, and how."""

    interfaces: Sequence[str]
    capture_filter: str = ""  # in the language of libpcap (BPF)
    snaplen: int = 262_144  # octets
    buffer_mib: int = 64  # of the kernel, for each interface
    promiscuous: bool = True
    tshark_options: Sequence[str] = ()  # arguments of tshark, as parse_option() makes them
    decrypted: Plaintexts | None = None  # where what tshark decrypts of TLS goes, None if it has no keys


class Piece(NamedTuple):
    """Packets that an engine has captured, not read yet, so that they take little time and memory while they wait."""

    octets: int  # of memory
    packets: int
    payload: Any  # for packets() of the same engine
    needed: bool = False  # may not be left out


_PACKET_COST = 200  # octets that a packet takes beside its own


def piece_of(block: Block) -> Piece:
    """Packets that are taken apart already as a piece."""
    return Piece(len(block.octets) + _PACKET_COST * len(block), len(block), block)


class EngineMissingError(CaptureError):
    """A program or package that this engine needs is not installed. Another engine may work."""


class PrivilegeError(CaptureError):
    """The user may not capture with this engine; another engine may work."""


class Engine(SourceState, Protocol):
    """Captures packets until it is stopped or the interface goes away.

    pieces() is read in a thread of its own, packets() by whoever dissects them.
    """

    name: str
    failure: str | None  # why the capture ended although nobody had asked it to

    def start(self) -> None:
        """Open what needs privileges, and begin to capture.

        Raises EngineMissingError, PrivilegeError, or CaptureError for a wrong filter or interface, with the reason in
        one line.
        """

    def pieces(self) -> Iterator[Piece]:
        """Yield what is captured as it comes, until the capture ends."""
        ...

    def packets(self, payloads: Iterator[Any]) -> Iterator[Block]:
        """Read the packets of pieces: a block for each piece, empty for one without packets.

        It asks for the next piece only when its caller asks for more.
        """
        ...

    def count_drops(self) -> None:
        """Find out how many packets were dropped so far, if that is known before the end."""

    def stop(self) -> None:
        """Ask it to end. pieces() then gives what has come, and ends. Does not wait.

        May be called from another thread, from a signal handler, and twice.
        """

    def close(self) -> None:
        """End the program, if need be by force. When this returns, no process is left."""
