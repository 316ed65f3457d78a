"""Messages with the same octets as those that the sender's host has taken: one program may have passed them on.

A proxy of publications may have two networks, so that its XSUB takes them at another address than that of its XPUB. It
is known by many publications in a row that the XPUB sends, and that an XSUB of the same host took the latest.
"""

import msgspec

from zmtpsniff.analysis.ledger import Ledger
from zmtpsniff.analysis.ways.envelopes import HeldMessages
from zmtpsniff.analysis.ways.hops import Hop

_PROVEN = 16  # so many publications in a row show that two addresses are of one proxy


class _Source(msgspec.Struct, eq=False):
    """Where a proxy seems to take its publications."""

    host: str = ""
    count: int = 0  # publications in a row that were taken there last
    proven: str = ""  # the host where many in a row were taken


class EqualMessages:
    """Finds the messages that a host took and sends on as they are: a proxy of publications or jobs, a TCP proxy."""

    def __init__(self, held: HeldMessages) -> None:
        """``held`` has the messages that hosts may pass on."""
        self._held = held
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
        host = taken[0].stream.dst_host if taken else ""
        if host != source.host:
            source.host, source.count = host, 0
        source.count += 1
        if host and source.count > _PROVEN:
            source.proven = host
        return [one for one in reversed(taken) if one.stream.dst_host == source.proven]

    def proves(self, before: Hop, hop: Hop) -> bool:
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
