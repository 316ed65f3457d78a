"""Sockets of any libzmq, by ctypes: one with drafts that tests/support/libzmq/build made, or the one that is installed.

pyzmq's own library has neither draft sockets, ws:// nor pgm://.
"""

import ctypes
import ctypes.util
import os
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.support.paths import PROJECT

# zmq.h and zmq_draft.h
PAIR, PUB, SUB, REQ, REP, DEALER, ROUTER, PULL, PUSH = range(9)
SERVER, CLIENT, RADIO, DISH, GATHER, SCATTER, DGRAM, PEER, CHANNEL = range(12, 21)
ROUTING_ID, SUBSCRIBE, UNSUBSCRIBE, RATE, RECOVERY_IVL, LINGER = 5, 6, 7, 8, 9, 17
SNDHWM, RCVHWM, RCVTIMEO, SNDTIMEO = 23, 24, 27, 28
PLAIN_SERVER, PLAIN_USERNAME, PLAIN_PASSWORD, ZAP_DOMAIN = 44, 45, 46, 55
HEARTBEAT_IVL, HEARTBEAT_TIMEOUT = 75, 77
_RCVMORE, _SNDMORE, _TYPE = 13, 2, 16
_PATIENCE_MS = 60_000

WITH_DRAFTS = Path(os.environ.get("ZMTPSNIFF_LIBZMQ", PROJECT / ".ci" / "libzmq")) / "libzmq.so"


def installed() -> str | None:
    """The installed library if it has PGM, as Debian's has."""
    name = ctypes.util.find_library("zmq")
    return name if name is not None and ctypes.CDLL(name).zmq_has(b"pgm") else None


class Frame(bytes):
    """A frame that came, with what is told beside it."""

    group: bytes = b""
    routing_id: int = 0


class Context:
    """A context of a library; closing it closes all its sockets, and waits for what they have to send."""

    def __init__(self, library: str) -> None:
        self._library = ctypes.CDLL(library, use_errno=True)
        for name in ("zmq_ctx_new", "zmq_socket", "zmq_msg_data", "zmq_strerror", "zmq_msg_group"):
            if hasattr(self._library, name):
                getattr(self._library, name).restype = ctypes.c_void_p
        self._library.zmq_msg_size.restype = ctypes.c_size_t
        self._context = ctypes.c_void_p(self.call("zmq_ctx_new"))
        self._sockets: list[Socket] = []

    def call(self, name: str, *arguments: Any) -> int:
        """Call a function of the library; raises OSError if it fails."""
        result: int | None = getattr(self._library, name)(*arguments)
        if result is None or result == -1:
            number = ctypes.get_errno()
            said = ctypes.string_at(self._library.zmq_strerror(number)).decode()
            raise OSError(number, f"{name}: {said}")
        return result

    def socket(self, kind: int) -> "Socket":
        made = Socket(self, ctypes.c_void_p(self.call("zmq_socket", self._context, kind)), kind)
        self._sockets.append(made)
        return made

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for socket in self._sockets:
            if kind is not None and not socket.closed:
                socket.set(LINGER, 0)
            socket.close()
        self.call("zmq_ctx_term", self._context)


class Socket:
    """A socket; nothing it does takes longer than ten seconds."""

    def __init__(self, context: Context, pointer: ctypes.c_void_p, kind: int) -> None:
        self._call = context.call
        self._pointer = pointer
        self.kind = kind
        self.closed = False
        for option in (LINGER, RCVTIMEO, SNDTIMEO):
            self.set(option, _PATIENCE_MS)
        if kind != DGRAM:
            self.set(SNDHWM, 0)
            self.set(RCVHWM, 0)

    def set(self, option: int, value: int | bytes) -> None:
        octets = value if isinstance(value, bytes) else value.to_bytes(4, "little", signed=True)
        self._call("zmq_setsockopt", self._pointer, option, octets, ctypes.c_size_t(len(octets)))

    def bind(self, address: str) -> None:
        self._call("zmq_bind", self._pointer, address.encode())

    def connect(self, address: str) -> None:
        self._call("zmq_connect", self._pointer, address.encode())

    def join(self, group: bytes) -> None:
        self._call("zmq_join", self._pointer, group)

    def leave(self, group: bytes) -> None:
        self._call("zmq_leave", self._pointer, group)

    def send(self, *frames: bytes, group: bytes = b"", routing_id: int = 0) -> None:
        for number, frame in enumerate(frames, 1):
            message = (ctypes.c_uint64 * 8)()
            self._call("zmq_msg_init_size", message, ctypes.c_size_t(len(frame)))
            ctypes.memmove(self._call("zmq_msg_data", message), frame, len(frame))
            if group:
                self._call("zmq_msg_set_group", message, group)
            if routing_id:
                self._call("zmq_msg_set_routing_id", message, ctypes.c_uint32(routing_id))
            self._call("zmq_msg_send", message, self._pointer, _SNDMORE if number < len(frames) else 0)

    def recv(self) -> list[Frame]:
        frames = []
        more = True
        while more:
            message = (ctypes.c_uint64 * 8)()
            self._call("zmq_msg_init", message)
            self._call("zmq_msg_recv", message, self._pointer, 0)
            size = self._call("zmq_msg_size", message)
            frame = Frame(ctypes.string_at(self._call("zmq_msg_data", message), size) if size else b"")
            if self.kind == DISH:
                frame.group = ctypes.string_at(self._call("zmq_msg_group", message))
            if self.kind in (SERVER, PEER):
                frame.routing_id = self._call("zmq_msg_routing_id", message) & 0xFFFF_FFFF
            more = bool(self._call("zmq_msg_more", message))
            self._call("zmq_msg_close", message)
            frames.append(frame)
        return frames

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            self._call("zmq_close", self._pointer)
