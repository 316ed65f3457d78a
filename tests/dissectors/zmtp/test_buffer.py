"""Octets in any pieces, and long bodies, without anybody who knows what they mean."""

from itertools import cycle

from hypothesis import given
from hypothesis import strategies as st

from dissectors.zmtp.buffer import Buffer


class Lines:
    """Reads as many octets as a length octet says, and waits for the rest."""

    def __init__(self, buffer: Buffer) -> None:
        self.buffer = buffer
        self.found: list[bytes] = []
        self.calls = 0

    def read(self, data: bytes, position: int) -> int:
        self.calls += 1
        stop = position + 1 + data[position]
        if stop > len(data):
            self.buffer.need = stop - position
            return position
        self.found.append(data[position + 1 : stop])
        return stop


def fed(octets: bytes, sizes: list[int]) -> tuple[Lines, Buffer]:
    buffer = Buffer()
    lines = Lines(buffer)
    begin = 0
    for size in cycle(sizes):
        if begin >= len(octets):
            break
        whole = buffer.add(octets[begin : begin + size])
        begin += size
        if whole is not None:
            buffer.run(lines.read, whole)
    return lines, buffer


@given(st.lists(st.binary(max_size=60), max_size=30), st.lists(st.integers(1, 50), min_size=1, max_size=8))
def test_any_cutting_gives_the_same(bodies: list[bytes], sizes: list[int]) -> None:
    octets = b"".join(bytes([len(body)]) + body for body in bodies)
    lines, buffer = fed(octets + b"\x05abc", sizes)
    assert lines.found == bodies
    assert buffer.content == b"\x05abc"
    assert buffer.held == 4


def test_nobody_is_called_before_there_is_enough() -> None:
    lines, _ = fed(b"\xc8" + bytes(200), [1])
    assert lines.found == [bytes(200)]
    assert lines.calls == 2  # at the length, and at the end


def test_while_octets_are_read_none_wait() -> None:
    buffer = Buffer()
    seen = []

    def read(data: bytes, position: int) -> int:
        seen.append((buffer.held, buffer.content))
        return position + 1 if position < 2 else position

    buffer.run(read, b"abcd")
    assert seen == [(0, b"")] * 3
    assert buffer.content == b"cd"
    buffer.clear()
    assert buffer.add(b"x") == b"x"
