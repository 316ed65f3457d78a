"""The numbers of the protocol, each with the section that gives it.

13/ZMTP is version 1.0, 15/ZMTP 2.0, 23/ZMTP 3.0 and 37/ZMTP 3.1; 25/ZMTP-CURVE is the CURVE mechanism.
"""

# Frames: flags octet (23/ZMTP, "Framing"; 15/ZMTP, "Framing"; bit 0 also in 13/ZMTP)
MORE = 0x01
LONG = 0x02
COMMAND = 0x04
RESERVED = 0xF8
MAX_LENGTH = 2**63 - 1
PLAUSIBLE_LENGTH = 1 << 32  # where it is not certain that octets are a length, they are none if they say more
SHORT_LIMIT = 255  # the longest body of a frame without LONG
LENGTH_ESCAPE_V1 = 0xFF  # 13/ZMTP: the real length follows in 8 octets

# 13/ZMTP gives a meaning to bit 0 alone. libzmq 2.1 leaves its message-type mask (0x7E) in the other bits; all other
# peers send zero. No peer is known with other values, so they are no ZMTP 1.0 unless something else proves it.
FLAGS_SEEN_V1 = frozenset({0x00, 0x01, 0x7E, 0x7F})

# The flags octet in front of a body in a message of WebSocket (45/ZWS, "Framing") or in a box (26/CURVEZMQ, "MESSAGE")
MORE_INSIDE = 0x01
COMMAND_INSIDE = 0x02
RESERVED_INSIDE = 0xFC

# Greeting (23/ZMTP, "Greeting"; 15/ZMTP, "Backwards Interoperability")
SIGNATURE_SIZE = 10
SIGNATURE_START = 0xFF
SIGNATURE_END = 0x7F
REVISION_1 = 0  # framing as 1.0, but versioned
REVISION_2 = 1
REVISION_3 = 3
GREETING_SIZE = 64
MECHANISM_SIZE = 20
AFTER_REVISION_SIZE = GREETING_SIZE - SIGNATURE_SIZE - 1  # minor, mechanism, as-server, filler
MECHANISM_CHARACTERS = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.+")

# Limits on values
IDENTITY_LIMIT = 255  # 23/ZMTP, "Identity"
CONTEXT_LIMIT = 16  # 37/ZMTP, "Connection Heartbeating"

# 25/ZMTP-CURVE
CURVE_NONCE_SIZE = 8
CURVE_BOX_OVERHEAD = 16  # of a box with nothing in it
CURVE_MESSAGE = b"\x07MESSAGE"  # how the body of an encrypted frame begins
CURVE_MESSAGE_LEAST = len(CURVE_MESSAGE) + CURVE_NONCE_SIZE + CURVE_BOX_OVERHEAD + 1

# How the first commands of a handshake begin (23/ZMTP, "Commands")
HANDSHAKE = (b"\x05READY", b"\x05HELLO", b"\x07WELCOME", b"\x08INITIATE", b"\x05ERROR")

# The ERROR of libzmq 4.3.5's PLAIN server: its name length octet is overwritten by "^" and the E is missing.
BROKEN_ERROR = b"^RROR"


def flags_inside(flags: int) -> int:
    """The flags of a frame of ZMTP 2.0 and later, from the flags octet inside a message of WebSocket or a box."""
    return (MORE if flags & MORE_INSIDE else 0) | (COMMAND if flags & COMMAND_INSIDE else 0)
