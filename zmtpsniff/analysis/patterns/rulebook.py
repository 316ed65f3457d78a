"""The rules that a connection's socket types ask for, and what these rules share."""

from dissectors.zmtp.sockets import REQUEST_REPLY, SINGLE_FRAME, may_talk
from zmtpsniff.analysis.dossier import Dossier
from zmtpsniff.analysis.insertions import Problems
from zmtpsniff.analysis.ledger import Ledger
from zmtpsniff.analysis.patterns.conversation import NO_RULES, Room, Rules
from zmtpsniff.analysis.patterns.exchange import Exchange
from zmtpsniff.analysis.patterns.lock_step import LockStep
from zmtpsniff.analysis.patterns.proxies import Proxies
from zmtpsniff.analysis.patterns.publish_subscribe import Publisher, PublishSubscribe
from zmtpsniff.analysis.patterns.request_reply import RequestReply
from zmtpsniff.analysis.patterns.returning import ReturningPeers
from zmtpsniff.analysis.patterns.single_frame import RadioDish, SingleFrame


class Rulebook:
    """Makes the rules of connections."""

    def __init__(self, problems: Problems, room: Room, timeout_ns: int) -> None:
        """Rules report to ``problems``, remember within ``room``, and wait for a reply for ``timeout_ns``."""
        self._problems = problems
        self._room = room
        self._timeout_ns = timeout_ns
        self.forwarding = Proxies()
        self._returning = ReturningPeers()
        self.publishers: Ledger[str, Publisher] = Ledger(Publisher)

    def rules(self, dossier: Dossier) -> Rules:
        """The rules for a connection whose socket types are known. They report problems of its messages."""
        types = dossier.types
        one, other = types.values()
        if not may_talk(one, other):
            return NO_RULES
        if one in REQUEST_REPLY and other in REQUEST_REPLY:
            for address, identity in dossier.identities.items():
                if any(kind == "ROUTER" for peer, kind in types.items() if peer != address):
                    self.forwarding.learn(identity, dossier.flow)
            exchange = Exchange(dossier, self._problems, self.forwarding, self._room, self._timeout_ns, self._returning)
            keeps_step = "REQ" in types.values() and not exchange.may_inherit
            return LockStep(exchange) if keeps_step else RequestReply(exchange)
        kinds = {one, other}
        if dossier.publication is not None:
            address, _ = dossier.publication
            return PublishSubscribe(dossier, self._problems, self._room, address, self.publishers.at(address))
        if kinds == {"RADIO", "DISH"}:
            return RadioDish(dossier, self._problems, self._room)
        if kinds <= SINGLE_FRAME:
            return SingleFrame(self._problems)
        return NO_RULES
