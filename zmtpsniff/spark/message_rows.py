"""Messages that wait to become rows, a column at a time.

Messages in columns stay columns, with no step for each row outside the native core.
"""

from array import array
from collections import defaultdict
from collections.abc import Iterable, Mapping
from hashlib import sha256
from itertools import count
from operator import add
from struct import Struct
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dissectors.batches import MessageBatch
from dissectors.columns import (
    COUNT,
    ENVELOPE,
    FIRST,
    LARGE,
    LATENCY,
    MESSAGE,
    PAIRED,
    PAIRED_BY,
    REQUEST,
    REQUEST_PART,
    SMALL,
    VIA,
    VIA_FLOW,
    VIA_PART,
)
from dissectors.events import (
    Message,
    Octets,
    Place,
    text,
)
from dissectors.zmtp.sockets import WITH_TOPICS
from zmtpsniff.native import core, reference
from zmtpsniff.spark.connection_ids import ConnectionId
from zmtpsniff.spark.packet_names import NOWHERE
from zmtpsniff.spark.row_columns import (
    MOST,
    OCTETS_LISTS,
    SCHEMAS,
    OctetsBuilder,
    RowOrigin,
    address_columns,
    integer_column,
    lengths_only,
    packet_columns,
    repeated_column,
    sizes_of,
    sums_of,
    text_column,
    time_columns,
)

_ENVELOPE, _PLACE = (SCHEMAS["messages"].field(name).type for name in ("envelope", "forwards"))
_NO_PLACE = Place(0, 0, 0)
_HASH_OCTETS = 16
_RECORD = Struct("=20xIiIII16xqqq")  # of a MESSAGE, from the part of its request on, but for offset and seen
_ALONE = bytes(MESSAGE.size)  # of a message that has to do with no other
functions = core or reference
"""The functions that make columns of batches."""
# File, connection, src, dst, type, inferred, lookalike, incomplete, encrypted.
_Kind = tuple[int, ConnectionId, str, str, str | None, bool, str | None, bool, bool]


class BatchOrigin(NamedTuple):
    """Where the packets of batches of messages are."""

    file: int  # its number in the series
    numbers: bytes  # of the packets in the file: 8 octets for each row
    base: int | None  # so much more than in its row, each record begins in the file; None: there are no records
    span_ns: int  # from the first packet to the last one


