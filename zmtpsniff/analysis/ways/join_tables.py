"""The messages that may be joined to later ones: all tables by which these are found."""

from zmtpsniff.analysis.dossier import Dossiers
from zmtpsniff.analysis.ways.correlation import Correlation
from zmtpsniff.analysis.ways.endings import Endings
from zmtpsniff.analysis.ways.envelopes import Envelopes, HeldMessages
from zmtpsniff.analysis.ways.equal_messages import EqualMessages
from zmtpsniff.analysis.ways.hops import Hop
from zmtpsniff.analysis.ways.lanes import Lanes
from zmtpsniff.analysis.ways.programs import Programs
from zmtpsniff.analysis.ways.pushed_replies import PushedReplies
from zmtpsniff.analysis.ways.way_connections import WayConnections


class JoinTables:
    """The tables that all joins share, and that forget a message together."""

    def __init__(self) -> None:
        """Start without any message."""
        self.dossiers = Dossiers()
        self.programs = Programs()
        self.endings = Endings(self.programs)
        self.held = HeldMessages()
        self.envelopes = Envelopes(self.held)
        self.equal = EqualMessages(self.held, self.programs)
        self.correlation = Correlation()
        self.lanes = Lanes(self.equal, self.held)
        self.pushed = PushedReplies()
        self.connections = WayConnections(self.dossiers, self.envelopes.ids, self.lanes, self.pushed)
        self.answerable: dict[tuple[int, int, int], Hop] = {}
        """By flow, packet and part: messages that may be answered on their connection."""

    def let_go(self, hop: Hop) -> None:
        """Nothing can be joined to a message any more."""
        if hop.held_as is not None:
            self.held.remove(hop)
        if not hop.answered:
            hop.stream.unanswered.pop(hop, None)
        self.answerable.pop((hop.flow, hop.packet, hop.part), None)
        hop.frames = ()

    def forget_tokens(self, hop: Hop) -> None:
        """Nothing is joined to a message by a number or id any more."""
        if hop.tokens_:  # only tokens that were looked up stand in tables
            self.correlation.forget(hop)
            self.lanes.forget(hop)
            self.pushed.forget(hop)
