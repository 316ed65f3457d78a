"""Where and why a way ended, and its record.

Theory
------

A way that goes no further ends at the receiver of its last message. Three things can be true then: the capture lacks
the rest, the message was to go no further, or it was lost. Only the third is a fault. So the first two are ruled out
before anything is said, and each exclusion that is not safe counts as if it held:

1. *The message never arrived*: TCP sent it again and again, and nobody acknowledged it: ``not-taken``.
2. *The end is the goal*: the reply has come back to the first sender, or a publication has its subscriber, or a message
   may need no reply.
3. *The capture may lack the rest*: a later message came before this one, or octets of the receiver's host are missing
   that passed between the message and the time until when it may have gone on. So it is, too, if the host has
   connections from before the capture: what it sent before their first frames were found is missing, and a program that
   has passed on or answered few messages may use a connection that never was found.
4. *The receiver closed the connection* while it had the message: ``closed``.
5. *The message is a reply*: its receiver is a broker. The asker had closed (``reply-to-nobody``), or the broker did not
   pass the reply back (``reply-not-forwarded``). A request whose asker closed before it can have had a reply is
   ``reply-to-nobody``, too.
6. *The capture ended*, or was interrupted, before the receiver had had four times as long as it ever took:
   ``capture-ended``.
7. Else the receiver has the message, and did nothing with it. It is a service if it never passed anything on, or
   answered some itself: ``not-answered``. Else it is a broker: ``not-forwarded``.

A way that went on may have *dead ends*, too: questions of a service that got no reply, though the service answered.
"""

from collections.abc import Iterator

import msgspec

from dissectors.address import host_of
from zmtpsniff.analysis.interruptions import Interruptions
from zmtpsniff.analysis.ledger import Ledger
from zmtpsniff.analysis.ways.delays import Passage, passages, slowest
from zmtpsniff.analysis.ways.envelopes import EARLY_NS
from zmtpsniff.analysis.ways.hops import Hop, OpenWay
from zmtpsniff.analysis.ways.programs import Programs
from zmtpsniff.analysis.ways.way_records import Leg, Slowest, Terminus, Way, Why

_RECENT_NS = 1_000_000_000  # so short before the end of the capture, a worker may not have answered yet
_DELAY_NS = 100_000_000  # a message that comes here so late may make a program look slow
_AT_ONCE_NS = 50_000_000  # a broker passes on what it takes within this time, unless it took longer before
_LONGER = 4  # so many times the longest time that a program ever took, it may take once more
_HOSTS = 10_000  # of which the capture may lack messages
_TIMES = 1000  # of one host
_MUCH_DISORDER = 10  # so many messages that came behind later ones are no exceptions
_FAR = 10  # a time that is so many times as long as the disorder is something else
_TWICE = 2  # acknowledgments may not prove the longest time by which packets are late
_COPIES = 2  # so often must TCP send octets again that never arrived
_AGAIN_NS = 10_000_000_000  # a client that gives a request up asks again within this time


class _LateHost(msgspec.Struct):
    """A host that sent something on connections from before the capture."""

    flow: int | None = None  # the last of these that was found
    has_several: bool = False
    begins_ns: int = 0  # from then on the capture has what it sent on all of them
    others_begin_ns: int = 0  # likewise, on all but the last


class _Times:
    """Times by host. If a host has too many, or one that is not known, any time may be one of its times."""

    def __init__(self) -> None:
        self._times: dict[str, list[tuple[int, int]] | None] = {}

    def add(self, host: str, since_ns: int | None, until_ns: int) -> None:
        """Add a time of a host; ``since_ns`` is None if its beginning is not known."""
        times = self._times.setdefault(host, []) if len(self._times) < _HOSTS else None
        if times is None:
            return
        if since_ns is None or len(times) == _TIMES:
            self._times[host] = None
        else:
            times.append((since_ns, until_ns))

    def meet(self, host: str, since_ns: int, until_ns: int) -> bool:
        """Whether one of a host's times may overlap with this one."""
        if len(self._times) == _HOSTS and host not in self._times:
            return True
        times = self._times.get(host, [])
        return times is None or any(begin <= until_ns and since_ns <= end for begin, end in times)


