"""The Malamute protocol (zeromq/malamute, src/mlm_proto.bnf)."""

from collections import deque
from typing import ClassVar

from dissectors.payloads import (
    MOST_WAITING,
    REQUEST,
    Message,
    Payload,
    PayloadConnection,
    PayloadKind,
    Place,
    request_fields,
)
from dissectors.payloads.zproto import Codec

_CODEC = Codec(
    "mlm",
    b"\xaa\xa8",
    """
    1 CONNECTION_OPEN protocol_name:string version:number-2 address:string | address
    2 CONNECTION_PING
    3 CONNECTION_PONG
    4 CONNECTION_CLOSE
    5 STREAM_WRITE stream:string | stream
    6 STREAM_READ stream:string pattern:string | stream pattern
    7 STREAM_SEND subject:string content:frames | subject
    8 STREAM_DELIVER address:string sender:string subject:string content:frames | address subject
    9 MAILBOX_SEND address:string subject:string tracker:string timeout:number-4 content:frames | address subject
    10 MAILBOX_DELIVER sender:string address:string subject:string tracker:string content:frames | address subject
    11 SERVICE_SEND address:string subject:string tracker:string timeout:number-4 content:frames | address subject
    12 SERVICE_OFFER address:string pattern:string | address pattern
    13 SERVICE_DELIVER sender:string address:string subject:string tracker:string content:frames | address subject
    14 OK status_code:number-2 status_reason:string | status_code status_reason
    15 ERROR status_code:number-2 status_reason:string | status_code status_reason
    16 CREDIT amount:number-2 | amount
    17 CONFIRM tracker:string status_code:number-2 status_reason:string | tracker status_code status_reason
    18 STREAM_CANCEL stream:string | stream
    """,
)
# Commands that the broker answers with OK or ERROR. The grammar says so of MAILBOX_SEND and SERVICE_SEND, too, but
# brokers answer these only with an ERROR.
_ANSWERED = frozenset(
    {
        "CONNECTION_OPEN",
        "CONNECTION_CLOSE",
        "STREAM_WRITE",
        "STREAM_READ",
        "STREAM_CANCEL",
        "SERVICE_OFFER",
    }
)
_TRACKED = frozenset({"MAILBOX_SEND", "SERVICE_SEND", "MAILBOX_DELIVER", "SERVICE_DELIVER"})


class Malamute:
    """Clients and the broker; replies are joined with the requests that they answer."""

    name = "mlm"
    signature = _CODEC.signature
    fields: ClassVar[dict[str, PayloadKind]] = {**_CODEC.fields, "answers": "text", **REQUEST}

    def match(self, message: Message, connection: PayloadConnection) -> bool:
        """Whether signature and command are of this protocol."""
        return _CODEC.place(message) is not None

    def dissect(self, message: Message, connection: PayloadConnection) -> Payload | None:
        """The command, and to what it is the answer."""
        payload = _CODEC.read(message)
        if payload is None:
            return None
        state = connection.state
        if not state:
            state["requests"] = deque(maxlen=MOST_WAITING)
            state["pings"] = deque(maxlen=MOST_WAITING)
            state["trackers"] = {}
        fields = payload.fields
        kind = fields["command"]
        answered: tuple[str, Place] | None = None
        if kind == "CONNECTION_OPEN":
            if fields.pop("protocol_name") != "MALAMUTE":
                return None
            state["requests"].clear()
        if kind in _ANSWERED:
            state["requests"].append((kind, message.place))
        elif kind == "CONNECTION_PING":
            state["pings"].append((kind, message.place))
        elif kind in _TRACKED and fields["tracker"] and len(state["trackers"]) < MOST_WAITING:
            state["trackers"][fields["tracker"]] = (kind, message.place)
        elif kind in ("OK", "ERROR"):
            answered = state["requests"].popleft() if state["requests"] else None
        elif kind == "CONNECTION_PONG":
            answered = state["pings"].popleft() if state["pings"] else None
        elif kind == "CONFIRM":
            answered = state["trackers"].pop(fields["tracker"], None)
        if answered is not None:
            fields["answers"], place = answered
            fields |= request_fields(place)
            payload.summary += f" to {fields['answers']}"
        return payload
