"""How many socket types are inferred where captures begin too late: right, wrong, or nothing said.

Right is a type that is the true one. Where the true one is only the lookalike, this is counted apart, and a type is
wrong if it is neither.

    python benchmarks/inference.py [-v] [FOLDER...]

Each capture of the folders is read whole first: that says which sockets its connections have. Then it is read without
the beginnings of its connections, as a sniffer that starts late sees them: without each connection's packets up to its
handshake, and without the first half of its packets. The result is compared with what its sockets
announced. A connection is counted if enough is left of it: ``--least`` messages. XPUB and XSUB are counted as PUB and
SUB, which say the same to their peers. A connection is paired if its replies name their requests, which needs no types.

The exit status is 1 if anything is wrong.
"""

import argparse
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from dissectors.events import AnyEvent, Command, Connection, Greeting, Message
from zmtpsniff.capture.block import Block
from zmtpsniff.capture.files import open_captures
from zmtpsniff.capture.source import Fault, Interruption, Source
from zmtpsniff.engine.settings import Settings
from zmtpsniff.engine.sniffer import Sniffer
from zmtpsniff.net.addresses import addresses
from zmtpsniff.net.packets import HeaderDecoder

PROJECT = Path(__file__).parent.parent
PAIRS = ("REQ-REP", "PUB-SUB", "PUSH-PULL")
CUTS = ("handshake", "half")


class Late:
    """A capture without some of its packets."""

    def __init__(self, source: Source, lacks: set[int]) -> None:
        """``lacks`` are the numbers of packets that it has not, from 1."""
        self.dropped = 0
        self.faults: list[Fault] = []
        self.interruptions: list[Interruption] = []
        self.comments: list[str] = []
        self.key_lines: list[str] = []
        self._source = source
        self._lacks = lacks

    def batches(self) -> Iterator[Block]:
        """All packets but those."""
        number = 0
        for batch in self._source.batches():
            kept = [packet for place, packet in enumerate(batch, number + 1) if place not in self._lacks]
            number += len(batch)
            yield Block.of(kept)


class Truth(NamedTuple):
    """The truth of a connection."""

    types: dict[str, str]  # by address
    handshake_packet: int
    packets: list[int]  # numbers


def truths(path: Path) -> dict[frozenset[str], Truth]:
    """The connections of a capture by their two addresses, of those whose both sides announce what they are."""
    handshakes: dict[int, int] = {}
    connections: list[Connection] = []
    for event in _events(open_captures([str(path)])):
        if isinstance(event, Connection):
            connections.append(event)
        elif isinstance(event, Greeting | Command):
            is_handshake = isinstance(event, Greeting) or event.socket_type is not None
            if is_handshake:
                handshakes[event.flow] = max(handshakes.get(event.flow, 0), event.packet)
    numbers: dict[frozenset[str], list[int]] = {}
    for key, number in _segments(path):
        numbers.setdefault(key, []).append(number)
    found: dict[frozenset[str], Truth] = {}
    uses = Counter(frozenset({one.client.address, one.server.address}) for one in connections)
    for one in connections:
        ends = frozenset({one.client.address, one.server.address})
        types = {peer.address: peer.socket_type for peer in (one.client, one.server) if not peer.inferred}
        if one.transport != "tcp" or one.handshake != "complete" or None in types.values() or len(types) < 2:
            continue
        if uses[ends] > 1 or ends not in numbers:
            continue  # a port that is used twice
        found[ends] = Truth({key: str(kind) for key, kind in types.items()}, handshakes[one.flow], numbers[ends])
    return found


def _segments(path: Path) -> Iterator[tuple[frozenset[str], int]]:
    """The two addresses of each TCP packet, and its number."""
    decoder = HeaderDecoder()
    first = 1
    for batch in open_captures([str(path)]).batches():
        for segment in decoder.segments(batch, first):
            yield frozenset(address.text for address in addresses(segment[2])), segment[1]
        first += len(batch)