class Messages:
    """Messages that wait to become rows, a column at a time."""

    def __init__(self, most: int) -> None:
        """Begin without messages; at most ``most`` octets of each frame are kept, of 0 the lengths alone."""
        self.most = most
        self.times = array("q")
        self.packets = array("q")
        self.offsets = array("q")
        self.parts = array("i")
        self.codes = array("i")  # of what a message shares with many others: its number in `kinds`
        self.kinds: defaultdict[_Kind, int] = defaultdict(count().__next__)
        self.counts = array("i", [0])  # of frames; the first is none, so that sums are where lists begin
        self.frames = OctetsBuilder(most)
        self.hashes: dict[int, bytes] = {}  # of bodies that are cut, by the numbers of messages
        self.relations = Relations()

    def take(self, messages: Iterable[Message], origin: RowOrigin) -> None:
        """Take messages as they are."""
        packet = NOWHERE
        number = 0
        for message in messages:
            if message.packet != number:
                number = message.packet
                packet = origin.packets.name(number)
            self.times.append(max(min(message.time_ns, MOST), -MOST))
            self.packets.append(packet.number)
            self.offsets.append(packet.offset)
            kind = (
                packet.file, origin.conn_ids[message.flow], message.src, message.dst, message.socket_type,
                message.inferred, message.lookalike, message.incomplete, message.encrypted,
            )  # fmt: skip
            self.codes.append(self.kinds[kind])
            self.parts.append(message.part)
            self.counts.append(len(message.frames))
            self.frames.extend(message.frames)
            body = message.frames[-1]
            if type(body) is not bytes or len(body) > self.most:
                self._hash(message)
            self.relations.take(message)

    def take_batch(self, batch: MessageBatch, origin: BatchOrigin, conn_ids: Mapping[int, ConnectionId]) -> None:
        """Take messages in columns."""
        codes = [
            self.kinds[origin.file, conn_ids[one.flow], one.src, one.dst, one.socket_type, False, None, False, False]
            if one.flow
            else 0
            for one in batch.senders
        ]
        self.relations.take_batch(batch)
        found = functions.cells(
            batch.octets, batch.carried, batch.rows, origin.numbers, origin.base or 0, batch.columns, batch.frames,
            array("i", codes).tobytes(), self.most,
        )  # fmt: skip
        times, packets, offsets, parts, all_codes, counts, lengths, octets = found
        if self.most and len(octets) >= self.most and np.frombuffer(lengths, np.int32).max() > self.most:
            self._hash_cut(batch)
        self.times.frombytes(times)
        self.packets.frombytes(packets)
        self.offsets.frombytes(bytes(len(offsets)) if origin.base is None else offsets)
        self.parts.frombytes(parts)
        self.codes.frombytes(all_codes)
        self.counts.frombytes(counts)
        self.frames.lengths.frombytes(lengths)
        self.frames.parts.append(octets)

    def _hash(self, message: Message) -> None:
        """Hash the body of the last message if it is whole: a row keeps only its first octets."""
        body = message.frames[-1]
        if self.most and not message.incomplete:
            digest = sha256(body).digest() if type(body) is bytes else message.digest
            if digest is not None:
                self.hashes[len(self.times) - 1] = _shortened(digest)

    def _hash_cut(self, batch: MessageBatch) -> None:
        """Hash the bodies of a batch, whose messages come next, that are too long for a row."""
        base, bodies = batch.bodies()
        numbers = array("I", batch.columns)
        ends = map(add, numbers[FIRST::SMALL], numbers[COUNT::SMALL])
        for number, end in enumerate(ends, len(self.times)):
            if len(body := bodies[end - base - 1]) > self.most:
                self.hashes[number] = _shortened(sha256(body).digest())

    def columns(self, origin: RowOrigin) -> dict[str, Any]:
        """The columns of all messages."""
        files, conn_ids, senders, receivers, types, inferred, lookalikes, incomplete, encrypted = zip(
            *self.kinds, strict=True
        )
        few = {"conn_id": text_column([one.name for one in conn_ids]), "socket_type": text_column(types)}
        few |= {"inferred": pa.array(inferred), "lookalike": text_column(lookalikes)}
        few["server"] = text_column([one.server for one in conn_ids])
        few["from_client"] = pa.array([one.server != src for one, src in zip(conn_ids, senders, strict=True)])
        few |= {"incomplete": pa.array(incomplete), "encrypted": pa.array(encrypted)}
        few |= {"file": text_column([origin.files.get(file, "") for file in files])}
        few |= address_columns("src", senders) | address_columns("dst", receivers)
        codes, offsets, times = integer_column(self.codes), integer_column(self.offsets), integer_column(self.times)
        frames = pa.ListArray.from_arrays(sums_of(self.counts), self.frames.build(), OCTETS_LISTS)
        return {
            **{name: column.take(codes) for name, column in few.items()},
            **time_columns(times),
            "series": repeated_column(origin.series, len(times)),
            "packet": integer_column(self.packets),
            "offset": pc.if_else(pc.equal(offsets, 0), None, offsets),
            "part": integer_column(self.parts).cast(pa.int64()),
            "size": sizes_of(frames),
            "frames": frames if self.most else lengths_only(frames),
            "body_hash": self._hashes(len(times)),
            "topic": self._topics(frames, pa.array([kind in WITH_TOPICS for kind in types]).take(codes)),
            **self.relations.columns(origin, self.most),
        }

    def _hashes(self, count: int) -> pa.Array | None:
        """The hashes of so many messages, most of which have none; None if none has one."""
        if not self.hashes:
            return None
        places = np.full(count, -1, np.int32)
        places[list(self.hashes)] = range(len(self.hashes))
        return pa.array(self.hashes.values(), pa.binary()).take(pa.array(places, mask=places < 0))

    def _topics(self, frames: pa.Array, have: pa.Array) -> pa.Array | None:
        """The first frames of those messages that ``have`` topics, as text; None if there are none, or no bodies."""
        if not self.most or not pc.any(have).as_py():
            return None
        firsts = pc.if_else(have, frames.values.field(1).take(frames.offsets[:-1]), None)
        try:
            return firsts.cast(pa.string()).dictionary_encode()
        except pa.ArrowInvalid:
            return text_column([one if one is None else text(one) for one in firsts.to_pylist()])


