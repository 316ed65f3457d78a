"""What may be asked of a dissection, by the command line and by programs alike, and what holds if nothing is asked.

It imports nothing that takes time, since every start of the command line reads its defaults.
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
    patterns: bool = True  # say what messages mean to each other
    reply_seconds: float = REPLY_SECONDS  # a request that waits for longer is reported, with patterns
    payload: bool = True  # say what applications say in messages
    plugins: tuple[str, ...] = ()  # files with dissectors of payloads, which are asked first
    curve_keys: "tuple[Key, ...]" = ()  # what opens boxes of CURVE, beside the keys that a capture brings
    host_keys: bool = False  # live: keys come from the programs of this machine, too
    decode_bodies: bool = False  # show JSON, MessagePack, CBOR, Protocol Buffers as structure, with payload
