"""Joins what a PUSH sends: jobs that workers pass on, their results, and replies to requests."""

from zmtpsniff.analysis.ways.hops import Hop, OpenWay
from zmtpsniff.analysis.ways.join_tables import JoinTables
from zmtpsniff.analysis.ways.open_ways import OpenWays
from zmtpsniff.analysis.ways.way_records import Joined


class JobJoins:
    """Finds the message of which a pushed one comes, or begins a way with it."""

    def __init__(self, tables: JoinTables, ways: OpenWays) -> None:
        """``tables`` have the messages that hosts hold; new ways are added to ``ways``."""
        self._ways = ways
        self._held = tables.held
        self._equal = tables.equal
        self._correlation = tables.correlation
        self._pushed = tables.pushed
        self._programs = tables.programs

    def join(self, hop: Hop) -> None:
        """Join what a PUSH sends: a job passed on, the result of a job, or replies to requests; else begin a way."""
        alike = [one for one in self._equal.before(hop) if one.stream.dst_kind == "PULL"]
        if alike:
            before, is_certain = self._equal.original(alike, hop)
            self.pass_on(hop, before, "body", is_certain=is_certain)
        elif (related := self._correlation.find(hop)) is not None:
            self.pass_on(hop, related, "correlation", is_certain=self._is_of_same_program(hop, related))
        elif asked := self._pushed.answered_by(hop):
            self._answer_pushed(hop, asked)
        else:
            self._programs.begin_job(hop)
            self._ways.begin(OpenWay.begin("job", hop))
        self._programs.take_job(hop)
        self._held.add(hop)
        self._correlation.add(hop)

    def pass_on(self, hop: Hop, before: Hop, joined: Joined, *, is_certain: bool) -> None:
        """A program passes a job on, or sends its result."""
        is_new, before.is_passed_on = not before.is_passed_on, True
        self._held.remove(before)
        before.way.add(hop, before, joined, certain=is_certain)
        hop.stream.carries_results |= joined == "correlation"
        if is_new and (joined == "body" or not hop.is_guess):
            self._programs.pass_job_on(before)

    def _answer_pushed(self, hop: Hop, asked: dict[Hop, bool]) -> None:
        """A pushed message has the replies to the requests ``asked``: it is a leg of the way of each."""
        for place, (request, is_certain) in enumerate(asked.items()):
            way = request.way
            self._programs[request.dst].is_parallel |= len(asked) > 1
            request.note_answer()
            self._held.remove(request)
            way.add(hop if not place else hop.copy(), request, "correlation", certain=is_certain, reply=True)
            if request is way.first:
                self._ways.answer(way)

    def _is_of_same_program(self, hop: Hop, related: Hop) -> bool:
        """Whether the program that sends a message took the ``related`` one, which has the same id.

        On one host all programs may have one address, and other programs know the id as well: the sender of
        that message, or one that has the id for its name. There, only many messages show it: if all of them are related
        to messages of one socket.
        """
        if not hop.stream.is_local or (hop.stream.knows_sender and related.stream.knows_receiver):
            return True
        hop.stream.note_source(related)
        return hop.stream.is_proven
