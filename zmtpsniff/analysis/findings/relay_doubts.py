"""Doubts: whether the capture itself explains what a program seems to do with messages.

Theory
------

Ways join a message with the one as which it goes on. Where a capture lacks packets, or has them in another order, a
join may be missing, or be that of another message. Then a program seems to lose a message, or to hold it for long. So
each claim is weighed before it is made. A claim in doubt is a note, and says why.

The capture explains a *loss* in three ways, the first that holds:

1. *Disorder*: packets are out of order. Far disorder, later than ways look for messages, explains more than little:

   - of messages that are not passed on, little disorder explains a few, far disorder all, unless the program stopped;
   - likewise of publications, of which little disorder explains all if the proxy took them at one of several addresses;
   - of requests that are not answered, little disorder explains a few if services ask others, far disorder all;
   - of a worker that closed its connection, which is seen itself, only far disorder explains a few.

2. *A gap*: octets of the host are missing, and what became of a few messages may be among these.
3. *Shared addresses*: the capture begins in the middle, and addresses do not tell programs apart there. Then a few
   messages may be those of another program.

The last two explain only where messages went, or why another program answered them: that an asker waits in vain, or
that a connection is closed, is seen itself.

It explains a *delay* if octets are missing in the time of each slow message, so that the program may have worked on
others; if others came so late that they took its place; or if the disorder is hardly shorter than the delay.
"""

from collections.abc import Sequence

from dissectors.address import host_of
from zmtpsniff.analysis.findings.finding import Claim
from zmtpsniff.analysis.findings.relay_hosts import RelayHosts
from zmtpsniff.analysis.findings.relay_places import Loss, RelayPlace, SlowPassage
from zmtpsniff.analysis.findings.slow_replies import LEAST_SLOW
from zmtpsniff.analysis.ways.ways import Ways

_DISORDER = "; but the packets are out of order, so zmtpsniff may take one message for another"
_SHARED = "; but addresses do not tell programs apart there, and the capture begins in the middle"
_GAP = "; octets are missing there, and what it did with them may be among these"
_HOLE = "; octets are missing there, so it may have worked on others meanwhile"
_DELAY = "; packets are missing there, so that some of its messages were known late"
_NO_BLAME = frozenset({"out-of-sight", "reply-to-nobody"})  # fates that are notes in any case


class RelayDoubts:
    """Whether the capture explains a claim about a place."""

    def __init__(self, ways: Ways, hosts: RelayHosts) -> None:
        """``ways`` knows what the capture lacks, and its order; ``hosts`` knows who may pass something on."""
        self._endings = ways.endings
        self._programs = ways.programs
        self._hosts = hosts
        self.has_questions = False
        """Services ask others: such a question may overtake the request that it is for."""

    def weigh_loss(self, claim: Claim, loss: Loss) -> Claim:
        """The claim that a place lost messages; as a note that says why if it is in doubt."""
        if loss.fate in _NO_BLAME:
            return claim
        is_few = claim.occurrences.count < LEAST_SLOW
        if self._may_be_disorder(claim, loss, is_few=is_few):
            return _in_doubt(claim, _DISORDER)
        if is_few and (claim.code == "not-passed-on" or loss.fate == "answered-for"):
            if self._endings.has_gap(loss.place.at):
                return _in_doubt(claim, _GAP)
            if self._may_be_others(loss):
                return _in_doubt(claim, _SHARED)
        return claim

    def _may_be_disorder(self, claim: Claim, loss: Loss, *, is_few: bool) -> bool:
        """Whether packets that are out of order explain a loss."""
        endings = self._endings
        if claim.code == "worker-closed":
            return endings.may_mistake and is_few
        if claim.code == "request-unanswered":
            return endings.may_mistake or (endings.is_disordered and is_few and self.has_questions)
        if loss.kind != "publication":
            return not loss.has_stopped and (endings.may_mistake or (endings.is_disordered and is_few))
        # Equal octets alone tell at which of several addresses a proxy took a publication.
        may_be_elsewhere = len(self._programs.hosts(loss.place.at)) > 1
        return endings.may_mistake or (endings.is_disordered and (may_be_elsewhere or is_few))

    def _may_be_others(self, loss: Loss) -> bool:
        """Whether some messages may be those of other programs, since little tells them apart in a late capture.

        Askers and services have one address, as behind NAT, or the program has several.
        """
        place = loss.place
        if not self._endings.began_before(place.at):
            return False
        asked = {host_of(peer) for _, peer in place.asks} or {host_of(place.upstream)}
        own = {host_of(one) for one in self._programs[place.at].sockets}
        return len(own) > 1 or not asked.isdisjoint(loss.waits)

    def weigh_delay(self, claim: Claim, place: RelayPlace, slowest: Sequence[SlowPassage]) -> Claim:
        """The claim that a place had its ``slowest`` messages for long; as a note that says why if it is in doubt."""
        endings = self._endings
        clear = [one for one in slowest if not endings.has_hole(place.at, one.time_ns, one.until_ns)]
        if not clear:
            claim = _in_doubt(claim, _HOLE)
        elif all(endings.has_delay(place.at, one.time_ns, one.until_ns) for one in clear):
            claim = _in_doubt(claim, _DELAY)
        if self._hosts.may_pass_on(place.at) and not any(self._is_beyond_disorder(one) for one in slowest):
            claim = _in_doubt(claim, _DISORDER)
        return claim

    def _is_beyond_disorder(self, slow: SlowPassage) -> bool:
        """Whether packets that are out of order do not explain that a place had a message for so long.

        If one message may be taken for another one, the time may be any.
        """
        endings = self._endings
        is_sure = slow.is_certain and not (endings.may_mistake or self.has_questions)
        return not endings.is_disordered or (is_sure and not endings.may_be_disorder(slow.own_ns))


def _in_doubt(claim: Claim, why: str) -> Claim:
    return claim._replace(severity="note", known=f"{claim.known}{why}")
