"""Keys of CURVE connections as programs make them, from now on."""

from dissectors.zmtp.curve_keys import Key
from zmtpsniff.host.agreements import Agreements
from zmtpsniff.host.libraries import Libraries
from zmtpsniff.host.uprobes import Uprobes

_FOLLOW_SECONDS = 0.02  # a program needs longer from loading a library to its first handshake


class KeyWatch:
    """Probes on every library in use that makes keys of CURVE, and their reports."""

    def __init__(self, *, long_term: bool = False) -> None:
        """Place the probes; ``long_term`` as in Agreements. Raises NoUprobesError."""
        self._uprobes = Uprobes()
        try:
            self._libraries = Libraries(self._uprobes)
        except BaseException:
            self._uprobes.close()
            raise
        self._agreements = Agreements(long_term=long_term)
        self._lost = 0
        self.seen_ns = 0  # up to when calls have been read, since the Unix epoch

    def read(self, seconds: float = _FOLLOW_SECONDS) -> list[Key]:
        """The new keys. Waits for some, up to so many seconds. Keep calling it."""
        keys = self._agreements.keys(self._uprobes.read(seconds))
        self.seen_ns = self._uprobes.seen_ns
        self._libraries.follow()
        return keys

    def faults(self) -> list[str]:
        """What went wrong since the last time, a line each."""
        faults, self._libraries.faults = self._libraries.faults, []
        if self._uprobes.lost > self._lost:
            faults.append(f"{self._uprobes.lost - self._lost} calls came too fast to be read: their keys are missing")
            self._lost = self._uprobes.lost
        return faults

    def close(self) -> None:
        """Take the probes away."""
        self._uprobes.close()