class Endings:
    """Makes the record of a way that is over."""

    def __init__(self, programs: Programs) -> None:
        """``programs`` has the sockets of each program."""
        self._programs = programs
        self._blind: set[str] = set()  # hosts of which the capture may lack messages
        self._gaps: set[str] = set()  # those of them with a connection that lacks octets in the middle
        self._holes = _Times()  # when octets of such a host may have passed that the capture lacks
        self._is_blind = False  # packets of any host may be missing
        self._late_hosts: Ledger[str, _LateHost] = Ledger(_LateHost)  # by name
        self._until_ns = 0  # the time up to which the capture has come
        self.interruptions = Interruptions()
        self.sees_all = True  # the capture lacks nothing
        self._delays = _Times()  # from when a message of a host was sent until it came here, long behind later ones
        self._overtaken = 0  # messages that came here behind later ones, while the capture lacked nothing
        self._overtaken_ns = 0  # how long they waited at most
        # How late packets came, or by how much clocks differ, as problems say; None if these do not say it.
        self._disorder_ns: int | None = 0
        self._is_disordered = False
        self.knows_acknowledged = False  # legs say when they were acknowledged

    def blind(self, *hosts: str, has_gap: bool) -> None:
        """The capture may lack messages of these hosts, or of any host if none is given.

        Without ``has_gap`` it only lacks the beginning of a connection.
        """
        self.sees_all = False
        self._blind.update(hosts)
        if has_gap:
            self._gaps.update(hosts)
        if len(self._blind) > _HOSTS:  # it is not known any more of which
            self._blind.clear()
            self._gaps.clear()
            hosts = ()
        self._is_blind = self._is_blind or not hosts

    def see_hole(self, since_ns: int | None, until_ns: int, *hosts: str) -> None:
        """Octets between these hosts are missing that passed in this time; ``since_ns`` is None if it is not known."""
        for host in hosts:
            self._holes.add(host, since_ns, until_ns)

    def has_hole(self, address: str, since_ns: int, until_ns: int) -> bool:
        """Whether the capture may lack octets of the host of a socket that passed in this time."""
        return self._is_blind or any(self._holes.meet(one, since_ns, until_ns) for one in self._programs.hosts(address))

    def begin_late(self, flow: int, host: str, time_ns: int) -> None:
        """The first frame is found of what a host sent on a connection from before the capture."""
        late = self._late_hosts.at(host)
        if late.flow not in (None, flow):
            late.has_several = True
            late.others_begin_ns = max(late.others_begin_ns, min(late.begins_ns, time_ns))
        if time_ns >= late.begins_ns:
            late.flow, late.begins_ns = flow, time_ns

    def began_before(self, address: str) -> bool:
        """Whether the host of a socket has a connection from before the capture on which it sent something."""
        return any(one in self._late_hosts for one in self._programs.hosts(address))

    @property
    def is_disordered(self) -> bool:
        """Whether many packets are out of order, so that a message may stand behind the next leg of its way."""
        return self._is_disordered or self._overtaken >= _MUCH_DISORDER

    def overtake(self, hop: Hop, by_ns: int) -> None:
        """A message came here behind later ones, the last of them ``by_ns`` later.

        It waited for octets, or acknowledgments, that the capture lacks.
        """
        hop.is_overtaken = True
        if self.sees_all:
            self._overtaken += 1
            self._overtaken_ns = max(self._overtaken_ns, by_ns)
        if by_ns >= _DELAY_NS and not hop.stream.is_late:
            self._delays.add(host_of(hop.src), hop.time_ns, hop.time_ns + by_ns)

    def disorder(self, by_ns: int | None) -> None:
        """A problem says that the packets are out of order, or that clocks differ, and by how much, if it is known."""
        self._is_disordered = True
        if by_ns is None or self._disorder_ns is None:
            self._disorder_ns = None
        else:
            self._disorder_ns = max(self._disorder_ns, by_ns)

    @property
    def disorder_ns(self) -> int | None:
        """By how much packets are out of order at most, as far as acknowledgments prove it; None if it is not known.

        If their times are those of the events, in another order, problems know no amount, but messages do.
        """
        if not self.is_disordered:
            return 0
        return self._overtaken_ns or None if self._disorder_ns == 0 else self._disorder_ns

    def may_be_disorder(self, length_ns: int) -> bool:
        """Whether a time is so short that the disorder of the packets may explain it."""
        by_ns = self.disorder_ns
        return by_ns is None or length_ns < _FAR * by_ns

    @property
    def may_mistake(self) -> bool:
        """Whether a message may come so long behind the next leg of its way that the two are not joined."""
        by_ns = self.disorder_ns
        return by_ns is None or _TWICE * by_ns > EARLY_NS

    def is_blind(self, hop: Hop) -> bool:
        """Whether the capture may lack what the receiver of a message sent."""
        return not self.sees_all and (
            self._is_blind or any(one in self._blind for one in self._programs.hosts(hop.dst))
        )

    def hides_next(self, hop: Hop) -> bool:
        """Whether the capture may lack the message in which the receiver of a message sent it on, or answered it.

        If only the beginnings of connections are missing, it does not lack what was sent after the first frames of each
        were found; a publication does not go back to where it came from. Others may never be found to be ZMTP. But no
        program passes its messages on over such a connection if it passed many on over others; or if it answered many,
        and its host has no other connection. The ids of the sender must be known, too: else the next leg may be in the
        capture, and not be joined.
        """
        if not self.is_blind(hop):
            return False
        late = next(filter(None, map(self._late_hosts.get, self._programs.hosts(hop.dst))), _LateHost())
        program = self._programs[hop.dst]
        may_ask = late.has_several and program.longest_relay_ns < 0 and not program.passed_jobs
        goes_elsewhere = hop.stream.sends == "publication" and hop.flow == late.flow
        is_early = hop.time_ns < (late.others_begin_ns if goes_elsewhere else late.begins_ns)
        may_lack_it = self.has_hole(hop.dst, hop.time_ns, hop.time_ns + self._patience_ns(hop))
        return may_ask or is_early or may_lack_it or not (program.is_known and hop.stream.is_followed)

    def has_gap(self, address: str) -> bool:
        """Whether the capture lacks octets of the host of a socket, other than the beginnings of connections."""
        return self._is_blind or any(one in self._gaps for one in self._programs.hosts(address))

    def has_delay(self, address: str, since_ns: int, until_ns: int) -> bool:
        """Whether a message that a host sent in this time came here so late that others may have taken its place."""
        return any(self._delays.meet(one, since_ns, until_ns) for one in self._programs.hosts(address))

    def may_hide_others(self, one: Passage) -> bool:
        """Whether a program may have waited for others in the time of a passage, which then is not its own time.

        It asked others meanwhile, perhaps for this. Or it usually passes messages on, answered this one itself, and the
        capture may lack whom it asked: octets are missing there, or the beginning of the connection.
        """
        if one.passed.sender_may_have_waited:
            return True
        taken = one.taken
        if taken.flow != one.passed.flow or self._programs[taken.dst].longest_relay_ns < 0:
            return False
        return taken.stream.is_late or self.has_gap(taken.dst)

    def pass_time(self, now_ns: int) -> None:
        """It is ``now_ns`` in the capture."""
        if now_ns > self._until_ns:
            self._until_ns = now_ns

    def _shown_ns(self, hop: Hop) -> int:
        """How long the capture shows what came of a message."""
        return self.interruptions.shown_until(hop.time_ns, self._until_ns) - hop.time_ns

    def set_back(self, now_ns: int) -> None:
        """The clock of the capture was set back to ``now_ns``."""
        self._until_ns = now_ns

    def may_go_on(self, way: OpenWay) -> bool:
        """Whether a program still has the message of a way in hand, so that more legs may come much later."""
        if way.kind == "publication":
            return False
        if way.kind == "request":
            return not way.first.answered
        return self._programs[way.hops[-1].dst].longest_relay_ns >= 0

    def record(self, way: OpenWay) -> Way:
        """Make the record of a way."""
        legs = [hop.leg for hop in way.hops]
        if way.kind == "publication":
            legs.sort(key=lambda leg: leg.time_ns)
        first, last = legs[0], legs[-1]
        answer = way.answer
        end = answer or last
        until_ns = end.seen_ns or end.time_ns
        is_answered = None if answer is None and self._may_have_reply(way) else answer is not None
        return Way(
            way.kind,
            first.time_ns,
            max(until_ns - first.time_ns, 0),
            legs,
            None if way.kind != "request" else is_answered and not self._is_unreached(answer),
            self._slowest(way, answer),
            self.ended(way),
            self._given_up_before(way),
        )

    def _slowest(self, way: OpenWay, answer: Hop | None) -> Slowest | None:
        """Where most of the time went; None if that may be a place that the capture does not show."""
        if len(way.hops) == 1:
            return None
        may_hide = not self.sees_all or any(hop.sender_may_have_waited for hop in way.hops)
        if may_hide and any(map(self.may_hide_others, passages(way))):
            return None
        return slowest(way, way.last_ns if answer is None else answer.time_ns)

    def is_out_of_sight(self, way: OpenWay) -> bool:
        """Whether a request got no reply, and may have been passed on over a connection that the capture lacks."""
        last = way.last
        if way.may_need_no_reply or self._shown_ns(last) < _RECENT_NS:
            return False
        return way.answer is None and not last.reply and self.hides_next(last) and not self._may_have_reply(way)

    def _may_have_reply(self, way: OpenWay) -> bool:
        """Whether a request may have a reply that is not joined to it, or may need none.

        The capture may lack the reply: octets are missing, or the beginning of the connection. Or a message to the
        asker may be the reply, though nothing joins the two.
        """
        first = way.first
        if self.has_gap(first.dst) or self._is_told(first) or not first.may_expect_reply or first.answered:
            return True
        if (first.stream.is_late and not first.expects_reply) or any(hop.may_be_answered for hop in way.hops):
            return True
        return len(way.hops) > 1 and way.hops[1].reply  # as it is not answered, the first is a reply, too

    def _is_told(self, first: Hop) -> bool:
        """Whether a message only tells its receiver something: hardly any of its connection is answered.

        Its receiver must live: a server that hangs answers nothing either.
        """
        return first.stream.is_one_way and self._programs[first.dst].sent_ns > first.time_ns

    def _given_up_before(self, way: OpenWay) -> Leg | None:
        """The first leg of the request that its client gave up, and sends again with this one, if there is one."""
        earlier = way.earlier
        if earlier is None:
            return None
        first, last, shared = way.first, earlier.first, earlier.first.stream.shared
        reply = earlier.answer
        if first.time_ns - last.time_ns > _AGAIN_NS or (reply is not None and reply.time_ns <= first.time_ns):
            return None
        has_waited = reply is not None and reply.flow == last.flow
        gave_up = not has_waited and shared.closed_ns is not None  # else another client asks the same service
        return last.leg if last.flow == first.flow or gave_up else None

    def waited_ns(self, way: OpenWay) -> tuple[int, bool]:
        """How long the first sender of a way has waited, and whether it gave up: it asked again, or closed."""
        first = way.first
        gave_up_ns = way.again_ns or first.stream.shared.closed_ns or 0
        return gave_up_ns - first.time_ns if gave_up_ns else self._shown_ns(first), gave_up_ns > 0

    # ------------------------------------------------------------------ where it ended

    def ended(self, way: OpenWay) -> Terminus | None:
        """Where and why a way went no further; None if it has reached its goal, or the capture may lack the rest."""
        last = way.last
        if way.kind != "publication" and self._is_unreached(last):
            return Terminus(last.dst, "not-taken")
        is_back = last.flow == way.first.flow and last.dst == way.first.src  # as a reply, or by its id alone
        if is_back or way.kind == "publication" or way.first.answered or way.answered_ns is not None:
            return None
        first = way.first
        may_tell = last.stream.src_kind == "DEALER" or last is first or (last.reply and way.hops[1].is_question)
        tells = may_tell or first.stream.pushed_forms is not None or first.stream.has_ids
        is_told = self._is_told(first) or (tells and not first.may_expect_reply)
        if way.kind == "request" and (way.may_need_no_reply or is_told):
            return None  # it may need no reply
        if last.reply and way.hops[1].reply:
            return None  # the first message is a reply, too: its request came before the capture
        due = self._waiting_for(way, last) if last.reply else [last]
        if way.is_reassigned or last.is_guess or any(hop.may_be_answered for hop in due):
            return None
        if self._may_go_unseen(way, last):
            return None
        why = self._why(way, last)
        return None if why is None else Terminus(last.dst, why)

    def dead_ends(self, way: OpenWay) -> Iterator[tuple[Hop, Why]]:
        """The questions of services that got no reply, though the request itself did: the last leg of each, and why."""
        if way.kind != "request" or not way.first.answered:
            return
        for question in way.hops:
            if question.answered or not question.is_question:
                continue
            last = question
            for hop in way.hops:
                if hop.before is last:
                    last = hop
            if last.reply or last.answered or last.is_guess or last.may_be_answered or self._may_go_unseen(way, last):
                continue
            why = self._why(way, last)
            if why is not None:
                yield last, why

    def _may_go_unseen(self, way: OpenWay, last: Hop) -> bool:
        """Whether the capture may lack where a message went on.

        A reply goes back on the connection of its request. So the capture has the next leg of a reply if it has replies
        on that connection.
        """
        if last.is_overtaken:  # perhaps its receiver passed it on in a message that came here before it
            return True
        if not last.stream.dst_kind and last.stream.shared.uses_delimiter and not (last.reply or last.depth):
            return True  # its receiver may drop it: the others on the connection have a delimiter
        hides_next = self.hides_next(last)
        if not (last.reply and hides_next):
            return hides_next
        waiting = self._waiting_for(way, last)
        lacks_it = self.has_hole(last.dst, last.time_ns, last.time_ns + self._patience_ns(last))
        return lacks_it or not waiting or not waiting[-1].stream.own_requests.answered

    def _is_unreached(self, hop: Hop | None) -> bool:
        """Whether a message never arrived: TCP sent it again and again, and nobody acknowledged it.

        Of octets that were sent once only, the capture may lack the acknowledgment.
        """
        return (
            hop is not None
            and self.knows_acknowledged
            and hop.stream.receipts.acked <= hop.offset
            and hop.stream.shared.closed_ns is None
            and not self.has_gap(hop.dst)
            and sum(offset <= hop.offset and time_ns > hop.time_ns for offset, time_ns in hop.stream.resent) >= _COPIES
        )

    def _why(self, way: OpenWay, last: Hop) -> Why | None:
        """Why the receiver of the last message did nothing with it; None if that is as it should be.

        These are the points 4 to 7 of the theory above.
        """
        program = self._programs[last.dst]
        longest_ns = None if program.longest_relay_ns < 0 else program.longest_relay_ns
        if way.kind == "job" and (longest_ns is None or not program.passes_jobs_on or last.number < program.since):
            return None  # a worker has it, and may have no result to send; or it came before the first that went on
        if way.kind == "job" and program.unjoined_ns >= last.time_ns:
            return None  # it may have gone on in that message: jobs go on there with an id, and this one may have no id
        patience_ns = self._patience_ns(last)
        closed_ns, closer = last.stream.shared.closed_ns, last.stream.shared.closer
        closed_in_ns = closed_ns - last.time_ns if closed_ns is not None and closer in (None, last.dst) else None
        if closed_in_ns is not None and (longest_ns is None or closed_in_ns < patience_ns):
            return "closed"
        if last.reply:
            return self._why_not_back(way, last, patience_ns)
        if closed_ns is not None and longest_ns is None and closed_ns - last.time_ns < patience_ns:
            return "reply-to-nobody"
        if self._shown_ns(last) < patience_ns and not (way.kind == "job" and program.has_passed_over(last)):
            return "capture-ended"
        return "not-answered" if longest_ns is None or program.answers else "not-forwarded"

    def _patience_ns(self, hop: Hop) -> int:
        """How long the receiver of a message may take to pass it on, or to answer it."""
        program = self._programs[hop.dst]
        longest_ns = program.longest_relay_ns
        patience_ns = _RECENT_NS if longest_ns < 0 else max(_LONGER * longest_ns, _AT_ONCE_NS)
        if hop.reply:
            return patience_ns
        return max(patience_ns, _LONGER * program.longest_reply_ns)  # it may wait behind others that it answers

    def _waiting_for(self, way: OpenWay, reply: Hop) -> list[Hop]:
        """The requests of a way to which the receiver of a reply should pass it back: it has not answered them."""
        host, program = reply.stream.dst_host, self._programs[reply.dst]
        unanswered = [hop for hop in way.hops if not (hop.reply or hop.answered)]
        return [hop for hop in unanswered if hop.stream.dst_host == host or self._programs[hop.dst] is program]

    def _why_not_back(self, way: OpenWay, reply: Hop, patience_ns: int) -> Why:
        """Why a broker did not pass a reply on."""
        waiting = self._waiting_for(way, reply)
        closed_ns = waiting[-1].stream.shared.closed_ns if waiting else None
        if closed_ns is not None and closed_ns <= reply.time_ns + _AT_ONCE_NS:
            return "reply-to-nobody"
        return "capture-ended" if self._shown_ns(reply) < patience_ns else "reply-not-forwarded"
