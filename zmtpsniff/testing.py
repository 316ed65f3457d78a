"""For tests of plug-ins: run a dissector of payloads on a capture or on a message, and see its results."""

from collections.abc import Sequence
from os import PathLike

from dissectors.events import AnyEvent, Connection, Message, Payload, Problem
from dissectors.payloads import PayloadConnection, PayloadDissector
from dissectors.zmtp.limits import Limits
from zmtpsniff.analysis.plugins import load_file
from zmtpsniff.decode_as import parse
from zmtpsniff.dissection import open_files
from zmtpsniff.engine.settings import Settings
from zmtpsniff.engine.sniffer import Collaborators

__all__ = ["DissectionResult", "dissect_capture", "dissect_message", "new_connection"]


class DissectionResult:
    """The results of dissecting a capture."""

    def __init__(self, events: list[AnyEvent]) -> None:
        """``events`` are all that the capture gave."""
        self.events = events
        self.messages = [event for event in events if isinstance(event, Message)]
        self.connections = [event for event in events if isinstance(event, Connection)]

    @property
    def payloads(self) -> list[Payload]:
        """The payloads that the dissectors found, in order."""
        return [message.payload for message in self.messages if message.payload is not None]

    @property
    def unknown(self) -> list[Message]:
        """The messages that the dissectors did not know."""
        return [message for message in self.messages if message.payload is None]


def dissect_capture(
    dissector: str | PayloadDissector,
    capture: str | PathLike[str],
    decode_as: Sequence[str] = (),
    show_secrets: bool = False,
) -> DissectionResult:
    """Run a dissector, and no others, on all messages of a capture file.

    ``dissector`` is an object or the name of a plug-in's file, ``decode_as`` rules of ``-d``. Raises what is wrong:
    AssertionError if it failed on a message, PluginError, CaptureError, DecodeAsError.
    """
    given = load_file(dissector) if isinstance(dissector, str) else [dissector]
    settings = Settings(decode_as=tuple(map(parse, decode_as)), limits=Limits(show_secrets=show_secrets))
    events = list(open_files([capture], settings, Collaborators(dissectors=lambda: given)))
    failed = [e.detail for e in events if isinstance(e, Problem) and e.code == "payload-dissector-failed"]
    assert not failed, failed[0]
    return DissectionResult(events)


def dissect_message(
    dissector: PayloadDissector,
    frames: Sequence[bytes],
    from_client: bool = True,
    socket_type: str | None = None,
    connection: PayloadConnection | None = None,
) -> Payload | None:
    """The payload that a dissector finds in one message; None if there is none. Raises the dissector's errors.

    ``socket_type`` is that of the sender; ``connection`` the one of the message before, to go on with its state.
    """
    connection = connection or new_connection()
    client, server = connection.client, connection.server
    src, dst = (client, server) if from_client else (server, client)
    if socket_type is not None:
        connection.socket_types[src] = socket_type
    message = Message(1_700_000_000_000_000_000, 1, connection.flow, src, dst, list(frames), socket_type)
    if dissector.match(message, connection) < 0.5:
        return None
    return dissector.dissect(message, connection)


def new_connection(show_secrets: bool = False) -> PayloadConnection:
    """A connection for dissect_message()."""
    return PayloadConnection(1, "192.0.2.1:49152", "192.0.2.2:5555", show_secrets)
