"""Who takes the octets of a flow, as flows see it."""

from typing import Literal, Protocol

from zmtpsniff.net.reassembly import Receiver

End = Literal["fin", "rst", "timeout", "open"]
Side = Literal["client", "server"]


class FlowDissection(Protocol):
    """What takes the octets of a flow."""

    @property
    def rejected(self) -> bool:
        """Whether the dissector wants nothing more of the flow."""
        ...

    @property
    def client(self) -> Receiver:
        """Who takes the client's octets."""
        ...

    @property
    def server(self) -> Receiver:
        """Who takes the server's octets."""
        ...

    def finish(self, end: End, start_ns: int, end_ns: int, closed_by: Side | None, /) -> None:
        """The flow is over; ``closed_by`` is the side that closed first, if that is known."""

    def release(self) -> None:
        """Nobody asks for more: break the references back to this object."""
