"""Which sockets one program has, when it last sent, and whether it works on several messages at once.

Theory
------

A capture shows sockets, not programs. But a program that passes a message on has the socket that took it and the one
that sent it. So each join that proves something tells that two sockets belong together. A socket is named by the
address that it is bound to, or by the address of one of its connections.

A socket is a program of its own at first. Programs are only ever merged, never parted: a join that may be wrong must
not come here (``Hop.shows_program``). The first socket of a program names it as long as anything is known of it; others
are forgotten some time after they were closed.

A program may have several addresses: a broker takes requests in one network and sends them on in another one. Its
sockets are *united* once several messages show it: from then on they count to one host.

On one host all programs may have one address. If the capture lacks the leg between two brokers, or has it late, what
the second one sends seems to come of what the first one took. So a join that cannot be the work of one program, such
as one that adds two ids, merges nothing there. Equal octets and ids merge only once they have come often in a row. And
two programs that both passed messages on before, each from its own socket to its own, stay two.

The behaviour of a program so far shows its role:

- it *passes on* once it sent a message to another socket than the one that it came from (``longest_relay_ns``);
- it *answers* once it replied on the connection of a request (``answers``);
- it *works in parallel* once it answered a message before one that had come earlier on the same connection. As long as
  it did not, it works on one message at a time: until it sent the last message of another way, it was busy.
"""

from collections.abc import Collection, Sequence

import msgspec

from dissectors.address import host_of
from dissectors.snapshots import quick
from zmtpsniff.analysis.ledger import Ledger
from zmtpsniff.analysis.ways.hops import Hop, OpenWay

_SOCKETS = 65_536
_ENDED = 1000  # closed sockets that are remembered: ways that ended there are finished some time later
_MANY = 32  # so many jobs that were passed on in order show that a program keeps their order
_UNITED = 4  # if so many messages came to one address and went on from another one, both are of one program
_KNOWN = 16  # messages that were passed on: the same way again would show, too
_PART = 0.75  # of its jobs: a program that passes fewer on drops the others on purpose


@quick
class Program(msgspec.Struct, eq=False):
    """The sockets of one program, and how it works."""

    sockets: list[str]
    longest_relay_ns: int = -1  # the longest time from taking a message to passing it on; negative: it passed none on
    answers: int = 0  # how many messages it answered itself, as far as known: the capture may lack whom it asks
    is_parallel: bool = False  # it has answered a message before one that came earlier on the same connection
    longest_reply_ns: int = 0  # the longest time from taking a message to answering it
    sent_ns: int = 0  # when it last sent a message
    way: OpenWay | None = None  # the way of that message
    other_ns: int = 0  # when it last sent a message of another way than that
    jobs: int = 0  # how many jobs it took
    passed_jobs: int = 0  # how many it passed on
    since: int = 0  # the number of the first job that it passed on
    reached: int = 0  # the number of the latest job that it passed on
    keeps_order: bool = True  # it has passed on each job before those that came later
    handled: int = 0  # how many messages it passed on or answered
    more_hosts: list[str] = []  # if it has several addresses: all of them
    unjoined_ns: int = -1  # when it last sent a job that nothing joins to one that it took; negative: never

    def has_passed_over(self, job: Hop) -> bool:
        """Whether it passed on a job that came after this one, and always kept their order."""
        return self.keeps_order and self.passed_jobs >= _MANY and job.number < self.reached

    @property
    def is_known(self) -> bool:
        """Whether it has passed on or answered so many messages that all its connections must have been seen."""
        return self.handled + self.passed_jobs >= _KNOWN

    @property
    def passes_jobs_on(self) -> bool:
        """Whether it passed most jobs on, from the first to the latest that it passed on."""
        return self.passed_jobs > 0 and self.passed_jobs >= _PART * (self.reached - self.since + 1)


