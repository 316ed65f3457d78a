"""Octets of a capture file as they come, whatever they come from."""

from collections.abc import Iterator

from zmtpsniff.capture.source import Fault, SourceState

CUT_SHORT = "capture-truncated"
CORRUPT = "capture-corrupt"


class DamageError(Exception):
    """The next chunk of a chain is not usable. All chunks before are good."""

    def __init__(self, code: str, detail: str) -> None:
        """``code`` is a problem code, ``detail`` says what is wrong, without the name of the file."""
        super().__init__(detail)
        self.code = code


class FileOctets:
    """The octets of one capture file, already decompressed, in chunks of whatever size they arrive in.

    ``damage`` says why the octets ended, if not because the file did.
    """

    def __init__(self, name: str, chunks: Iterator[bytes]) -> None:
        """Read from ``chunks``; ``name`` is what to call the file in messages."""
        self.name = name
        self.damage: DamageError | None = None
        self._chunks = chunks
        self._delivered = 0

    def extend(self, rest: bytes, need: int) -> bytes:
        """Return ``rest`` and the octets that follow it: at least ``need`` octets, fewer only if the stream has ended.

        It reads only until it has ``need`` octets, so octets that are there do not wait for others.
        """
        parts = [rest]
        have = len(rest)
        while have < need:
            try:
                chunk = next(self._chunks)
            except StopIteration:
                break
            except DamageError as damage:
                self.damage = damage
                break
            parts.append(chunk)
            have += len(chunk)
            self._delivered += len(chunk)
        return b"".join(parts)

    def offset(self, data: bytes, position: int) -> int:
        """The offset in the file of ``data[position]``, where ``data`` is what extend() returned last."""
        return self._delivered - len(data) + position

    def corrupt(self, source: SourceState, data: bytes, position: int, what: str) -> None:
        """Report to ``source`` that the file cannot be read on from ``data[position]``, and why."""
        detail = f"{self.name}: {what} at offset {self.offset(data, position)}; the rest of the file is not read"
        source.faults.append(Fault(CORRUPT, detail))

    def ended(self, source: SourceState, data: bytes, position: int, what: str) -> None:
        """Report to ``source`` what is wrong with the end of the stream, if anything; ``what`` was not whole."""
        if self.damage is not None:
            detail = f"{self.name}: {self.damage} at offset {self.offset(data, len(data))} of what it holds"
            source.faults.append(Fault(self.damage.code, detail))
        elif position < len(data):
            detail = f"{self.name}: cut short in the {what} at offset {self.offset(data, position)}"
            source.faults.append(Fault(CUT_SHORT, detail))
