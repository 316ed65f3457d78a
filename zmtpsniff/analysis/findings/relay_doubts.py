"""Doubts: whether the capture itself explains what a program seems to do with messages.

Theory
------

Ways join a message with the one as which it goes on. Where a capture lacks packets, or has them in another order, a
join may be missing, or be that of another message. Then a program seems to lose a message, or to hold it for long. So
each claim is weighed before it is made. A claim in doubt is a note, and says why.

The capture explains a *loss* in three ways, the first that holds:

1. *Disorder*: packets are out of order. If they may be later than ways look for them, any message may be mistaken for
   another one; else only a few are, or those of which nothing but equal octets tells where a proxy took them. If
   something else shows the loss, such as a connection that was closed, far disorder explains a few messages only.
2. *A gap*: octets of the host are missing, and what became of a few messages may be among these.
3. *Shared addresses*: the capture begins in the middle, and addresses do not tell programs apart there. Then a few
   messages may be those of another program.

The last two do not explain that a program closed a connection and left messages there unanswered: no more can come.

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


class Doubts:
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
        if claim.severity == "note":
            return claim
        is_few = claim.occurrences.count < LEAST_SLOW
        if self._may_be_disorder(claim, loss, is_few=is_few):
            return _in_doubt(claim, _DISORDER)
        if not is_few or loss.fate == "closed":
            return claim
        if self._endings.has_gap(loss.place.at):
            return _in_doubt(claim, _GAP)
        return _in_doubt(claim, _SHARED) if self._may_be_others(loss) else claim

    def _may_be_disorder(self, claim: Claim, loss: Loss, *, is_few: bool) -> bool:
        """Whether packets that are out of order explain a loss."""
        endings, is_publication = self._endings, loss.kind == "publication"
        if claim.code == "worker-closed" or (loss.has_stopped and not is_publication):
            return endings.may_mistake and is_few
        # Of a publication, equal octets alone tell at which of several addresses a proxy took it.
        may_be_elsewhere = is_publication and len(self._programs.hosts(loss.place.at)) > 1
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
