"""The records of ``zmtpsniff trace``: the way of a request, a job or a publication from socket to socket."""

from typing import Annotated, Literal

import msgspec

from dissectors.records import meaning, moment
from dissectors.snapshots import quick

Kind = Literal["request", "job", "publication"]
Joined = Literal["envelope", "correlation", "body", "process", "order"]
What = Literal["inside", "queue", "network"]
Why = Literal[
    "closed",
    "not-forwarded",
    "not-answered",
    "reply-not-forwarded",
    "reply-to-nobody",
    "not-taken",
    "capture-ended",
]


@quick
class Leg(msgspec.Struct, omit_defaults=True, repr_omit_defaults=True, gc=False):
    """One message of a way: from one socket to the next one."""

    src: Annotated[str, meaning("The sender's address and port.")]
    dst: Annotated[str, meaning("The receiver's address and port.")]
    flow: Annotated[int, meaning("The connection.")]
    packet: Annotated[int, meaning("The packet with the last octet of the message.")]
    time_ns: Annotated[int, moment("When that packet was captured")]
    part: Annotated[
        int,
        meaning("Which of the messages of this connection and sender that end in this packet. JSON leaves a 1 out."),
    ] = 1
    seen_ns: Annotated[int | None, moment("When the receiver acknowledged the last octet")] = None
    reply: Annotated[bool, meaning("The leg is on the way back.")] = False
    joined: Annotated[Joined | None, meaning("What joins the leg to the one before.")] = None
    certain: Annotated[bool, meaning("False where another join is possible.")] = True


class Slowest(msgspec.Struct, gc=False):
    """Where most of the time of a way went."""

    at: Annotated[str, meaning("The address and port of the socket that had the message.")]
    ns: Annotated[int, meaning("How long it was there.", "ns")]
    what: Annotated[
        What,
        meaning(
            "Between taking the message and passing it on; the same while the program worked on others; or the network."
        ),
    ]


class Terminus(msgspec.Struct, gc=False):
    """Where a request without reply, or a job that was not done, went no further."""

    at: Annotated[str, meaning("The address and port of the socket that had the message.")]
    why: Annotated[Why, meaning("Why it went no further.")]


class Way(msgspec.Struct, omit_defaults=True, repr_omit_defaults=True, tag_field="type", tag="way", gc=False):
    """The way of one request, job or publication, over any number of brokers and services."""

    kind: Annotated[Kind, meaning("Whether a sender waits for a reply, pushes, or publishes.")]
    time_ns: Annotated[int, moment("When its first message was sent")]
    duration_ns: Annotated[
        int, meaning("Until the first sender had the reply, or until the last leg that is known.", "ns")
    ]
    legs: Annotated[list[Leg], meaning("Its messages, in order of time.")]
    answered: Annotated[
        bool | None, meaning("Of a request: whether its first sender got the reply; left out if nobody knows.")
    ] = None
    slowest: Annotated[Slowest | None, meaning("Where most of its time went.")] = None
    ended: Annotated[Terminus | None, meaning("Where and why it went no further.")] = None
    again: Annotated[Leg | None, meaning("The first leg of the request that this one asks again.")] = None


def moved(way: Way, by_ns: int) -> Way:
    """The same way, so much later."""

    def later(leg: Leg) -> Leg:
        seen_ns = None if leg.seen_ns is None else leg.seen_ns + by_ns
        return msgspec.structs.replace(leg, time_ns=leg.time_ns + by_ns, seen_ns=seen_ns)

    again = None if way.again is None else later(way.again)
    return msgspec.structs.replace(way, time_ns=way.time_ns + by_ns, legs=[*map(later, way.legs)], again=again)


def lasted_ns(way: Way) -> int:
    """How long until the reply was sent to the first sender, or the duration of the way if there is none."""
    back = [leg for leg in way.legs if leg.reply and leg.dst == way.legs[0].src]
    return back[0].time_ns - way.time_ns if back else way.duration_ns
