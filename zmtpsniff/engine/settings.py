"""The settings of a dissection, for the command line and for programs, and their defaults.

This module is quick to import, since every start of the command line reads the defaults.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from dissectors.zmtp.limits import Limits
from zmtpsniff.analysis.defaults import REPLY_SECONDS
from zmtpsniff.decode_as import DecodeAs
from zmtpsniff.net.limits import FlowLimits

if TYPE_CHECKING:
    from dissectors.zmtp.curve_keys import Key
    from zmtpsniff.capture.time_window import TimeWindow


class Settings(NamedTuple):
    """How to dissect the packets of a capture."""

    packets: int | None = None  # the most to read; None for no limit
    decode_as: tuple[DecodeAs, ...] = ()  # of several rules that match, the first holds
    window: "TimeWindow | None" = None  # the times of the packets to read
    # The socket types that greetings said before that, by the address of the socket and that of its peer.
    greeted: Mapping[tuple[str, str], str] | None = None
    sample: int = 1  # look at one of so many connections of TCP
    limits: Limits = Limits()
    flow_limits: FlowLimits = FlowLimits()
    patterns: bool = True  # add what messages mean to each other
    reply_seconds: float = REPLY_SECONDS  # with patterns: report requests that wait for longer
    payload: bool = True  # add what applications say in messages
    plugins: tuple[str, ...] = ()  # files with dissectors of payloads, which come before the built-in ones
    curve_keys: "tuple[Key, ...]" = ()  # keys that open boxes of CURVE, beside those in the capture
    host_keys: bool = False  # live: also take keys from the programs of this machine
    batches: bool = False  # messages may come in columns, as MessageBatch; for those who read columns
    decode_bodies: bool = False  # show JSON, MessagePack, CBOR, Protocol Buffers as structure, with payload
