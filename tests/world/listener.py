"""A dissection that only hears a flow: all that comes out of each direction, in order."""


class Ear:
    """Hears one direction: octets, how many of them are missing, and the codes of what is lost."""

    def __init__(self) -> None:
        self.heard: list[bytes | int | str] = []

    def feed(self, data: bytes, time_ns: int, packet: int, begin: int = 0, seen: int = 0) -> None:
        assert data
        self.heard.append(data)

    def gap(self, length: int, cut: bool, time_ns: int, packet: int) -> None:
        assert length > 0
        self.heard.append(length)

    def lose(self, code: str, detail: str, time_ns: int, packet: int) -> None:
        self.heard.append(code)

    def absent(self, time_ns: int, packet: int) -> None:
        """Nothing of this direction is captured."""

    def conflict(self, offset: int, length: int, time_ns: int, packet: int) -> None:
        raise AssertionError("no octets came again as others")


class Listener:
    """A dissection that hears both directions."""

    rejected = False

    def __init__(self) -> None:
        self.client, self.server = Ear(), Ear()

    def finish(self, end: str, start_ns: int, end_ns: int, closed_by: str | None) -> None:
        """Nothing is left to do."""

    def release(self) -> None:
        """Nothing refers back to it."""
