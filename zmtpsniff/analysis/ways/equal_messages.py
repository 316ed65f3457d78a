"""Messages with the same octets as those that the sender's host has taken: one program may have passed them on.

A proxy of publications may have two networks, so that its XSUB takes them at another address than that of its XPUB.
Many publications show it: of those that the XPUB sends, this XSUB was the last to take the same octets. Of a chain of
proxies, an earlier one was the last for those few whose last leg is missing.
"""

from collections.abc import Sequence

import msgspec

from zmtpsniff.analysis.ledger import Ledger
from zmtpsniff.analysis.ways.envelopes import HeldMessages
from zmtpsniff.analysis.ways.hops import Hop
from zmtpsniff.analysis.ways.programs import Programs

_PROVEN = 16  # so many publications show that two addresses are of one proxy
_SHARE = 10  # and one in so many came that way
_SOCKETS = 64  # that one proxy may take publications with


class _Source(msgspec.Struct, eq=False):
    """Where a proxy seems to take its publications."""

    taken: dict[str, int] = {}  # by socket of an XSUB: publications that were taken there last
    total: int = 0
    proven: set[str] = set()  # the sockets that are certain

    def count(self, socket: str) -> None:
        """A publication was taken last with this socket; empty if the proxy made it itself."""
        if not socket or (socket not in self.taken and len(self.taken) >= _SOCKETS):
            self.taken, self.total = {}, 0
            return
        self.total += 1
        count = self.taken[socket] = self.taken.get(socket, 0) + 1
        if count > _PROVEN and count * _SHARE >= self.total:
            self.proven.add(socket)


class EqualMessages:
    """Finds the messages that a host took and sends on as they are: a proxy of publications or jobs, a TCP proxy."""

    def __init__(self, held: HeldMessages, programs: Programs) -> None:
        """``held`` has the messages that hosts may pass on, ``programs`` knows which sockets belong together."""
        self._held = held
        self._programs = programs
        self._sources: Ledger[str, _Source] = Ledger(_Source)  # by the socket of an XPUB
        self._takers: Ledger[str, None] = Ledger()  # hosts that take publications

    def before(self, hop: Hop) -> list[Hop]:
        """The messages with the same octets that the sender's host took, and may pass on as ``hop``; oldest first."""
        taken = [one for one in self._held.equal_at(hop.stream.src_host, hop) if hop.may_come_of(one)]
        if taken or hop.stream.src_kind != "XPUB" or hop.stream.src_host in self._takers:
            return taken
        return self._taken_elsewhere(hop)

    def add_taker(self, publication: Hop) -> None:
        """A host takes a publication: its XPUB passes on what comes there, and nothing from elsewhere."""
        self._takers.at(publication.stream.dst_host)

    def _taken_elsewhere(self, hop: Hop) -> list[Hop]:
        """The publications with the same octets that the XSUB of a proxy took at another address."""
        frames = list(hop.frames)
        taken = [
            one
            for one in self._held.latest(frames[-1], hop.flow)
            if one.stream.dst_kind == "XSUB" and list(one.frames) == frames and hop.may_come_of(one)
        ]
        source = self._sources.at(hop.src)
        source.count(taken[0].dst if taken else "")
        return [one for one in reversed(taken) if one.dst in source.proven]

    def original(self, options: Sequence[Hop], hop: Hop) -> tuple[Hop, bool]:
        """The one of several equal messages that a program passes on here, and whether that is certain.

        It is the oldest, if nothing shows which. On one host, where all programs may have one address, it may be what
        another proxy took, if the capture lacks the leg between the two.
        """
        is_only = len(options) == 1
        before = options[0] if is_only else self._programs.likely(options, hop)
        if is_only and not hop.stream.is_local:
            return before, self._proves(before, hop)
        if self._programs.are_two(before, hop):
            hop.stream.is_proven = False  # by this one
            return before, False
        is_as_before = hop.stream.note_source(before)
        return before, is_only and is_as_before and self._proves(before, hop)

    def _proves(self, before: Hop, hop: Hop) -> bool:
        """Whether equal octets prove that one program took ``before``, and sent it on as ``hop``.

        They do if both are of one host or process. Programs that talk to each other on one host share its address:
        there, two publishers that say the same are no proxy, unless one socket is of a type that proxies have. Octets
        that the capture cuts off may differ, and all empty messages are alike. If the host has a request with the same
        octets, the message may come of that.
        """
        is_one_program = hop.stream.knows_sender and before.stream.knows_receiver
        if (
            hop.stream.is_local
            and not is_one_program
            and hop.stream.src_kind != "XPUB"
            and before.stream.dst_kind != "XSUB"
        ):
            return False
        if not any(hop.frames) or not all(type(frame) is bytes for frame in hop.frames):
            return False
        return not any(one.stream.sends == "request" for one in self._held.equal_at(hop.stream.src_host, hop))

    def readdressed(self, hop: Hop) -> Hop | None:
        """The reply that a scheduler passes back to the asker with another first frame; None if it may be several.

        The worker put the name of the client there, and the scheduler the name of the worker.
        """
        rest = list(hop.frames[1:])
        if not rest:
            return None
        alike = [
            one
            for one in self._held.on_other_connections(rest[-1], hop.flow)
            if one.reply and hop.may_come_of(one) and list(one.frames[1:]) == rest
        ]
        (reply,) = alike if len(alike) == 1 else (None,)
        if reply is None or reply.way.first.answered or reply.way.first.flow != hop.flow:
            return None
        return reply
