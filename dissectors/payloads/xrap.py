"""XRAP, resources as in REST (40/XRAP)."""

from typing import ClassVar

from dissectors.payloads import MOST_WAITING, REQUEST, Message, Payload, PayloadConnection, PayloadKind, request_fields
from dissectors.payloads.zproto import Codec

_CODEC = Codec(
    "xrap",
    b"\xaa\xa5",
    """
    1 POST tracker:number-4 parent:string content_type:string content_body:longstr | parent
    2 POST_OK tracker:number-4 status_code:number-2 location:string etag:string date_modified:number-8 \
        content_type:string content_body:longstr metadata:dictionary | status_code location
    3 GET tracker:number-4 resource:string parameters:dictionary if_modified_since:number-8 if_none_match:string \
        content_type:string | resource
    4 GET_OK tracker:number-4 status_code:number-2 etag:string date_modified:number-8 content_type:string \
        content_body:longstr metadata:dictionary | status_code
    5 GET_EMPTY tracker:number-4 status_code:number-2 | status_code
    6 PUT tracker:number-4 resource:string if_unmodified_since:number-8 if_match:string content_type:string \
        content_body:longstr | resource
    7 PUT_OK tracker:number-4 status_code:number-2 location:string etag:string date_modified:number-8 \
        metadata:dictionary | status_code location
    8 DELETE tracker:number-4 resource:string if_unmodified_since:number-8 if_match:string | resource
    9 DELETE_OK tracker:number-4 status_code:number-2 metadata:dictionary | status_code
    10 ERROR tracker:number-4 status_code:number-2 status_text:string | status_code status_text
    """,
)
_REQUESTS = frozenset({"POST", "GET", "PUT", "DELETE"})


class Xrap:
    """Requests and what answers them, which their trackers join."""

    name = "xrap"
    signature = _CODEC.signature
    fields: ClassVar[dict[str, PayloadKind]] = {**_CODEC.fields, **REQUEST}

    def match(self, message: Message, connection: PayloadConnection) -> bool:
        """Whether signature, command and the length of the fields fit this protocol."""
        return _CODEC.place(message) is not None and _CODEC.read(message) is not None

    def dissect(self, message: Message, connection: PayloadConnection) -> Payload | None:
        """The command."""
        payload = _CODEC.read(message)
        if payload is None:
            return None
        state, tracker = connection.state, payload.fields["tracker"]
        if payload.fields["command"] not in _REQUESTS:
            if (request := state.pop(tracker, None)) is not None:
                payload.fields |= request_fields(request)
        elif tracker and len(state) < MOST_WAITING:
            state[tracker] = message.place
        return payload