def _events(source: Source) -> Iterator[AnyEvent]:
    for batch in Sniffer(source, Settings(payload=False)).events():
        yield from batch


_SAME = {"XPUB": "PUB", "XSUB": "SUB"}


def pair_of(types: dict[str, str]) -> str:
    """The two types as one word."""
    kinds = {_SAME.get(kind, kind) for kind in types.values()}
    return next((pair for pair in PAIRS if set(pair.split("-")) == kinds), "other")


def main(arguments: list[str] | None = None) -> int:
    """Measure; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="*", type=Path, default=[PROJECT / "fixtures"])
    parser.add_argument("--least", type=int, default=8, help="messages that are left of a connection")
    parser.add_argument("-v", "--verbose", action="store_true", help="a line for what is not right")
    given = parser.parse_args(arguments)
    counts: dict[tuple[str, str], Counter[str]] = {}
    paths = sorted(path for folder in given.folders for path in folder.glob("*.pcap*"))
    for path in paths:
        try:
            known = truths(path)
        except Exception as error:  # a capture that only another engine reads
            print(f"{path.name}: {error}", file=sys.stderr)
            continue
        for cut in CUTS:
            lacks: set[int] = set()
            for truth in known.values():
                numbers = truth.packets
                end = truth.handshake_packet if cut == "handshake" else numbers[len(numbers) // 2]
                lacks.update(number for number in numbers if number <= end)
            _compare(path, cut, known, lacks, counts, given)
    for (pair, cut), count in sorted(counts.items()):
        total = count["connections"]
        right, lookalike, paired = (f"{count[name] / total:6.1%} {name}" for name in ("right", "lookalike", "paired"))
        print(f"{pair:<9} {cut:<9} {total:>4} connections: {right}, {lookalike}, {count['wrong']} wrong, {paired}")
    return 1 if any(count["wrong"] for count in counts.values()) else 0


def _result(inferred: dict[str, tuple[str, str | None]], types: dict[str, str]) -> str:
    """Whether what was inferred is right, or one of two types at least."""
    if not inferred:
        return "silent"
    true = {address: _SAME.get(types[address], types[address]) for address in inferred}
    if all(kind == true[address] for address, (kind, _) in inferred.items()):
        return "right"
    return "lookalike" if all(true[address] in kinds for address, kinds in inferred.items()) else "wrong"


def _compare(
    path: Path,
    cut: str,
    known: dict[frozenset[str], Truth],
    lacks: set[int],
    counts: dict[tuple[str, str], Counter[str]],
    given: argparse.Namespace,
) -> None:
    """Read a capture without its beginnings, and count what is told."""
    paired: set[int] = set()
    for event in _events(Late(open_captures([str(path)]), lacks)):
        if isinstance(event, Message) and event.request is not None:
            paired.add(event.flow)
        if not isinstance(event, Connection) or event.transport != "tcp":
            continue
        peers = (event.client, event.server)
        truth = known.get(frozenset(peer.address for peer in peers))
        announced = any(peer.socket_type is not None and not peer.inferred for peer in peers)
        messages = event.messages.client + event.messages.server
        if truth is None or announced or messages < given.least:
            continue
        inferred = {peer.address: (str(peer.socket_type), peer.lookalike) for peer in peers if peer.inferred}
        result = _result(inferred, truth.types)
        count = counts.setdefault((pair_of(truth.types), cut), Counter())
        count[result] += 1
        count["connections"] += 1
        count["paired"] += event.flow in paired
        if given.verbose and result != "right" and (result == "wrong" or pair_of(truth.types) != "other"):
            sent = f"{event.messages.client}/{event.messages.server}"
            print(f"{result:<7} {path.name} {cut} flow {event.flow}: {truth.types}, {inferred}, {sent} messages")


if __name__ == "__main__":
    sys.exit(main())
