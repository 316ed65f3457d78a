"""Programs that pass messages on, and the places where messages wait or end: replies-slow, not-passed-on, queue-grows.

Theory
------

Where one program waits for another one, each socket on the way shows the same delay. Only the way of the request tells
where the time passed: between taking a message and passing it on, or answering it. So a delay is held against the place
that had the message meanwhile. Time in which a service waits for another service is that one's. Time in which a broker
could not pass a message on, since its next peer had gone away, is nobody's here: that peer is found by its absence.

A program that passed on what it took, and then took messages that went no further, has lost them, or holds them.
Whether that matters for a single job, nobody knows: a worker may have no result to give. So a worker is named only if
nothing comes of it any more. A program whose next peers have all closed their connections waits for them: the peers are
to blame.

Following messages costs time, so this inquiry hears only connections of hosts that may pass something on: those with a
socket that takes messages and another one that sends them, to a third
(:mod:`~zmtpsniff.analysis.findings.relay_hosts`).

Where packets are out of order, a delay is a fault only if it is far longer than the disorder, and if no other message
can be the one that was passed on. If packets may be later than ways look for them, delays and losses are notes.

A *place* is a program that messages came to (:mod:`~zmtpsniff.analysis.findings.relay_places`). Each way that is over
is counted at its places: the time at each, and the fate of its last message at the last one. A *fate* is the reason why
the way ended (``Why`` of its record), or one of those below that the record does not know. Ways that are open are
counted for each look, and forgotten behind it: they may still end well.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Sequence, Set
from functools import partial
from typing import NamedTuple

from dissectors.address import has_bound_port, host_of
from dissectors.batches import MessageBatch
from dissectors.events import Capture, Command, Connection, Greeting, Message, Problem, Severity, Subscription, at_hand
from dissectors.problems import BLINDING
from dissectors.zmtp.sockets import SUBSCRIBERS
from zmtpsniff.analysis.defaults import REPLY_SECONDS
from zmtpsniff.analysis.dossier import Dossier, has_client_id, is_of_worker, says_ready
from zmtpsniff.analysis.findings.finding import Certainty, Claim, Occurrences
from zmtpsniff.analysis.findings.identities import Identities
from zmtpsniff.analysis.findings.inquiry import Inquiry, Listener
from zmtpsniff.analysis.findings.relay_doubts import RelayDoubts
from zmtpsniff.analysis.findings.relay_hosts import RelayHosts
from zmtpsniff.analysis.findings.relay_places import (
    ANSWERING,
    STOPPED,
    STOPPED_NS,
    Loss,
    Losses,
    RelayPlace,
    SlowPassage,
)
from zmtpsniff.analysis.findings.slow_replies import (
    FEW_SLOW,
    LEAST_SLOW,
    NETWORK_ADVICE,
    SLOW_MEDIAN_NS,
    SLOW_NS,
    SLOW_TIMES,
    TEAM_TIMES,
    in_order,
)
from zmtpsniff.analysis.ledger import Ledger
from zmtpsniff.analysis.statistics.stats_records import QueueRow
from zmtpsniff.analysis.ways.delays import Passage, passages
from zmtpsniff.analysis.ways.hops import Hop, OpenWay
from zmtpsniff.analysis.ways.way_connections import ProcessOf
from zmtpsniff.analysis.ways.ways import Ways
from zmtpsniff.net.witness import Attempt, Pause, Stall
from zmtpsniff.words.counts import listed, plural
from zmtpsniff.words.durations import about, nanoseconds

_LEAST = 5  # a program that passed on so many messages passes messages on
_PART = 0.25  # of what it passed on: a program that loses more does so on purpose
_WORKERS = frozenset({"DEALER", "REQ"})  # types of workers that tell a ROUTER that they are ready
_MAY_WORK = [{kind, "ROUTER"} for kind in sorted(_WORKERS)]
_ALIKE = 3  # if one worker loses at most so many times as much as another one, both filter jobs on purpose
_SETTLED_NS = 1_000_000_000  # a message that a program has not passed on for so long is lost, or waits
_AT_ONCE_NS = 10_000_000  # a proxy may take so long to pass something on
_OWN = 1000  # requests of brokers that are remembered
_LEFT = 64  # subscribers of one socket that left
_TEAM = 100  # places with which one that does the same is compared
_GONE = 2000  # peers that closed connections

_TO_NOBODY = "reply-to-nobody"
# Fates beside those of the record of a way:
_UNANSWERED = "unanswered"  # as not-answered, and the asker waited for longer than the timeout, or gave up
_GIVEN_UP = "given-up"  # as not-answered, and the asker gave up early, though later than usual replies come
_ANSWERED_FOR = "answered-for"  # a worker closed its connection with it in hand, and its broker answered in its place
_OUT_OF_SIGHT = "out-of-sight"  # it got no reply, and the capture may lack the connection on which it was passed on
_DROPPED = frozenset({"closed", "not-forwarded"})  # of questions of services that asked again, or did without
_HELD = frozenset({"not-forwarded", "reply-not-forwarded", "capture-ended"})  # such a message is in a queue perhaps
_PASSING_ADVICE = (
    "Look at what that program did at the time named: it paused, or worked on other messages. If messages often wait "
    "behind others there, more programs like it help."
)


def _wait(hosts: Iterable[str]) -> str:
    """The hosts that wait for a program, as a clause."""
    names = list(dict.fromkeys(hosts))
    return f"{listed(names)} {'waits' if len(names) == 1 else 'wait'} for it"


class Relays(Inquiry):
    """Programs where messages of ways wait or end."""

    def __init__(self, identities: Identities, timeout_seconds: float = REPLY_SECONDS) -> None:
        """``timeout_seconds`` is how long a request may wait; ``identities`` knows whom a ROUTER may ignore."""
        self._identities = identities
        self._timeout_ns = nanoseconds(timeout_seconds)
        self._ways = Ways(in_order=False)
        self._hosts = RelayHosts()
        self._doubts = RelayDoubts(self._ways, self._hosts)
        self._announced: Ledger[bytes, None] = Ledger()  # identities of peers of ROUTERs
        self._places: Ledger[str, RelayPlace] = Ledger(RelayPlace)
        # By a bound socket, or a client's host, and its peer: when the peer closed its last connection.
        self._gone: Ledger[tuple[str, str], int] = Ledger(int, _GONE)
        # Likewise, when the peer last connected; also by a socket and a type of peers, "" for any type.
        self._met: Ledger[tuple[str, str], int] = Ledger(int)
        # By a sender and a receiver that took nothing for a while: until when.
        self._waited: Ledger[tuple[str, str], int] = Ledger(int)
        self._unreached: Ledger[str, int] = Ledger(int)  # by socket: since when it acknowledges nothing any more
        # By the socket of a publisher: the last times when a topic was cancelled, or a subscriber left.
        self._left: Ledger[str, deque[int]] = Ledger(partial(deque, (), _LEFT))
        # Messages without delimiter, by flow and packet: the socket that sent it first, if brokers passed it on.
        self._undelimited: Ledger[tuple[int, int], str] = Ledger(str)
        self._own: deque[OpenWay] = deque(maxlen=_OWN)  # requests that brokers sent without having taken them
        self._is_cut = False  # packets lack their last octets

    def know_processes(self, process_of: ProcessOf) -> None:
        """Live: tell programs apart by their processes."""
        self._ways.connections.process_of = self._hosts.process_of = process_of

    # ------------------------------------------------------------------ listening

    def begin(self, dossier: Dossier) -> Listener | None:
        """Follow the messages of a connection if one of its hosts may pass something on."""
        one, other = dossier.types
        for mine, peer in ((one, other), (other, one)):
            for key in ((mine, ""), (mine, dossier.types[peer]), (host_of(mine), peer)):
                self._met.renew(key, dossier.start_ns)
        for address, identity in dossier.identities.items():
            if identity and dossier.types[address] != "ROUTER":
                self._announced.at(identity)
        if not self._hosts.begin(dossier):
            return None
        self._ways.connections.connect(dossier)
        return self.take

    def is_settled(self, flow: int) -> bool:
        """Whether a connection is followed for good. Live, it may be followed only until its processes are known."""
        return self.follows(flow) and self._hosts.process_of is None

    def may_show_relay(self, dossier: Dossier) -> bool:
        """Whether the first message of a connection may show that one of its sides passes messages on.

        That is not known yet, and one side may be a worker, or send what it took at another address.
        """
        if {*dossier.types.values()} in _MAY_WORK and not self.is_settled(dossier.flow):
            return True
        return self.may_be_split(dossier.flow)

    def find_worker(self, first: Message) -> bool:
        """Follow a broker if the first message of a connection is the READY of its worker. Return whether it is."""
        broker = first.dst
        if first.socket_type is None:  # the capture lacks READY, but each message of Majordomo has a header
            broker = next(filter(has_bound_port, (first.src, first.dst)), "")
            if not (broker and is_of_worker(first.frames)):
                return False
        elif first.socket_type not in _WORKERS or not says_ready(first.frames):
            return False
        self._hosts.add_broker(first.flow, broker)
        return True

    def find_split(self, request: Message) -> bool:
        """If its envelope shows that the sender took a request elsewhere: follow that program. Return whether."""
        is_passed_on = has_client_id(request.frames) or at_hand(request.frames[0]) in self._announced
        if is_passed_on and self.may_be_split(request.flow):
            self._hosts.add_passer(request.flow, request.src)
        return is_passed_on

    def may_be_split(self, flow: int) -> bool:
        """Whether a side of a connection may send what its program took at another address."""
        return self._hosts.may_be_split(flow)

    def add_asker(self, reply: Message) -> None:
        """A ROUTER got a reply, so it asks its peers, perhaps for others of them: follow it as a broker."""
        self._hosts.add_broker(reply.flow, reply.dst)

    def earlier(self) -> Sequence[int]:
        """The connections that began before it was known that their host passes something on."""
        found = self._hosts.earlier()
        for dossier in found:
            self._ways.connections.connect(dossier)
        return [dossier.flow for dossier in found]

    def let_go(self, now_ns: int) -> Sequence[int]:
        """Live: the connections that are followed no longer, since their processes pass nothing on."""
        found = self._hosts.tell_apart(now_ns)
        for flow in found:
            self._ways.stop_following(flow)
        return found

    def take(self, messages: Sequence[Message]) -> None:
        """Follow messages."""
        for message in messages:
            self._ways.take_message(message)
        self._take_ways(self._ways.pop_finished())

    def follows(self, flow: int) -> bool:
        """Whether it hears the messages of a connection."""
        return flow in self._hosts.followed

    def take_columns(self, batch: MessageBatch, flows: Set[int]) -> None:
        """Follow the messages of these connections in a batch."""
        self._ways.take_columns(batch, flows, self._take_ways)

    def attempt(self, attempt: Attempt) -> None:
        """A connection begins, or a program may begin anew: tell the ways."""
        self._ways.attempt(attempt)

    def greeting(self, dossier: Dossier, event: Greeting) -> None:
        """A side greets, which may show how far it is."""
        self._ways.connections.round_trips.greet(event)
        self._ways.proxies.announce(event)

    def command(self, dossier: Dossier, event: Command) -> None:
        """A side says that it is ready, perhaps over a TCP proxy."""
        self._ways.proxies.announce(event)

    def stall(self, stall: Stall) -> None:
        """A receiver had no room for what a program sent, or is not there any more."""
        if stall.cause != "unheard":
            self._waited[stall.sender, stall.receiver] = stall.until_ns
        if stall.cause == "unacknowledged" and not stall.is_open:
            self._unreached[stall.receiver] = stall.since_ns

    def pause(self, pause: Pause) -> None:
        """The network may have lost a message, so that its receiver got it later."""
        self._ways.pause(pause)

    def problem(self, event: Problem) -> None:
        """Note what the capture lacks, and messages without delimiter, which their receivers drop."""
        self._ways.see_problem(event)
        self._is_cut = self._is_cut or event.code == "packets-cut"
        if event.code in BLINDING and event.src and event.dst and event.flow is not None:
            self._hosts.begin_late(event.flow, event.time_ns or 0, event.packet or 0, (event.src, event.dst))
        if event.code == "no-delimiter" and event.flow is not None and event.packet is not None:
            self._undelimited.at((event.flow, event.packet))

    def begin_untyped(self, event: Greeting) -> None:
        """The sides of a connection do not announce their types, as a greeting says."""
        self._hosts.begin_late(event.flow, event.time_ns, event.packet, (event.src, event.dst), is_untyped=True)

    def origin(self, flow: int, packet: int) -> str:
        """The socket that sent a message without delimiter first, if brokers passed it on; else ""."""
        return self._undelimited.get((flow, packet), "")

    def behind_proxy(self, address: str) -> str:
        """The peer for which an address of a TCP proxy stands; the address itself if it is no proxy's."""
        return self._ways.proxies.behind(address)

    def repeater(self, flow: int, packet: int) -> str:
        """The socket of a broker that sent a request twice, of which this is the reply; "" if no broker did.

        The broker took the request once. It passed the reply to the second one back in the envelope of the first.
        """
        for way in self._own:
            first = way.first
            back = [hop for hop in way.hops if hop.reply and hop.stream.dst_host == first.stream.src_host]
            is_whole = back and not first.stream.is_late and not self._ways.endings.is_blind(back[0])
            if is_whole and any(hop.flow == flow and hop.packet <= packet for hop in way.hops if hop.reply):
                return first.src  # the reply to the other one may have come first
        return ""

    def subscription(self, dossier: Dossier, event: Subscription) -> None:
        """A publisher may pass less on from now on."""
        if event.action == "cancel":
            self._left.at(event.dst).append(event.time_ns)

    def totals(self, event: Capture) -> None:
        """The capture is over, and so are all ways."""
        self._take_ways(self._ways.finish(event.end_ns or 0))

    def end(self, dossier: Dossier | None, event: Connection, until_ns: int) -> None:
        """A connection is over."""
        client, server = event.client.address, event.server.address
        for subscriber, publisher in ((client, server), (server, client)):
            may_have_left = event.end != "open" and (
                dossier is None or dossier.types.get(subscriber, "SUB") in SUBSCRIBERS
            )
            if may_have_left:
                self._left.at(publisher).append(event.end_ns)
        if event.closed_by is not None:
            gone = (host_of(client), server) if event.closed_by == "server" else (server, client)
            self._gone.renew(gone, event.end_ns)
            # Those by the server's socket, and by the client's host, say as much, and are as new.
            for kind in ("", dossier.types.get(server, "") if dossier is not None else ""):
                self._met.pop((client, kind), None)
            self._met.pop((host_of(server), client), None)
        if self._hosts.end(event.flow):
            self._ways.end_connection(event)
        else:
            self._ways.end_unfollowed(event)

    def passes_on(self, address: str) -> bool:
        """Whether the program of this socket has passed on a message, so that others may be to blame."""
        return self._ways.programs[address].longest_relay_ns >= 0

    def may_pass_on(self, address: str) -> bool:
        """Whether it has passed one on, or seems so, or may have done it unseen: messages cut short join no others."""
        place = self._known_place(address)
        if self.passes_on(address) or (place is not None and place.seems_to_pass_on):
            return True
        return self._is_cut and self._hosts.may_pass_on(address)

    def may_pass_on_unseen(self, address: str) -> bool:
        """Whether its host may pass messages on over a connection from before the capture, so that no way shows it."""
        return self._ways.endings.began_before(address) and self._hosts.may_pass_on(address)

    # ------------------------------------------------------------------ places

    def _take_ways(self, ways: Iterable[OpenWay]) -> None:
        """Ways are over: count each at its places."""
        for passer, lasted_ns in self._ways.late_passers.items():
            if lasted_ns >= _SETTLED_NS and not self._hosts.may_pass_on(passer[1]):
                self._hosts.add_passer(*passer)
        for way in ways:
            if not way.is_signal:
                self._take_way(way)

    def _take_way(self, way: OpenWay) -> None:
        its_passages = [*passages(way)]
        self._identities.see(one.taken.flow for one in its_passages)
        for one in its_passages:
            self._count_passage(way, one)
            self._doubts.has_questions |= one.passed.is_question
        if way.kind == "publication":
            self._count_publication(way)
            return
        first, last = way.first, way.last
        if last.reply and last.flow != first.flow and self.passes_on(first.src):
            self._own.append(way)
        self._end_at(way)
        for hop, why in self._ways.endings.dead_ends(way):
            if why in _DROPPED and not self._may_be_ignored(hop):
                self._place_below(hop).lost.add(way.kind, why, hop)

    def _count_passage(self, way: OpenWay, one: Passage) -> None:
        """Count the time that a program had a message of a way, if it is certain that the program passed it on."""
        taken, passed = one.taken, one.passed
        place = self._place(taken.dst)
        is_relayed = taken.flow != passed.flow
        if is_relayed:
            place.queue.add(taken, passed)
            if taken.stream.is_late and not place.seems_to_pass_on:
                place.seems_to_pass_on = True
                place.forget_times()
        if one.dropped is not None:
            self._place_below(one.dropped).lost.add(way.kind, _ANSWERED_FOR, one.dropped)
        if not passed.is_guess and (is_relayed or not self._may_hide_others(one)):
            place.add(one)

    def _count_publication(self, way: OpenWay) -> None:
        """Note at each proxy on the way of a publication whether it passed the publication on."""
        for hop in way.hops:
            if not self.passes_on(hop.dst) or self._ways.endings.hides_next(hop):
                continue
            if hop.is_passed_on or not self._has_lost_subscriber(hop):
                self._place(hop.dst).publish(hop)

    def _may_hide_others(self, one: Passage) -> bool:
        """Whether a program that answers may have asked others meanwhile, as it perhaps always does."""
        taken = one.taken
        may_ask = taken.stream.is_late and self._hosts.may_pass_on(taken.dst) and not self.passes_on(taken.dst)
        return may_ask or self._ways.endings.may_hide_others(one)

    def _end_at(self, way: OpenWay, since_ns: int | None = None) -> None:
        """A request or a job went no further: count it where it ended.

        With ``since_ns`` it is open, and counts for this look alone, if it has waited at least since then.
        """
        is_open = since_ns is not None
        last = way.last
        key = last.flow, last.packet
        if key in self._undelimited:
            self._undelimited[key] = way.first.src if way.first is not last else ""
            return
        ended = self._ways.endings.ended(way)
        if ended is None and not is_open and way.kind == "request" and self._ways.endings.is_out_of_sight(way):
            self._place(last.dst).lost.add(way.kind, _OUT_OF_SIGHT, last)
        if ended is not None and ended.why == "not-forwarded" and self._may_be_ignored(last):
            if not is_open:
                self._identities.ignore(last.flow, last.time_ns, last.packet)
            return
        if ended is not None and (ended.why != _TO_NOBODY or last.reply):
            place = self._place_below(last)
            if since_ns is None or last.time_ns <= since_ns:
                losses = place.losses_of_ways(is_open=is_open)
                losses.add(way.kind, ended.why, last)
                if ended.why == "not-answered" and (fate := self._fate_of_asker(way, place)):
                    losses.add(way.kind, fate, last)
                asker = self._known_place(last.src)
                if asker is not None and asker is not place and not last.reply:
                    asker.losses_of_ways(is_open=is_open).questions.setdefault(last.dst, last.time_ns)
        if not (way.kind == "job" if ended is None else ended.why in _HELD):
            return
        held_by = self._known_place(last.dst)
        if held_by is not None and held_by.queue.passed and not self._ways.endings.is_blind(last):
            held_by.queue.hold(last, is_open=is_open)

    def _has_lost_subscriber(self, taken: Hop) -> bool:
        """Whether a subscriber left a proxy just before a publication came there: no other one may have wanted that."""
        times = (self._left.get(one, ()) for one in self._ways.programs[taken.dst].sockets)
        return any(-_AT_ONCE_NS < taken.time_ns - time_ns < _SETTLED_NS for left in times for time_ns in left)

    def _may_be_ignored(self, last: Hop) -> bool:
        """Whether a ROUTER may have ignored a message, since its sender came back with an identity that was in use.

        Then the program went on with the messages of others.
        """
        place = self._place(last.dst)
        return self._identities.has_returned(last.flow) and place.passed_ns > last.time_ns

    def _fate_of_asker(self, way: OpenWay, place: RelayPlace) -> str:
        """The fate of a request that is not answered, by its asker: unanswered, or given up.

        It is "" if the asker hardly waited longer than usual, or if no broker is on the way: other inquiries tell of
        requests that one service does not answer.
        """
        first, stream = way.first, way.first.stream
        gets_replies = stream.is_late and stream.own_requests.answered > 0  # its type is not known, but this
        waits = stream.src_kind == "REQ" or first.reply_is_promised or gets_replies
        is_relayed = len(way.hops) > 1 or self.passes_on(first.dst)
        if not (first.expects_reply if stream.pushed_forms is not None or stream.has_ids else waits and is_relayed):
            return ""
        waited_ns, gave_up = self._ways.endings.waited_ns(way)
        if waited_ns >= (_SETTLED_NS if gave_up else self._timeout_ns):
            return _UNANSWERED
        return _GIVEN_UP if gave_up and waited_ns >= max(SLOW_NS, SLOW_TIMES * place.usual_ns) else ""

    def _place_below(self, hop: Hop) -> RelayPlace:
        """The place that took a message. Its upstream is the sender, unless another one gave it messages before."""
        place = self._place(hop.dst)
        place.upstream = place.upstream or hop.src
        return place

    def _known_place(self, address: str) -> RelayPlace | None:
        """The place of the program with this socket, if messages came there."""
        return self._places.get(self._ways.programs[address].sockets[0])

    def _place(self, address: str) -> RelayPlace:
        """The place of the program with this socket."""
        place = self._places.at(self._ways.programs[address].sockets[0])
        if not place.at:
            place.at = address
        return place

    # ------------------------------------------------------------------ results

    def claims(self, now_ns: int) -> Iterable[Claim]:
        """Programs that are slow, or that lose messages."""
        self._take_ways(self._ways.pop_finished())
        for place in self._places.values():
            place.stuck = Losses()
            place.queue.forget_open()
        for way in self._ways.open_ways(now_ns):
            if way.kind != "publication" and not way.is_signal:
                self._end_at(way, now_ns - _SETTLED_NS)
        teams: dict[str, list[RelayPlace]] = {}  # places that one socket gives messages to
        for place in self._places.values():
            team = teams.setdefault(place.upstream, [])
            if len(team) < _TEAM:
                team.append(place)
        for place in self._places.values():
            team = [one for one in teams[place.upstream] if one is not place and place.does_the_same(one)]
            yield from self._slow(place, [one for one in team if one.inside.count >= _LEAST])
            yield from self._late(place)
            lost = list(self._lost(place, team, now_ns))
            yield from lost
            if place.queue.taken and all(claim.code != "not-passed-on" for claim in lost):
                yield from place.queue.claims({sender for sender, _ in self._waited})

    def queues(self) -> list[QueueRow]:
        """The queues of programs that pass messages on, complete once the claims are made."""
        queues = [place.queue for place in self._places.values()]
        return [queue.row() for queue in queues if queue.passed and (queue.is_certain or queue.grows)]

    def _slow(self, place: RelayPlace, team: list[RelayPlace]) -> Iterable[Claim]:
        """The claim that a place takes long: now and then, always, or longer than others that do the same work."""
        slowest = sorted((one for one in place.slowest if not one.is_work), reverse=True)
        slowness = _slowness(place, team, slowest) if slowest and place.inside.count >= _LEAST else None
        if slowness is None:
            return
        where, words, severity = f"messages wait inside {place.at}", slowest[0].words, slowness.severity
        advice = None if words == ANSWERING else _PASSING_ADVICE
        slowest = slowness.slowest
        if slowness.is_network:
            where, words = f"messages wait in the network between {place.at} and its peers", "for each way and back"
            advice = NETWORK_ADVICE
        known = f"the ways of the messages show where they were; {_wait(one.waiting for one in slowest)}"
        if all(one.ends in self._waited for one in slowest):
            severity = "note"
            known += "; the next one took nothing then"
        seen = Occurrences.of((one.time_ns, one.packet, one.flow) for one in slowest)
        seen.count = max(seen.count, slowness.slow)
        claim = Claim(
            "replies-slow",
            f"{where}, up to {about(place.longest_ns)} {words}: {slowness.often}",
            known,
            seen,
            [place.at],
            severity,
            advice=advice,
            subject=place.at,
            waiting={one.waiting for one in slowest},
            spells=[(one.time_ns, one.until_ns) for one in slowest],
        )
        claim = self._doubts.weigh_delay(claim, place, slowest)
        yield claim._replace(known=f"{claim.known}{in_order(slowest)}")

    def _late(self, place: RelayPlace) -> Iterable[Claim]:
        """The claim that a place got messages late, since the network lost their packets."""
        seen = place.late
        if seen.count < LEAST_SLOW:
            return
        late = f"{seen.count:,} of {plural(place.inside.count, 'message')}"
        is_rare = seen.count < FEW_SLOW * place.inside.count and place.latest_ns < SLOW_MEDIAN_NS
        # Packets that two capture points saw look as if they came again.
        is_doubtful = self._ways.endings.may_be_disorder(place.latest_ns)
        yield Claim(
            "replies-slow",
            f"the network loses packets on the way to {place.at}: {late} arrived late, "
            f"up to {about(place.latest_ns)} after they were sent",
            "their octets came again after a pause, and only then did the program pass them on",
            seen,
            [place.at],
            "note" if is_rare or is_doubtful else None,
            certainty="likely",
            advice="Look at the network in front of that host: `ip -s link` and `nstat` count what is dropped.",
        )

    def _lost(self, place: RelayPlace, team: list[RelayPlace], now_ns: int) -> Iterable[Claim]:
        """The claims about a place with messages that went no further, one for each fate."""
        lost = place.lost.joined_with(place.stuck)
        for hop in self._held_publications(place):
            lost.add("publication", "not-forwarded", hop)
        for kind, fate in lost.seen:
            loss = Loss(place, kind, fate, lost, now_ns)
            for claim in self._claims_of(loss, team):
                yield self._doubts.weigh_loss(claim, loss)

    def _claims_of(self, loss: Loss, team: list[RelayPlace]) -> Iterable[Claim]:
        """The claims about one loss, before it is asked whether the capture explains it."""
        match loss.fate:
            case "closed":
                yield from self._closed(loss)
            case "answered-for":
                yield _answered_for(loss)
            case "out-of-sight":
                yield _out_of_sight(loss)
            case "reply-to-nobody":
                yield _to_nobody(loss)
            case "unanswered":
                yield from self._unanswered(loss)
            case "given-up" if loss.seen.count >= LEAST_SLOW and (loss.kind, _UNANSWERED) not in loss.all.seen:
                yield from self._unanswered(loss)
            case "not-forwarded" | "reply-not-forwarded":
                yield from self._not_passed_on(loss, team)

    def _not_passed_on(self, loss: Loss, team: list[RelayPlace]) -> Iterable[Claim]:
        """The claim that a place kept messages of a kind, or dropped them, though it passed others on.

        It stands only if nothing else explains the loss: that the place is not reached, that it waits for services that
        do not answer, or that its peers have gone.
        """
        place, kind, seen = loss.place, loss.kind, loss.seen
        if place.passed < _LEAST or loss.now_ns - loss.begun_ns < _SETTLED_NS or self._is_unreached(loss):
            return
        is_reply = loss.fate == "reply-not-forwarded"
        count = plural(seen.count, "reply" if is_reply else kind)
        severity: Severity | None = None
        if loss.has_stopped:
            words = f"took {count} and passed none of them on, after it had passed on {place.passed:,}"
        elif seen.count <= _PART * place.passed:
            on = "back" if is_reply else "on"
            words = f"took {count} and passed none of them {on}, while it passed on {place.passed:,}"
            if kind == "job":  # perhaps nothing comes of some jobs
                what = kind, loss.fate
                is_usual = any(_ALIKE * one.loses(what) >= place.loses(what) for one in team)
                severity = "note" if is_usual else "warning"
        else:
            return
        asked = self._silent_services(loss)
        if asked and kind == "request":
            severity = "note"
            words += f": it waits for {listed(asked)}"
        full = [peer for mine, peer in place.asks if self._waited.get((mine, peer), 0) > loss.begun_ns]
        if full and len(full) == len(place.asks):
            severity = "note"
            words += f": {listed(full)} took nothing from it"
        gone = self._gone_peers(loss)
        waits = f"; {_wait(loss.waits)}" if kind == "request" else ""  # publishers and pushers wait for nobody
        if gone and all((mine, peer) in self._gone for peer, mine in gone.items()):
            fate = "got no reply" if kind == "request" else "went no further"
            yield _last_workers(gone, f"{count} {fate}{waits}", loss)
            return
        if gone:
            severity = "note"
            words += f", since {listed(list(gone))} closed the connection"
        known = "the messages arrive there, others of the same kind go on from there, and these do not"
        yield _claim("not-passed-on", loss, f"{place.at} {words}{waits}", known, severity)

    def _silent_services(self, loss: Loss) -> list[str]:
        """The services that a place asked in vain when it began to lose messages."""
        earliest_ns, latest_ns = loss.place.passed_ns - STOPPED_NS, loss.begun_ns + STOPPED_NS
        return [one for one, time_ns in loss.all.questions.items() if earliest_ns <= time_ns <= latest_ns]

    def _is_unreached(self, loss: Loss) -> bool:
        """Whether a place acknowledged nothing any more when it began to lose messages."""
        unreached_ns = map(self._unreached.get, self._ways.programs[loss.place.at].sockets)
        return any(since_ns is not None and since_ns <= loss.begun_ns + STOPPED_NS for since_ns in unreached_ns)

    def _held_publications(self, place: RelayPlace) -> list[Hop]:
        """The publications that a proxy took since it last passed one on, if it has stopped doing so.

        Those that came after a topic was cancelled, or after a subscriber left, may have been for nobody.
        """
        since_ns = place.passed_ns - STOPPED_NS
        left = [self._left.get(one, deque[int]()) for one in self._ways.programs[place.at].sockets]
        until_ns = min((time_ns for times in left for time_ns in times if time_ns >= since_ns), default=None)
        if any(len(times) == _LEFT and min(times) >= since_ns for times in left):
            return []  # the first ones are forgotten
        held = [hop for hops in place.missing.values() for hop in hops if until_ns is None or hop.time_ns < until_ns]
        times_ns = [hop.time_ns for hop in held]
        has_stopped = len(held) >= STOPPED and since_ns <= min(times_ns) <= max(times_ns) - STOPPED_NS
        return held if has_stopped else []

    def _unanswered(self, loss: Loss) -> Iterable[Claim]:
        """The claim that a place does not answer, while an asker on the other side of brokers waits.

        It is enough that the asker of one request waited long: all requests without reply count.
        """
        loss = loss._replace(fate="not-answered")
        place = loss.place
        if (place.pushes_replies and not loss.has_stopped) or self._is_unreached(loss):
            return  # not all that has an id asks for something; or another finding says that the place gets nothing
        others = f", while it answered {place.passed:,}" if place.passed_ns > loss.begun_ns else ""
        left = [peer for at_ns, _, peer in self._departures(loss) if at_ns >= loss.begun_ns - _SETTLED_NS]
        since = f", since {listed(left)} closed the connection" if left else ""
        yield _claim(
            "request-unanswered",
            loss,
            f"{place.at} took {plural(loss.seen.count, 'request')} and did not answer{others}{since}; "
            f"{_wait(loss.waits)}",
            "the ways of the requests end there, and who had asked waited in vain",
        )

    def _gone_peers(self, loss: Loss) -> dict[str, str]:
        """The peers of a place, each with the socket there, if all had gone when it began to lose messages."""
        gone = list(self._departures(loss))
        return {peer: mine for _, mine, peer in gone} if len(gone) == len(loss.place.asks) else {}

    def _departures(self, loss: Loss) -> Iterator[tuple[int, str, str]]:
        """The peers of a place that had gone when it began to lose messages: when, the socket there, and the peer."""
        for (mine, peer), kind in loss.place.asks.items():
            closed_ns = max(self._gone.get((one, peer), 0) for one in (mine, host_of(mine)))
            again_ns = max(self._met.get(key, 0) for key in ((mine, kind), (host_of(mine), peer)))
            if 0 < closed_ns <= loss.begun_ns + STOPPED_NS and again_ns <= closed_ns:
                yield closed_ns, mine, peer

    def _closed(self, loss: Loss) -> Iterable[Claim]:
        """The claim that a worker closed its connection while it had messages, and its upstream sent on to others."""
        place, kind = loss.place, loss.kind
        if self._ways.programs[place.upstream].sent_ns - loss.all.closed_ns >= STOPPED_NS:
            goes_on = f"nothing comes of the {kind}s, and {place.upstream} goes on without it"
            yield _closed_with(loss, f"it closes the connection first, {goes_on}")


