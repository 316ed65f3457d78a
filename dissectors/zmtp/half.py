"""One side of a connection: its octets, and who of its parts reads them next.

    opening ── its greeting is over ──▶ frames, unproven or messages
    unproven ── the connection is proven to be ZMTP ──▶ frames
    opening, frames, unproven, messages ── its place in the stream is lost ──▶ search
    search ── its place is found ──▶ frames, unproven or messages
    any ── nothing that follows can be read ──▶ over

`opening` is the greeting (:mod:`dissectors.zmtp.opening`). In `unproven` the side reads frames that may be ZMTP 1.0 or
something else (:mod:`dissectors.zmtp.evidence`). In `frames` it reads frames of ZMTP 1.0, 2.0 and later
(:mod:`dissectors.zmtp.framing`). In `messages` it reads frames inside WebSocket (:mod:`dissectors.zmtp.websocket`). In
`search` it looks for its place (:mod:`dissectors.zmtp.lost`).

A half reports to the pair what matters to the other side, or to the connection, and reads in its turn
(:mod:`dissectors.zmtp.pair`). In `frames` and `messages` a side finds out nothing of that kind. So there
:meth:`Half.feed` calls the reader and asks nobody.
"""

from functools import partial
from typing import Literal

from dissectors.events import UNBOUNDED, AnyEvent, Octets, Side
from dissectors.snapshots import LATER, Live, Part, SnapshotError, quick
from dissectors.zmtp import agreement, evidence
from dissectors.zmtp.box_reader import BoxReader
from dissectors.zmtp.buffer import Buffer, Read, collect
from dissectors.zmtp.framing import FrameReader
from dissectors.zmtp.journal import Journal, Moment, Tally
from dissectors.zmtp.limits import Limits
from dissectors.zmtp.lost import Found, LostPlace, Repetition
from dissectors.zmtp.opening import Fact, Opening
from dissectors.zmtp.pair import Pair
from dissectors.zmtp.resync import Discovery
from dissectors.zmtp.search import Search, Segment
from dissectors.zmtp.security import Security
from dissectors.zmtp.session import Session
from dissectors.zmtp.websocket import WebSocketReader

Stage = Literal["opening", "unproven", "frames", "messages", "search", "over"]


def _pass_over(data: bytes, position: int) -> int:
    """Octets of which nothing can be known."""
    return len(data)


