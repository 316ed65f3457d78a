"""Plaintexts of TLS that tshark decrypted. They wait until our reassembly has the record that each belongs to.

A record's octets on the wire, not its place, join the two. So our own reassembly decides what is in order, what comes
twice and what is missing, and no plaintext can end up in the place of another record.
"""

from collections import OrderedDict
from collections.abc import Sequence

# As many octets as may wait between tshark and the flows in a live capture (capture/live.py), the longest way.
_MOST_OCTETS = 256 << 20
_COST = 200  # octets that an entry takes beside its plaintext
_MOST_OTHERS = 1 << 16
# octets of a record in TLS 1.3 beside its contents: type and tag, without padding (RFC 8446, section 5.2)
_TLS13_OVERHEAD = 17
_ALERT, _HANDSHAKE, _APPLICATION_DATA = "21", "22", "23"


class Plaintexts:
    """Plaintexts by the octets of their records. They are bounded in octets; the oldest give way.

    One thread may add plaintexts while another takes some out.
    """

    def __init__(self, most_octets: int = _MOST_OCTETS) -> None:
        """Start with nothing."""
        self._plaintexts: OrderedDict[bytes, bytes] = OrderedDict()
        self.octets = 0  # what is kept, with the cost of each entry
        self._most_octets = most_octets
        self._others: OrderedDict[tuple[bytes, int], int] = OrderedDict()

    @property
    def count(self) -> int:
        """How many plaintexts are kept."""
        return len(self._plaintexts)

    def put(
        self,
        key: bytes,
        types: Sequence[str],
        outer_types: Sequence[str],
        lengths: Sequence[str],
        records: Sequence[str],
        plaintexts: Sequence[str],
    ) -> None:
        """Take the records that a packet of the direction ``key`` completed, as tshark names them, all in their order.

        - ``types``: the types of the records whose type tshark knows;
        - ``outer_types``: the types on the wire of the records whose type TLS 1.3 hides;
        - ``lengths``: of all records;
        - ``records``: application data, and records that tshark could not decrypt, in hexadecimal;
        - ``plaintexts``: the decrypted records, in hexadecimal.
        """
        # TLS 1.3 hides the type of a record. So a record that was not decrypted has none.
        if outer_types and types.count(_APPLICATION_DATA) == len(records):
            self._put_others(key, types, outer_types, lengths)
            for record in records:
                if len(record) <= 2 * _TLS13_OVERHEAD:
                    self._put(_digest(bytes.fromhex(record)), b"")
            records = [record for record in records if len(record) > 2 * _TLS13_OVERHEAD]
        # If only some records were decrypted, nothing tells which.
        if len(records) == len(plaintexts):
            for record, plaintext in zip(records, plaintexts, strict=True):
                self._put(_digest(bytes.fromhex(record)), bytes.fromhex(plaintext))

    def _put(self, digest: bytes, plaintext: bytes) -> None:
        if digest in self._plaintexts:
            return
        self._plaintexts[digest] = plaintext
        self.octets += len(plaintext) + _COST
        while self.octets > self._most_octets:
            try:
                _, old = self._plaintexts.popitem(last=False)
            except KeyError:  # taken meanwhile
                return
            self.octets -= len(old) + _COST

    def _put_others(self, key: bytes, types: Sequence[str], outer_types: Sequence[str], lengths: Sequence[str]) -> None:
        """Remember the records of TLS 1.3 that look like application data, but are not: handshake and alerts."""
        if len(types) != len(lengths):
            return
        clear = sum(kind in (_HANDSHAKE, _ALERT, _APPLICATION_DATA) for kind in types) - len(outer_types)
        for kind, length in zip(types, lengths, strict=True):
            if kind in (_HANDSHAKE, _ALERT):
                if clear > 0:  # these come first: the hellos, which nothing hides
                    clear -= 1
                    continue
                name = key, int(length)
                self._others[name] = self._others.pop(name, 0) + 1
                if len(self._others) > _MOST_OTHERS:
                    self._others.popitem(last=False)

    def take(self, key: bytes, record: bytes) -> bytes | None:
        """The plaintext of a record of the direction ``key``, b"" if it has none for the application.

        None if the record was not decrypted.
        """
        plaintext = self._plaintexts.pop(_digest(record), None)
        if plaintext is not None:
            self.octets -= len(plaintext) + _COST
            return plaintext
        name = key, len(record)
        left = self._others.get(name, 0)
        if not left:
            return None
        if left > 1:
            self._others[name] = left - 1
        else:
            self._others.pop(name, None)
        return b""


def _digest(record: bytes) -> bytes:
    from hashlib import blake2b  # which loads OpenSSL; few captures have anything to compare

    return blake2b(record, digest_size=16).digest()