def _claim(
    code: str, loss: Loss, summary: str, known: str, severity: Severity | None = None, certainty: Certainty = "likely"
) -> Claim:
    """The claim that a place did not do with some messages what others wait for."""
    at = loss.place.at
    return Claim(code, summary, known, loss.seen, [at], severity, certainty, subject=at, waiting=loss.waits)


def _closed_with(loss: Loss, known: str) -> Claim:
    """The claim that a worker closed its connection while it had messages."""
    place, kind = loss.place, "request" if loss.fate == _ANSWERED_FOR else loss.kind
    return Claim(
        "worker-closed",
        f"the worker {place.at} of {place.upstream} closed its connection with {plural(loss.seen.count, kind)} in hand",
        known,
        loss.seen,
        [place.at, place.upstream],
        certainty="likely",
        subject=place.at,
    )


def _answered_for(loss: Loss) -> Claim:
    """A worker closed its connection while it had requests, and its broker had others answer them."""
    return _closed_with(loss, "it closes the connection first, before it replies, and another reply goes to who asked")


def _last_workers(gone: dict[str, str], fate: str, loss: Loss) -> Claim:
    """The claim that the last workers of a socket closed their connections; ``fate`` tells of the messages."""
    workers, upstream = list(gone), next(iter(gone.values()))
    closed = "closed its connection" if len(workers) == 1 else "closed their connections"
    return Claim(
        "worker-closed",
        f"{listed(workers)} {closed} to {upstream}, and no other worker came: {fate}",
        f"messages went on there before; since then {upstream} takes others, and they go no further",
        loss.seen,
        [*workers, upstream],
        certainty="likely",
        subject=workers[0],
        waiting=loss.waits,
    )


