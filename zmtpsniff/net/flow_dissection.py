"""The dissector of a flow, as flows see it."""

from typing import Literal, Protocol

from zmtpsniff.net.reassembly import Receiver

End = Literal["fin", "rst", "timeout", "open"]
Side = Literal["client", "server"]


class FlowDissection(Protocol):
    """The dissector of a flow: it takes the octets of both directions."""

    @property
    def rejected(self) -> bool:
        """Whether the dissector wants nothing more of the flow."""
        ...

    @property
    def client(self) -> Receiver:
        """The receiver of the client's octets."""
        ...

    @property
    def server(self) -> Receiver:
        """The receiver of the server's octets."""
        ...

    def finish(self, end: End, start_ns: int, end_ns: int, closed_by: Side | None, /) -> None:
        """The flow is over; ``closed_by`` is the side that closed first, if that is known."""

    def release(self) -> None:
        """Break the references back to this object, which is not asked for more."""
