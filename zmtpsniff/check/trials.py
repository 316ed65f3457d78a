"""A rule of a policy while it checks a capture: the parts that all kinds of rules share."""

from collections.abc import Callable
from io import StringIO

from dissectors.events import AnyEvent, Connection, time_of
from zmtpsniff.check.model import Offence, Outcome, Rule, not_checked
from zmtpsniff.check.span import Span
from zmtpsniff.render.summary import SummaryRenderer
from zmtpsniff.words.counts import plural

Place = Callable[[int], tuple[str, int] | None]
"""The file that has the packet of this number, and its number there."""


class Shower:
    """Turns records into the lines that reports show."""

    def __init__(self, shown: int, utc: bool, place: Place | None) -> None:
        """Keep ``shown`` records of each rule."""
        self.shown = shown
        self._utc = utc
        self._place = place

    def offence(self, event: AnyEvent, remark: str = "") -> Offence:
        """A record on one line, as ``-T summary`` shows it, after a remark."""
        stream = StringIO()
        SummaryRenderer(stream, utc=self._utc, color="never", aligned=False).write([event])
        text = stream.getvalue().rstrip("\n")
        time_ns = time_of(event)
        text = f"{remark}: {text}" if remark else text
        return self.said(text, getattr(event, "packet", None), getattr(event, "flow", None), time_ns)

    def said(self, text: str, packet: int | None, flow: int | None, time_ns: int | None) -> Offence:
        """A text about a packet, with the file that has the packet."""
        file, file_packet = (self._place(packet) if self._place and packet else None) or (None, None)
        return Offence(text, packet, flow, time_ns, file, file_packet)


class Trial:
    """One rule, and the events so far that count for it."""

    def __init__(self, rule: Rule, shower: Shower) -> None:
        """``shower`` makes the lines of records that break the rule."""
        self.rule = rule
        self.shower = shower
        self.shown = shower.shown
        self.offences: list[Offence] = []
        self.more = 0
        self.seen = 0  # connections
        self.unseen = 0  # those that do not show what the rule is about

    def see(self, connection: Connection, passes: bool) -> None:
        """A connection is over. The rule counts it if it ``passes`` the display filter. end() comes next."""
        self.seen += 1
        if passes and self.rule.unseen is not None and self.rule.unseen(connection):
            self.unseen += 1

    def take(self, event: AnyEvent) -> None:
        """Look at a record."""

    def end(self, connection: Connection) -> None:
        """The connection is over."""

    def finish(self, span: Span) -> Outcome:
        """The outcome; ``span`` is the time that the capture took."""
        raise NotImplementedError

    def note(self, event: AnyEvent, remark: str = "") -> None:
        """Keep a record that breaks the rule, if it is one of the first."""
        if len(self.offences) < self.shown:
            self.offences.append(self.shower.offence(event, remark))
        else:
            self.more += 1

    def outcome(self, passed: bool, found: str) -> Outcome:
        """The outcome, with the records that were kept."""
        return Outcome(self.rule, passed, found, self.offences, self.more)

    def counted(self, count: float, found: str) -> Outcome:
        """The outcome if ``count`` has bounds, unless the capture may lack a part of what is counted."""
        least, most = self.rule.bounds.least, self.rule.bounds.most
        too_many = most is not None and count > most
        too_few = least is not None and count < least
        if too_few and self.unseen:
            return self.not_checked()
        if not too_many and not too_few and most is not None and (self.unseen or not self.seen):
            return self.not_checked()
        return self.outcome(not too_many and not too_few, found)

    def not_checked(self) -> Outcome:
        """The outcome where connections do not show what the rule asks for."""
        if not self.seen:
            return not_checked(self.rule, "there is no ZMTP connection in the capture")
        which = f"{self.unseen:,} of {plural(self.seen, 'connection')}"
        return not_checked(self.rule, f"{which} began before the capture, which does not show what the rule asks for")

    def fits(self, count: float) -> bool:
        """Whether a number is within the bounds of the rule."""
        least, most = self.rule.bounds.least, self.rule.bounds.most
        return (least is None or count >= least) and (most is None or count <= most)

    def wanted(self) -> str:
        """The bounds of the rule in words."""
        least, most = self.rule.bounds.least, self.rule.bounds.most
        if most == 0:
            return "none allowed"
        if least == most:
            return f"exactly {least:,} expected"
        limits = [] if least is None else [f"at least {least:,}"]
        limits += [] if most is None else [f"at most {most:,}"]
        return f"{' and '.join(limits)} expected"