def _shortened(digest: bytes) -> bytes:
    return digest[:_HASH_OCTETS]


class Relations:
    """The relations of messages to others: a record of the core for each message, of which columns are made at once."""

    def __init__(self) -> None:
        """Begin without messages."""
        self._records: list[bytes] = []  # of one message each, or of several
        self._count = 0
        self._matched: dict[int, Octets] = {}  # by the numbers of messages

    def take(self, message: Message) -> None:
        """Take a message."""
        if message.matched is not None:
            self._matched[self._count] = message.matched
        self._count += 1
        if message.request is None and message.envelope is None and message.forwards is None:
            self._records.append(_ALONE)
            return
        envelope, via = message.envelope, message.forwards or _NO_PLACE
        identities = 0 if envelope is None else (envelope.identities + 1) * (1 if envelope.delimiter else -1)
        latency_ns = -1 if message.latency_ns is None else message.latency_ns
        self._records.append(
            _RECORD.pack(
                message.request_part, identities, PAIRED.index(message.paired), via.part, via.flow,
                message.request or 0, latency_ns, via.packet,
            )
        )  # fmt: skip

    def take_batch(self, batch: MessageBatch) -> None:
        """Take messages in columns."""
        self._count += len(batch)
        self._records.append(batch.columns)

    def columns(self, origin: RowOrigin, most: int) -> dict[str, Any]:
        """The columns, of all messages."""
        octets = b"".join(self._records)
        small, large = np.frombuffer(octets, np.int32), np.frombuffer(octets, np.int64)
        requests, latencies, packets = (large[place::LARGE] for place in (REQUEST, LATENCY, VIA))
        paired, envelopes, request_parts, flows, parts = (
            small[place::SMALL] for place in (PAIRED_BY, ENVELOPE, REQUEST_PART, VIA_FLOW, VIA_PART)
        )
        found = packet_columns("request", requests, origin)
        if found:
            parts_of = pa.array(request_parts, pa.int64())
            found["request_part"] = pc.if_else(pc.is_valid(found["request"]), parts_of, None)
            found["latency_ns"] = pa.array(latencies, mask=(requests == 0) | (latencies == -1))
        if paired.any():
            found["paired"] = text_column(PAIRED).take(pa.array(paired))
        if envelopes.any():
            found["envelope"] = pa.StructArray.from_arrays(
                [pa.array(abs(envelopes) - 1, pa.int64()), pa.array(envelopes > 0)],
                fields=list(_ENVELOPE), mask=pa.array(envelopes == 0),
            )  # fmt: skip
        if packets.any():
            paths, numbers = origin.packets.columns(packets, origin.files)
            known = {flow: origin.conn_ids[flow].name for flow in set(flows.tolist()) if flow in origin.conn_ids}
            names = pa.array(map(known.get, flows.tolist()), pa.string())
            columns = [names, paths.cast(pa.string()), numbers, pa.array(parts, pa.int64())]
            found["forwards"] = pa.StructArray.from_arrays(columns, fields=list(_PLACE), mask=pa.array(packets == 0))
        if self._matched:
            values = list(map(self._matched.get, range(self._count)))
            found["matched"] = OctetsBuilder(most or MOST, values).build()
        return found
