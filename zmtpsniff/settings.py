"""The settings of a dissection, for the command line and for programs, and their defaults.

This module imports nothing that takes time, since every start of the command line reads the defaults.
"""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from dissectors.zmtp.limits import Limits
from zmtpsniff.analysis.defaults import REPLY_SECONDS
from zmtpsniff.decode_as import DecodeAs
from zmtpsniff.net.limits import FlowLimits

if TYPE_CHECKING:
    from dissectors.zmtp.curve_keys import Key


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How to dissect the packets of a capture."""

    count: int | None = None  # packets after which to stop; None for no limit
    decode_as: tuple[DecodeAs, ...] = ()  # of several rules that match, the first holds
    limits: Limits = field(default_factory=Limits)
    flow_limits: FlowLimits = field(default_factory=FlowLimits)
    patterns: bool = True  # add what messages mean to each other
    reply_seconds: float = REPLY_SECONDS  # with patterns: report requests that wait for longer
    payload: bool = True  # add what applications say in messages
    plugins: tuple[str, ...] = ()  # files with dissectors of payloads, which come before the built-in ones
    curve_keys: "tuple[Key, ...]" = ()  # keys that open boxes of CURVE, beside those in the capture
    host_keys: bool = False  # live: also take keys from the programs of this machine
    decode_bodies: bool = False  # show JSON, MessagePack, CBOR, Protocol Buffers as structure, with payload
