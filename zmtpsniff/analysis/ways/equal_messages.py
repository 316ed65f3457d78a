"""Messages with the same octets as those that the sender's host has taken: one program may have passed them on."""

from zmtpsniff.analysis.ways.envelopes import HeldMessages
from zmtpsniff.analysis.ways.hops import Hop


class EqualMessages:
    """Finds the messages that a host took and sends on as they are: a proxy of publications or jobs, a TCP proxy."""

    def __init__(self, held: HeldMessages) -> None:
        """``held`` has the messages that hosts may pass on."""
        self._held = held

    def before(self, hop: Hop) -> list[Hop]:
        """The messages with the same octets that the sender's host took, and may pass on as ``hop``; oldest first."""
        return [one for one in self._held.equal_at(hop.stream.src_host, hop) if hop.may_come_of(one)]

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