@quick
class Half(Part):
    """The octets of one side."""

    _pair: Live[Pair["Half"]]
    side: Live[Side]
    journal: Journal
    buffer: Buffer
    opening: Opening
    session: Session
    box_reader: BoxReader
    stage: Stage = "opening"
    reader: FrameReader | WebSocketReader | None = None  # of unproven, frames and messages
    lost: LostPlace | None = None  # of search
    _read: Live[Read] = LATER  # takes the octets that come
    _part: Live[Read] = LATER  # takes octets in its turn
    _again: Live[Repetition | None] = None

    @classmethod
    def begin(
        cls, pair: Pair["Half"], journal: Journal, side: Side, security: Security, limits: Limits, from_start: bool,
        forced: int | None,
    ) -> "Half":  # fmt: skip
        """A half that reads what ``side`` sends; ``from_start`` if its first octets are the first of its stream.

        ``forced`` is as in :class:`~dissectors.zmtp.opening.Opening`.
        """
        buffer = Buffer()
        opening = Opening(buffer, side, from_start, forced)
        session = Session(journal, side, security, limits)
        return cls(pair, side, journal, buffer, opening, session, BoxReader(session))

    def __post_init__(self) -> None:
        """Read the opening first."""
        self._read, self._part = self._enter, self._read_opening

    def _pass_to(self, stage: Stage) -> None:
        """The part of this stage takes the octets from now on."""
        self.stage = stage
        self._read = self._enter
        match stage:
            case "opening":
                self._part = self._read_opening
            case "unproven":
                self._part = self._read_unproven
            case "search":
                self._part = self._read_lost
            case "over":
                self._read = self._part = _pass_over
            case _:
                assert self.reader is not None
                self._read = self._part = self.reader.read

    # ------------------------------------------------------------------ octets

    def feed(self, data: bytes, time_ns: int, packet: int, begin: int = 0, seen: int = UNBOUNDED) -> None:
        """Take the next octets of the stream, one at least, which packet ``packet`` brought at ``time_ns``.

        They begin at ``begin`` of the stream. Their sender had seen the other side's octets before ``seen`` at most.
        """
        journal, buffer, size = self.journal, self.buffer, len(data)
        if buffer.held:
            self._feed_behind(data, (time_ns, packet, begin, seen))
            return
        journal.time_ns = time_ns
        journal.packet = packet
        journal.begin = begin
        journal.seen = seen
        buffer.octets += size
        # Nearly always the segment holds whole frames, so that nothing has to be kept.
        read = self._read
        buffer.need = 1
        reached = read(data, 0)
        if reached == size:
            return
        if buffer.need > size - reached and self.stage == "frames":
            buffer.hold(data, reached)  # it has said so of the octets from there on
        else:
            self._enter(data, reached)

    def _feed_behind(self, data: bytes, moment: Moment) -> None:
        """Take octets behind those that wait. A search for frames in them needs the facts of each segment."""
        buffer, journal = self.buffer, self.journal
        if (search := self.search) is not None:
            search.segment(buffer.held, *moment)
        elif self.opening.state == "perhaps start":
            early = self.opening.segments
            if not early:
                early.append(Segment(0, *journal.moment()))
            early.append(Segment(buffer.held, *moment))
        journal.go_to(moment)
        buffer.octets += len(data)
        whole = buffer.add(data)
        if whole is not None:
            self._enter(whole, 0)

    def _enter(self, data: bytes, position: int) -> int:
        """Read in this half's turn, which begins here, unless it has begun. Returns where the octets end.

        The part whose turn it is takes octets, then the part that follows it, until one waits. Then the rest waits.
        """
        buffer, turns, end = self.buffer, self._pair.turns, len(data)
        is_new = not turns.is_of(self)
        if is_new:
            turns.add(self)
        if buffer.held:
            buffer.clear()
        while position < end:
            buffer.need = 1
            if not turns.is_of(self):
                break
            reader = self.reader
            if reader is not None and reader.failure is not None:
                if reader.failure == "lost":
                    self._lose()
                else:
                    self._die()
            part = self._part
            before, position = position, part(data, position)
            if position == before and part is self._part and (reader is None or reader.failure is None):
                break
        if position < end:
            buffer.hold(data, position)
        if is_new:
            if len(turns) == 1 and self._again is None:
                turns.clear()  # nearly always the other side has nothing to read
            else:
                turns.settle()
        return end

    def go_on(self) -> None:
        """Read on in this half's turn: first the octets that wait, then those that were searched.

        An identity of no octets may end the greeting, though no octets wait.
        """
        turns, opening = self._pair.turns, self.opening
        opening.word()
        if opening.fact is not None:
            self._react(opening.fact)
        if self.buffer.held and turns.is_of(self):
            self._enter(self.buffer.content, 0)
        while self._again is not None and turns.is_of(self):
            self._read_piece(self._again)

    # ------------------------------------------------------------------ settled flows

    def carry(self) -> bytes | None:
        """The octets so far of a message that is not over; None if this side does not just read frames of messages."""
        reader, session = self.reader, self.session
        if self.stage != "frames" or not isinstance(reader, FrameReader) or reader.body is not None:
            return None
        if reader.framing != 2 or reader.failure is not None or self._again is not None or self._pair.turns:
            return None
        if not (session.look() if session.plain is None else session.plain):
            return None
        return session.carry(self.buffer.content)

    def go_on_from(self, moment: Moment, octets: int, tally: Tally, carry: bytes) -> None:
        """Go on behind so many ``octets`` whose messages were read; ``carry`` has those of one that is not over.

        ``moment`` is that of the octets read last. ``tally`` counts the messages since, as a Journal does.
        """
        journal, buffer = self.journal, self.buffer
        journal.go_to(moment)
        earlier, counted, part = tally
        journal.tally = (journal.earlier + earlier, counted, part)
        buffer.octets += octets
        buffer.clear()
        self.session.parts = []
        if carry:
            assert self.reader is not None
            buffer.run(self.reader.read, carry)

    # ------------------------------------------------------------------ what others ask

    @property
    def stopped(self) -> bool:
        """Whether nothing more can be read of this side."""
        return self.stage == "over"

    @property
    def is_absent(self) -> bool:
        """Whether this side is taken not to be in the capture."""
        return self.opening.state == "absent"

    @property
    def topics(self) -> list[Octets]:
        """The topics that this side subscribes to, encrypted or not."""
        inside = self.box_reader.inside
        return [*self.session.topics, *(() if inside is None else inside.topics)]

    @property
    def search(self) -> Search | None:
        """The search for frames, if one is going on."""
        return None if self.lost is None else self.lost.frames

    # ------------------------------------------------------------------ what the pair says

    def stop(self) -> None:
        """Read nothing more of this side."""
        self._pass_to("over")
        self.opening.turn("end")
        self.reader = None
        self.lost = None
        self.buffer.clear()

    def prove(self, out: list[AnyEvent]) -> None:
        """The connection is ZMTP: from now on the events of this half go to ``out``."""
        self.journal.out = out
        self.opening.proven = True
        self.opening.evidence = None
        if (search := self.search) is not None:
            search.known = True
        if self.stage == "unproven":
            self._pass_to("frames")

    def expect(self, framing: int) -> None:
        """Frames of this side have this framing (0: nobody knows), when they come or are found."""
        self.opening.framing = framing
        if (search := self.search) is not None:
            search.framing = framing

    def release(self) -> None:
        """Break the references back to this side, so that its memory is freed at once. Call nothing else afterwards."""
        self._read = self._part = _pass_over
        self.lost = None
        self.session.release()
        self.box_reader.release()
        del self._pair, self.opening.other

    def absent(self, time_ns: int, packet: int) -> None:
        """The capture has no packet of this side so far, though the other side answers it. Some may still come."""
        if self.stage == "opening" and not (self.buffer.octets or self.is_absent):
            self.journal.go_on_at(time_ns, packet)
            self.opening.turn("absence")
            self._pair.take(self, "silence")

    def conflict(self, offset: int, length: int, time_ns: int, packet: int) -> None:
        """Octets already read came again with another value."""
        journal = self.journal
        journal.time_ns = max(journal.time_ns, time_ns)
        journal.packet = max(journal.packet, packet)
        journal.problem(
            "overlap-differs",
            f"{length} octets at stream offset {offset} came again with another value, which is not used",
        )

    # ------------------------------------------------------------------ the greeting

    def _read_opening(self, data: bytes, position: int) -> int:
        """Octets of the greeting."""
        opening = self.opening
        position = opening.read(data, position)
        if opening.fact == "messages":
            return self._begin_messages(data, position)
        if opening.fact is not None:
            self._react(opening.fact)
        return position

    def _react(self, fact: Fact) -> None:
        """Report what the opening has found out, and tell the pair."""
        opening, pair = self.opening, self._pair
        faults = opening.faults
        opening.fact, opening.faults = None, ()
        if opening.is_proof:
            pair.take(self, "proof")
        if fact == "refusal":
            pair.refuse(self, *faults[0])
            return
        if fact == "upgrade" or (fact == "greeting" and opening.greeting is not None):
            self._report_greeting()
        self.journal.problems(faults)
        match fact:
            case "type":
                self.session.set_socket_type(opening.socket_type)
                return
            case "unreadable":
                self._die()
                return
            case "identity":
                self.session.identity = opening.identity
                self._report_greeting()
                self.begin_frames(opening.framing)
            case "unknown":
                self._begin_search()
        pair.take(self, fact)

    def _report_greeting(self) -> None:
        opening = self.opening
        self.session.greet(opening.version, opening.mechanism, opening.as_server)

    def report_part_of_greeting(self) -> None:
        """Report a greeting that will not be whole."""
        opening = self.opening
        if opening.end_with(self.buffer.content):
            self._report_greeting()
            self.journal.problems(opening.faults)
            opening.faults = ()

    # ------------------------------------------------------------------ frames

    def begin_frames(self, framing: int) -> None:
        """Read frames of this framing from here on."""
        self.opening.framing = framing
        is_unproven = framing == 1 and not self.opening.proven
        reader = FrameReader(self.buffer, self.session, framing)
        self._pass_to_reader(reader, "unproven" if is_unproven else "frames")

    def _pass_to_reader(self, reader: FrameReader | WebSocketReader, stage: Stage) -> None:
        """The greeting is over, or the place in the stream is found again: ``reader`` takes the octets from here on."""
        self.opening.turn("end of greeting")
        self.lost = None
        self.reader = reader
        self._pass_to(stage)

    def _read_unproven(self, data: bytes, position: int) -> int:
        """Read frames of ZMTP 1.0 while nothing proves that they are. A frame that is not legal disproves it."""
        opening, reader = self.opening, self.reader
        assert reader is not None
        assert opening.evidence is not None
        if reader.body is not None:
            position = collect(reader, data, position)
            if reader.body is None:
                opening.evidence.end_frame()
            return position
        stop, legal = opening.evidence.frames(data, position)
        while position < stop:
            position += reader.read(data[position:stop], 0)
        self._pair.take(self, "evidence")
        if opening.proven or (legal and not self.stopped):
            return reader.read(data, position)
        other = opening.other
        if other.evidence is None and not other.will_not_tell:
            # The beginning of the connection may prove that this should have been a frame.
            self.buffer.need = evidence.UNPROVEN_LIMIT
        else:
            opening.evidence = None
            self._pair.take(self, "illegal")
        return position

    def _begin_messages(self, data: bytes, position: int) -> int:
        """Take frames inside WebSocket. Returns how far the octets are read."""
        opening, session = self.opening, self.session
        opening.fact = None
        if opening.other.state == "over" and session.security.failed:
            return len(data)
        identity = agreement.begins_with_identity(opening, data, position)
        reader = WebSocketReader(self.buffer, session, agreement.inflater(opening), identity)
        self._pass_to_reader(reader, "messages")
        return position

    def _die(self) -> None:
        """Nothing after this can be read."""
        self.session.flush(None if self.reader is None else self.reader.rest)
        self.stop()

    # ------------------------------------------------------------------ gaps

    def gap(self, length: int, cut: bool, time_ns: int, packet: int) -> None:
        """``length`` octets of the stream are not in the capture; ``cut`` if the snaplen cost them."""
        journal, buffer = self.journal, self.buffer
        if self.opening.hurry():
            self._pair.turns.wake(self)
        self.search_now(length if cut else 0, before_gap=True)
        since_ns = journal.time_ns
        journal.go_on_at(time_ns, packet)
        offset = buffer.octets
        buffer.octets += length
        if self.stopped:
            return
        if cut:
            detail = f"packets are cut short by the snaplen, first at stream offset {offset}"
            journal.problem_once("packets-cut", detail)
        else:
            journal.problem("capture-gap", f"{length} octets are missing at stream offset {offset}", since_ns)
        self._skip(length)

    def lose(self, code: str, detail: str, time_ns: int, packet: int) -> None:
        """Take note that an unknown number of octets is missing; ``code`` and ``detail`` report that as a problem.

        So no body is certain to continue after them, and a search for frames begins.
        """
        self.search_now(before_gap=True)
        self.journal.go_on_at(time_ns, packet)
        if self.stopped:
            return
        self.journal.problem(code, f"{detail}, at stream offset {self.buffer.octets}")
        self._skip(None)

    def _skip(self, length: int | None) -> None:
        """Go on after a gap of ``length`` octets, None if nobody knows how many."""
        opening = self.opening
        if self.is_absent:
            opening.begin()
        if opening.other.upgraded and not opening.upgraded:  # the hole is in its HTTP head
            opening.upgraded = True
            opening.upgrade = None
            self._lose()
            self._pair.take(self, "lost")
        elif opening.upgraded or opening.greeted or self.lost is not None:
            self._skip_frames(length)
        elif opening.state == "perhaps start":
            self.buffer.clear()  # behind the hole as much is known as before it
        else:
            self._skip_greeting(length)

    def _skip_greeting(self, length: int | None) -> None:
        opening, buffer = self.opening, self.buffer
        held = buffer.content
        buffer.clear()
        end = None if length is None else buffer.octets
        begin = buffer.octets - (length or 0) - len(held)
        opening.silent = True
        self._pair.take(self, "silence")
        if self.stopped:
            return
        opening.skip(held, begin, end)
        if opening.fact == "unknown":
            opening.fact = None
            self.report_part_of_greeting()
            self._begin_search()
            self.expect(opening.other.framing)
            self._pair.take(self, "lost")
        elif opening.fact is not None:
            self._react(opening.fact)

    def _skip_frames(self, length: int | None) -> None:
        """Go on if the hole is inside the body of a frame: then the frame loses only the octets of the hole."""
        if self.lost is not None:
            self.lost.skip(length)
            return
        reader = self.reader
        # In `unproven`, nobody knows yet whether what waits is a frame.
        shut = reader is None or (self.stage == "unproven" and reader.body is None)
        if shut or not reader.skip(length):  # type: ignore[union-attr]
            self._lose()

    def _lose(self) -> None:
        """A header is lost: report the part of a message that has come, and search for frames."""
        self.session.flush(None if self.reader is None else self.reader.rest)
        self._begin_search()
        self.session.lose()

    # ------------------------------------------------------------------ finding frames again

    def _begin_search(self) -> None:
        self.reader = None
        self.buffer.clear()
        self.opening.turn("end of greeting")
        self.lost = self._lost_place()
        self._pass_to("search")

    def _lost_place(self) -> LostPlace:
        return LostPlace(self.buffer, self.session, self.opening, partial(self._pair.believes, self))

    def _read_lost(self, data: bytes, position: int) -> int:
        """Octets in which the place is searched that this side has lost."""
        lost = self.lost
        assert lost is not None
        reached = lost.read(data, position)
        if lost.found is not None:
            self._go_on_at(lost.found)
        elif lost.hopeless:
            self._die()
            self._pair.take(self, "hopeless")
        return reached

    def _go_on_at(self, found: Found) -> None:
        """Go on at the place where frames begin again; they may be lost once more, and found further on."""
        skipped, pieces, reader = found
        if isinstance(reader, Discovery):
            self.session.found(reader.doubtful)
            self.begin_frames(reader.framing)
        else:
            self._pass_to_reader(reader, "messages")
            self.session.damage()  # the first message may lack its beginning
        if not pieces:
            self._report_found(skipped)
            return
        journal = self.journal
        self.buffer.octets -= sum(len(octets) for octets, *_ in pieces)
        place = journal.moment()
        _, journal.time_ns, journal.packet, _, _ = pieces[0]
        self._report_found(skipped)
        if self._again is None:
            self._again = Repetition(place)
        self._again.pieces.extendleft(reversed(pieces))

    def _read_piece(self, again: Repetition) -> None:
        """Read the next piece of what was searched; behind the last one go back to the place in the stream."""
        journal = self.journal
        if again.out is None:
            again.out, again.begin = journal.out, len(journal.out)
        if again.pieces:
            data, time_ns, packet, offset, seen = again.pieces.popleft()
            # The capture does not tell what this sender has seen: it may have seen nothing. Its events may answer
            # events that were given out already.
            self.feed(data, time_ns, packet, offset, -1 if seen == UNBOUNDED else seen)
        else:
            self._again = None
            journal.go_to(again.place)
            self._pair.read_again(self, again.out, again.begin)

    def _report_found(self, skipped: int) -> None:
        """Frames were found after ``skipped`` octets in which none were."""
        if self.opening.proven and self.opening.greeted:
            detail = f"zmtpsniff found the next frame after {skipped} octets; only what follows proved it, "
            self.journal.problem("frames-found-again", detail + "so answers of the other side may stand above")
        else:
            self._pair.found(self, skipped)
        self.opening.greeted = True

    def search_now(self, cut: int = 0, before_gap: bool = False) -> None:
        """Search in the octets at hand, because no more will come that continue them.

        The snaplen cut ``cut`` octets off their end. Octets before a gap are searched for the last time. Other octets
        stay, since the other side may yet show what they are.
        """
        search = self.search
        if search is not None and self.buffer.held:
            search.try_at = 0
            search.cut, search.ends = cut, before_gap
            self._pair.turns.wake(self)
            search.cut, search.ends = 0, False

    # ------------------------------------------------------------------ snapshots

    def make(self, kind: type[Part]) -> Part:
        """Make a reader, or a search."""
        if kind is LostPlace:
            return self._lost_place()
        if kind is WebSocketReader:
            return WebSocketReader(self.buffer, self.session, None, False)
        return FrameReader(self.buffer, self.session)

    def after_load(self) -> None:
        """Go on in the stage of the snapshot."""
        fits = {
            "frames": isinstance(self.reader, FrameReader),
            "unproven": isinstance(self.reader, FrameReader) and self.opening.evidence is not None,
            "messages": isinstance(self.reader, WebSocketReader),
            "search": self.lost is not None,
        }
        if not fits.get(self.stage, True):
            raise SnapshotError(f"not a snapshot: nobody reads {self.stage}")
        self._pass_to(self.stage)
