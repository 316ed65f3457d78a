"""Those who only hear flows: a dissection with all that comes out of each direction, in order, and a witness."""

from zmtpsniff.net.witness import Attempt, Pause, Stall
from zmtpsniff.words.set_clocks import ForwardJumps


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


class WitnessLog:
    """A witness that remembers what flows tell it."""

    def __init__(self) -> None:
        self.jumps = ForwardJumps()
        self.told: list[Attempt | Stall | Pause] = []
        self.attempt = self.stall = self.pause = self.told.append

    @property
    def attempts(self) -> list[Attempt]:
        return [one for one in self.told if isinstance(one, Attempt)]
