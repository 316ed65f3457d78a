"""Messages with the same octets as those that the sender's host has taken: one program may have passed them on."""

from dissectors.address import is_loopback
from zmtpsniff.analysis.ways.envelopes import HeldMessages
from zmtpsniff.analysis.ways.hops import Hop


class EqualMessages:
    """Messages of publishers, pushers and schedulers, by the messages that hosts hold."""

    def __init__(self, held: HeldMessages) -> None:
        """``held`` has what hosts may pass on."""
        self._held = held

    def before(self, hop: Hop) -> list[Hop]:
        """The messages with the same octets that the sender's host has taken, and may pass on to this receiver."""
        frames, host = hop.frames, hop.stream.src_host
        return [
            one
            for one in self._held.on_other_connections(frames[-1], hop.flow)
            if one.stream.dst_host == host and hop.may_come_of(one) and list(one.frames) == list(frames)
        ]

    def proves(self, before: Hop, hop: Hop) -> bool:
        """Equal octets prove that one program took and sent them.

        They do on a host, or where the process is known. They do not on the loopback interface, where all programs have
        one address: two publishers that say the same are no proxy there, unless one of the sockets is of a type that
        proxies have. Octets that are cut off may differ, and nothing distinguishes those of an empty message. A request
        with the same octets may be what the message comes of.
        """
        is_one_program = hop.stream.knows_sender and before.stream.knows_receiver
        if (
            is_loopback(hop.src)
            and not is_one_program
            and hop.stream.src_kind != "XPUB"
            and before.stream.dst_kind != "XSUB"
        ):
            return False
        if not any(hop.frames) or not all(type(frame) is bytes for frame in hop.frames):
            return False
        return not any(
            one.stream.sends == "request" and one.stream.dst_host == hop.stream.src_host
            for one in self._held.on_other_connections(hop.frames[-1], hop.flow)
        )

    def readdressed(self, hop: Hop) -> Hop | None:
        """The reply that a broker passes back to who asked, but for its first frame; None if it may be several.

        So do schedulers that put the name of the worker where that of the client stood.
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