class Programs(dict[str, Program]):
    """The programs that send messages, by the addresses of their sockets. A new address is a program of its own."""

    def __init__(self) -> None:
        """Start without any."""
        super().__init__()
        self.united: list[tuple[Hop, Hop]] = []
        """Legs that turn out to be of one program with two addresses: to one of its sockets, and from the other one."""
        self._elsewhere: Ledger[tuple[str, str], int] = Ledger(int)  # by such sockets: messages that were passed on
        self._ended: dict[str, None] = {}  # addresses of clients whose connections are over; the oldest first

    def __missing__(self, address: str) -> Program:
        """A new socket is a program of its own, as far as is known."""
        program = self[address] = Program([address])
        if len(self) > _SOCKETS:
            del self[next(iter(self))]
        return program

    def _pass_on(self, before: Hop, hop: Hop) -> None:
        """A program passes a message on, or answers it: its sockets belong together, and it took that long.

        The packets cannot have been on their way to the program and back for longer than that.
        """
        stream = before.stream
        length_ns = max(hop.time_ns - before.time_ns, 0)
        if length_ns < stream.round_trip_ns:
            stream.round_trip_ns = length_ns
        taken_at = before.dst
        is_elsewhere = stream.dst_host != hop.stream.src_host
        if is_elsewhere and hop.stream.sends != "publication" and not _differs_by_one_id(before, hop):
            return  # the capture may lack a hop in between
        if stream.is_local and hop.joined == "envelope" and _lacks_leg(before, hop):
            return
        if is_elsewhere and not hop.reply:
            self._pass_on_elsewhere(before, hop)
        program = self[taken_at]
        program.handled += 1
        stream.is_followed = True
        if taken_at == hop.src and hop.reply and not before.reply:
            program.answers += not stream.is_late  # else it may have passed the request on, with an id not yet known
            program.longest_reply_ns = max(program.longest_reply_ns, length_ns)
            if program.longest_relay_ns < 0:
                return
        elif (other := self[hop.src]) is not program:
            if stream.is_local and self.are_two(before, hop):
                return
            self._merge(program, other)
        program.answers += stream.pushed_forms is not None
        if length_ns > program.longest_relay_ns:
            program.longest_relay_ns = length_ns

    def _pass_on_elsewhere(self, before: Hop, hop: Hop) -> None:
        """A program takes a message at one address, and passes it on from another one."""
        key = before.dst, hop.src
        self._elsewhere[key] += 1
        if self._elsewhere[key] == _UNITED:
            self.united.append((before, hop))
            program = self[before.dst]
            own = (host_of(before.dst), host_of(hop.src))
            program.more_hosts = [*dict.fromkeys((*program.more_hosts, *own))]

    def take_back(self, answer: Hop, asked: Hop) -> None:
        """A program did not answer a request itself: the reply that it passed back comes only now."""
        program = self[asked.dst]
        if asked.dst == answer.src and answer.shows_program and not asked.stream.is_late and program.answers:
            program.answers -= 1

    def _merge(self, program: Program, other: Program) -> None:
        """Two programs turn out to be one."""
        for address in other.sockets:
            self[address] = program
        program.sockets += other.sockets
        program.more_hosts = [*dict.fromkeys((*program.more_hosts, *other.more_hosts))]
        program.longest_relay_ns = max(program.longest_relay_ns, other.longest_relay_ns)
        program.answers += other.answers
        program.longest_reply_ns = max(program.longest_reply_ns, other.longest_reply_ns)
        program.jobs += other.jobs
        program.passed_jobs += other.passed_jobs
        program.handled += other.handled
        program.unjoined_ns = max(program.unjoined_ns, other.unjoined_ns)
        program.since = min(program.since or other.since, other.since or program.since)
        program.reached += other.reached
        program.keeps_order &= other.keeps_order
        program.is_parallel |= other.is_parallel
        if other.sent_ns > program.sent_ns:
            program.sent_ns, program.way, program.other_ns = other.sent_ns, other.way, other.other_ns

    def end(self, address: str) -> None:
        """The connection of a client is over: its address sends nothing more."""
        program = self.get(address)
        if program is None:
            return
        if program.sockets == [address]:
            program.way = None
            if not program.handled:
                del self[address]  # nothing is known of it
                return
        self._ended.pop(address, None)
        self._ended[address] = None
        if len(self._ended) > _ENDED:
            self._forget(next(iter(self._ended)))

    def _forget(self, address: str) -> None:
        """Forget a socket that was closed long ago, unless it names its program."""
        del self._ended[address]
        program = self.get(address)
        if program is not None and program.sockets[0] != address:
            program.sockets.remove(address)
            del self[address]

    def forget(self, way: OpenWay) -> None:
        """The record of a way is made: no program keeps it in memory."""
        for hop in way.hops:
            program = self.get(hop.src)
            if program is not None and program.way is way:
                program.way = None

    def likely(self, options: Sequence[Hop], hop: Hop) -> Hop:
        """The one of several equal messages that the sender of ``hop`` most likely took, and passes on.

        That is the one that a socket of its own program took. If that socket is not known yet, it is one whose program
        has passed nothing on so far.
        """
        sender = self.get(hop.src)
        takers = [self.get(one.dst) for one in options]
        own = [one for one, taker in zip(options, takers, strict=True) if taker is sender is not None]
        free = [one for one, taker in zip(options, takers, strict=True) if taker is None or taker.longest_relay_ns < 0]
        return (own or free or options)[0]

    def are_two(self, before: Hop, hop: Hop) -> bool:
        """Whether the taker of ``before`` and the sender of ``hop`` both pass messages on, as two programs so far."""
        taker, sender = self.get(before.dst), self.get(hop.src)
        if taker is sender or taker is None or sender is None:
            return False
        return min(taker.longest_relay_ns, sender.longest_relay_ns) >= 0

    def hosts(self, address: str) -> Collection[str]:
        """The host of a socket, or all addresses of its program if that has several."""
        program = self.get(address)
        return (host_of(address),) if program is None or not program.more_hosts else program.more_hosts

    def take_job(self, hop: Hop) -> None:
        """A program takes a job: number it."""
        program = self[hop.dst]
        program.jobs += 1
        hop.number = program.jobs

    def pass_job_on(self, job: Hop) -> None:
        """A program passes a job on, or the result of one."""
        program = self[job.dst]
        program.passed_jobs += 1
        job.stream.is_followed = True
        program.since = min(program.since or job.number, job.number)
        program.keeps_order &= job.number >= program.reached
        program.reached = max(program.reached, job.number)

    def begin_job(self, hop: Hop) -> None:
        """A program sends a job that comes of none that it took, as far as the octets tell."""
        if hop.stream.carries_results:
            self[hop.src].unjoined_ns = hop.time_ns

    def send(self, hop: Hop) -> None:
        """A program sends a message: note until when it worked on others before, if it works on one at a time."""
        before = hop.before
        if before is not None and hop.shows_program:
            self._pass_on(before, hop)
        program = self[hop.src]
        if before is not None and before.flow == hop.flow:
            stream, taken_ns = before.stream, before.time_ns
            if taken_ns < stream.answered_ns:
                program.is_parallel = True
            stream.answered_ns = taken_ns
        if program.way is not hop.way:
            program.other_ns = program.sent_ns
            program.way = hop.way
        if hop.free_ns >= 0:
            hop.busy_until_ns = hop.free_ns
        elif not program.is_parallel:
            hop.busy_until_ns = program.other_ns
        program.sent_ns = hop.time_ns


def _differs_by_one_id(before: Hop, hop: Hop) -> bool:
    """Whether a broker put just one id in front of a message, or took one away; the delimiter is no id."""
    longer, shorter = (before.frames, hop.frames) if hop.reply else (hop.frames, before.frames)
    return sum(map(bool, longer[: max(len(longer) - len(shorter), 0)])) == 1


def _lacks_leg(before: Hop, hop: Hop) -> bool:
    """Whether one program cannot have made a message of the one before, so that the capture lacks a leg in between.

    It would have put two ids in front, or taken two away, or answered on another connection.
    """
    if hop.reply and not before.reply and before.dst != hop.src:
        return True
    longer, shorter = (before.frames, hop.frames) if hop.reply else (hop.frames, before.frames)
    extra = len(longer) - len(shorter)
    return extra > 1 and sum(map(bool, longer[:extra])) > 1 and longer[extra:] == shorter