def _out_of_sight(loss: Loss) -> Claim:
    """A place took requests, and the capture may lack the connection on which it sent them on."""
    at, count = loss.place.at, loss.seen.count
    it = "it" if count == 1 else "them"
    summary = f"{plural(count, 'request')} got no reply: {at} took {it}, and no more is seen; {_wait(loss.waits)}"
    known = f"the capture begins in the middle, so it may lack the connection on which that sent {it} on"
    return _claim("request-unanswered", loss, summary, known, "note", "possible")


def _to_nobody(loss: Loss) -> Claim:
    """A place got replies after their askers had closed."""
    at, count = loss.place.at, loss.seen.count
    whose = "its requester" if count == 1 else "their requesters"
    return Claim(
        "reply-to-nobody",
        f"{at} got {plural(count, 'reply')} after {whose} had closed",
        "the request came over it, the requester closed its connection, and then the reply arrived",
        loss.seen,
        [at],
    )


class _Slowness(NamedTuple):
    """In which way a place is slow."""

    often: str  # how often, in words
    slowest: list[SlowPassage]  # the messages that show it
    is_network: bool = False  # the time is that of the packets' way
    severity: Severity | None = None
    slow: int = 0  # messages, if they are a part of all


def _slowness(place: RelayPlace, team: list[RelayPlace], slowest: list[SlowPassage]) -> _Slowness | None:
    """In which way a place is slow; None if it is not. ``slowest`` are its slowest messages.

    The cases, the first that holds: always; always beside the ``team``, that does the same; by the network; now and
    then, by itself or beside the team.
    """
    count = place.inside.count
    median_ns, network_ns, usual_ns = place.inside.percentile(50), place.network_ns, place.usual_ns
    others = [one.usual_ns for one in team]
    if median_ns > SLOW_MEDIAN_NS:
        return _Slowness(f"half of its {plural(count, 'message')} took over {about(median_ns)}", slowest)
    if others and usual_ns > TEAM_TIMES * max(others) and place.hurts(usual_ns):
        often = (
            f"half of its {plural(count, 'message')} took over {about(usual_ns)}, those of "
            f"others that do the same under {about(max(*others, 1))}"
        )
        return _Slowness(often, slowest, network_ns > median_ns)
    if network_ns > SLOW_NS:
        return _Slowness(f"half of {plural(count, 'message')} took over {about(network_ns)}", slowest, True)
    slow_ns = max(SLOW_NS, SLOW_TIMES * median_ns)
    rare_ns = 0 if place.inside.maximum > slow_ns else place.rare_ns(team)
    if place.inside.maximum <= slow_ns and not rare_ns:
        return None
    slow_ns = max(SLOW_NS, TEAM_TIMES * rare_ns) if rare_ns else slow_ns
    slowest = [one for one in slowest if one.own_ns > slow_ns]
    slow = max(place.held.above(slow_ns), len(slowest))  # others may have waited behind these
    often = f"{slow:,} of {plural(count, 'message')} took over {about(slow_ns)}"
    if rare_ns:
        often += f", those of others that do the same hardly ever over {about(rare_ns)}"
    elif 2 * slow <= count:
        often += f", half of all under {about(max(median_ns, 1000))}"
    is_rare = slow < max(LEAST_SLOW, FEW_SLOW * place.forth) and place.longest_ns < SLOW_MEDIAN_NS
    return _Slowness(often, slowest, severity="note" if is_rare else None, slow=slow)
