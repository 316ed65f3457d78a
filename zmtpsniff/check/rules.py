"""Checks events against rules, in one pass. Memory does not grow with the number of records."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from dissectors.events import AnyEvent, Capture, Command, Connection, Message
from zmtpsniff.analysis.statistics.sketch import Sketch
from zmtpsniff.check.defaults import SHOWN, TOLD
from zmtpsniff.check.endpoints import Complaint, limits_of
from zmtpsniff.check.model import PATTERNS, Filter, Kind, Offence, Outcome, Rule, not_checked
from zmtpsniff.check.sequences import Sequences
from zmtpsniff.check.services import Services
from zmtpsniff.check.sight import has_handshake
from zmtpsniff.check.span import Span
from zmtpsniff.check.trials import Place, Shower, Trial
from zmtpsniff.words.counts import plural
from zmtpsniff.words.durations import NS, duration

if TYPE_CHECKING:
    from zmtpsniff.analysis.findings import Diagnosis
    from zmtpsniff.analysis.findings.finding import Finding

# Records come nearly in the order of their times. So long after a second, no more records of it come.
_LATE_SECONDS = 300


class Check:
    """Takes all events of a capture, in order, and gives the outcome of each rule."""

    def __init__(
        self,
        rules: Sequence[Rule],
        shown: int = SHOWN,
        utc: bool = False,
        place: Place | None = None,
        passes: Filter | None = None,
        diagnosis: "Diagnosis | None" = None,
    ) -> None:
        """``shown`` is how many offending records of each rule to keep, with times in UTC or local time.

        Rules see only events that ``passes`` accepts, and the ends of all connections. ``diagnosis`` is for rules on
        findings. Without one, they get a diagnosis that sees nothing below the octets of connections.
        """
        shower = Shower(shown, utc, place)
        self.totals: Capture | None = None  # the last record, once it has come
        self.span = Span()
        endpoints = [rule.endpoint for rule in rules if rule.endpoint is not None]
        # One sum by service answers all demands that are made of services.
        self._services = Services(limits_of(endpoints)) if endpoints else None
        self._diagnosis = diagnosis
        if diagnosis is None and any(rule.kind == "no_findings" for rule in rules):
            from zmtpsniff.analysis.findings import Diagnosis

            self._diagnosis = Diagnosis()
        self._findings: Sequence[Finding] | None = None
        self._trials = [self._trial(rule, shower) for rule in rules]
        self._takes: dict[type, list[Callable[[AnyEvent], None]]] = {}  # what wants records of a type
        self._passes = passes

    def take(self, events: Sequence[AnyEvent]) -> None:
        """Hold a batch of events against all rules."""
        takes = self._takes
        passes = self._passes
        ended = []
        for event in events:
            passed = passes is None or passes(event)
            if passed:
                kind = type(event)
                if kind not in takes:
                    takes[kind] = self._interested(kind)
                for take in takes[kind]:
                    take(event)
            if type(event) is Connection:
                ended.append((event, passed))
        if self._diagnosis is not None:
            self._diagnosis.take(events)
        if self._services is not None:
            self._services.take(events if passes is None else list(filter(passes, events)))
        # Problems found at the end of a connection follow its record, in the same batch.
        for connection, passed in ended:
            for trial in self._trials:
                trial.see(connection, passed)
                trial.end(connection)
        self.span.take(events)
        if events and isinstance(last := events[-1], Capture):
            self.totals = last

    def _interested(self, kind: type) -> list[Callable[[AnyEvent], None]]:
        """The functions to call with records of a type. Messages are many, and few built-in rules look at them."""
        return [trial.take for trial in self._trials if trial.rule.kinds is None or kind in trial.rule.kinds]

    def _trial(self, rule: Rule, shower: Shower) -> Trial:
        if self._services is not None and rule.kind == "endpoint":
            return _AtEndpoint(rule, shower, self._services)
        if rule.kind == "no_findings":
            from zmtpsniff.check.diagnoses import NoFindings

            return NoFindings(rule, shower, self._diagnosed)
        if rule.kind in _TRIALS:
            return _TRIALS[rule.kind](rule, shower)
        if rule.bounds.per == "connection":
            return _InConnections(rule, shower)
        if rule.bounds.per == "second" and not rule.bounds.mean:
            return _InSeconds(rule, shower)
        return _InCapture(rule, shower)

    def _diagnosed(self) -> "Sequence[Finding]":
        """The findings of the diagnosis, which can be asked once."""
        if self._findings is None:
            self._findings = [] if self._diagnosis is None else self._diagnosis.findings()
        return self._findings

    def finish(self) -> list[Outcome]:
        """How every rule fared, in their order; nothing may be taken after that."""
        return [trial.finish(self.span) for trial in self._trials]


class _InCapture(Trial):
    """How many records there are in all, or how many a second on average."""

    def __init__(self, rule: Rule, shower: Shower) -> None:
        super().__init__(rule, shower)
        (self._filter,) = rule.filters
        # Of a mean no single record is one too many.
        self._most = None if rule.bounds.mean else rule.bounds.most
        self._count = 0

    def take(self, event: AnyEvent) -> None:
        if self._filter(event):
            self._count += 1
            if self._most is not None and self._count > self._most:
                self.note(event)

    def finish(self, span: Span) -> Outcome:
        if not self.rule.bounds.mean:
            return self.counted(self._count, f"found {plural(self._count, 'record')}, {self.wanted()}")
        rate = self._count / span.seconds
        found = f"found {rate:,.2f} records a second ({plural(self._count, 'record')} in {span.seconds:,.1f} s)"
        return self.counted(rate, f"{found}, {self.wanted()}")


class _InConnections(Trial):
    """How many records there are on each connection."""

    def __init__(self, rule: Rule, shower: Shower) -> None:
        super().__init__(rule, shower)
        (self._filter,) = rule.filters
        self._counts: dict[int, int] = {}
        self._excess: dict[int, Offence] = {}  # the first record of a connection that is one too many
        self._most = rule.bounds.most
        self._connections = 0
        self._wrong = 0

    def take(self, event: AnyEvent) -> None:
        if not self._filter(event):
            return
        flow = getattr(event, "flow", None)
        if flow is None:
            return
        count = self._counts.get(flow, 0) + 1
        self._counts[flow] = count
        if self._most is not None and count > self._most and flow not in self._excess:
            self._excess[flow] = self.shower.offence(event)

    def end(self, connection: Connection) -> None:
        count = self._counts.pop(connection.flow, 0)
        excess = self._excess.pop(connection.flow, None)
        if self.rule.connections is not None and not self.rule.connections(connection):
            return
        self._connections += 1
        if self.fits(count):
            return
        too_few = self.rule.bounds.most is None or count <= self.rule.bounds.most
        if too_few and self.rule.unseen is not None and self.rule.unseen(connection):
            return  # what is missing may have been before the capture
        self._wrong += 1
        if excess is None or len(self.offences) >= self.shown:
            self.note(connection, plural(count, "record"))
        else:
            self.offences.append(excess._replace(text=f"{plural(count, 'record')}, the first too many: {excess.text}"))

    def finish(self, span: Span) -> Outcome:
        found = f"{self._wrong:,} of {plural(self._connections, 'connection')} differ, {self.wanted()} on each"
        if not self._wrong:
            found = f"{plural(self._connections, 'connection')}, {self.wanted()} on each"
            if self.unseen or not self.seen:
                return self.not_checked()
        return self.outcome(not self._wrong, found)


class _InSeconds(Trial):
    """How many records there are in each second of the clock."""

    def __init__(self, rule: Rule, shower: Shower) -> None:
        super().__init__(rule, shower)
        (self._filter,) = rule.filters
        self._most = rule.bounds.most
        self._counts: dict[int, int] = {}  # of the seconds that may still grow
        self._oldest: int | None = None  # the first of them
        self._start: int | None = None  # the first whole second of the capture
        self._checked: int | None = None  # the second before which all have been looked at
        self._newest = 0
        self._low = 0  # seconds with too few
        self._high = 0
        self._seconds = 0
        self._first_low = ""

    def take(self, event: AnyEvent) -> None:
        time_ns = getattr(event, "time_ns", None)
        if time_ns is None:
            return
        second = time_ns // NS
        if self._oldest is None:
            self._oldest, self._start = second, second + 1
        if second > self._newest:
            self._newest = second
            self._close(second - _LATE_SECONDS)
        if self._filter(event):
            second = max(second, self._oldest)  # later than anything may be: as good as it gets
            count = self._counts.get(second, 0) + 1
            self._counts[second] = count
            if self._most is not None and count > self._most:
                self.note(event)
                self._high += count == self._most + 1

    def _close(self, before: int) -> None:
        """No older record will come: the counts of seconds before this one are final."""
        assert self._oldest is not None
        while self._oldest < before:
            # A long silence, as between captures that are read together, is one step, not one for each second.
            seconds = before - self._oldest if not self._counts and self._oldest == self._checked else 1
            self._look(self._oldest, self._counts.pop(self._oldest, 0), seconds)
            self._oldest += seconds
            self._checked = self._oldest

    def _look(self, second: int, count: int, seconds: int) -> None:
        least = self.rule.bounds.least
        if self._start is None or second < self._start:
            return  # it began before the capture did
        self._seconds += seconds
        if least is not None and count < least:
            if not self._low:
                self._first_low = f"{plural(count, 'record')} in the second from {second - self._start + 1:,} s on"
            self._low += seconds

    def finish(self, span: Span) -> Outcome:
        if self._oldest is not None:
            self._close(max(span.end_ns // NS, self._oldest))  # the last one is not whole
        each = f"{self.wanted()} in each"
        if self._high:
            return self.outcome(False, f"{plural(self._high, 'second')} with more records, {each}")
        if self.unseen and (self._low or self._most is not None):
            return self.not_checked()
        if self._low:
            found = f"{self._low:,} of {plural(self._seconds, 'second')} with fewer records, first {self._first_low}"
            return self.outcome(False, f"{found}, {each}")
        if not self._seconds and self.rule.bounds.least:
            return self.outcome(False, f"the capture holds no whole second, {each}")
        return self.outcome(True, f"{plural(self._seconds, 'second')}, {each}")


class _InOrder(Trial):
    """Whether records come in an order on one connection, or on each."""

    def __init__(self, rule: Rule, shower: Shower) -> None:
        super().__init__(rule, shower)
        self._filters = rule.filters
        self._reached: dict[int, int] = {}  # flow to how many of the filters have had their record
        self._each = rule.bounds.per == "connection"
        self._furthest = 0
        self._connections = 0
        self._complete = 0
        self._late = 0

    def take(self, event: AnyEvent) -> None:
        flow = getattr(event, "flow", None)
        if flow is None:
            return
        reached = self._reached.get(flow, 0)
        if reached < len(self._filters) and self._filters[reached](event):
            self._reached[flow] = reached + 1

    def end(self, connection: Connection) -> None:
        reached = self._reached.pop(connection.flow, 0)
        if self.rule.connections is not None and not self.rule.connections(connection):
            return
        self._connections += 1
        self._furthest = max(self._furthest, reached)
        if reached == len(self._filters):
            self._complete += 1
        elif not has_handshake(connection):
            self._late += 1  # the first of them may have been before the capture
        elif self._each or reached:
            self.note(connection, f"only the first {reached} of {len(self._filters)}")

    def finish(self, span: Span) -> Outcome:
        on = f"in this order on {self._complete:,} of {plural(self._connections, 'connection')}"
        if self._each and not self.seen:
            return self.not_checked()
        passed = self._complete == self._connections if self._each else self.fits(self._complete)
        if not passed and self._late and not self._excess():
            self.unseen, self.offences, self.more = self._late, [], 0
            return self.not_checked()
        if passed:
            self.offences, self.more = [], 0  # connections that need not have had it
        wanted = "each expected" if self._each else self.wanted()
        return self.outcome(passed, f"{on}, {wanted}")

    def _excess(self) -> bool:
        """Whether the capture shows that the rule is broken, whatever else it may lack."""
        if self._each:
            return self._complete + self._late < self._connections
        most = self.rule.bounds.most
        return most is not None and self._complete > most


class _Latency(Trial):
    """How long answers took."""

    def __init__(self, rule: Rule, shower: Shower) -> None:
        super().__init__(rule, shower)
        assert rule.latency is not None
        self._kind = Message if rule.latency.pattern == "request-reply" else Command
        self._where = rule.filters[0] if rule.filters else None
        self._latencies = Sketch([limit for _, _, limit in rule.latency.limits])
        self._over: dict[int, list[Offence]] = {limit: [] for _, _, limit in rule.latency.limits}

    def take(self, event: AnyEvent) -> None:
        if type(event) is not self._kind or event.latency_ns is None:
            return
        if self._where is None or self._where(event):
            latency_ns: int = event.latency_ns
            self._latencies.add(latency_ns)
            for limit, offences in self._over.items():
                if latency_ns > limit and len(offences) < self.shown:
                    offences.append(self.shower.offence(event))

    def finish(self, span: Span) -> Outcome:
        latency = self.rule.latency
        assert latency is not None
        count = self._latencies.count
        what = f"{count:,} {PATTERNS[latency.pattern]}"
        if not self.fits(count):
            if self.unseen:
                return self.not_checked()
            return self.outcome(False, f"{what} with a latency, {self.wanted()}")
        if not count:
            return not_checked(self.rule, f"there are no {PATTERNS[latency.pattern]} in the capture")
        words = []
        missed = 0  # the longest limit that was exceeded: the records over it say most
        for name, percent, limit in latency.limits:
            # The verdict is exact; the percentile that is shown is rounded.
            within = self._latencies.keeps(percent, limit)
            missed = missed if within else max(missed, limit)
            took = f"{name} {duration(self._latencies.percentile(percent))}"
            words.append(f"{took}, {'within' if within else 'over'} {limit / 1e6:g} ms")
        if missed:
            self.offences = self._over[missed]
            self.more = count - self._latencies.within[missed] - len(self.offences)
        return self.outcome(not missed, f"{what}: {'; '.join(words)}")


class _AtEndpoint(Trial):
    """Whether services meet a demand. They take all events themselves, once for all demands."""

    def __init__(self, rule: Rule, shower: Shower, services: Services) -> None:
        super().__init__(rule, shower)
        self._services = services

    def finish(self, span: Span) -> Outcome:
        endpoint = self.rule.endpoint
        assert endpoint is not None
        services = [each for each in self._services.services.values() if endpoint.matches(each.address)]
        judgements = [endpoint.demand.judge(each, self._services) for each in services]
        complaints = [complaint for each in judgements for complaint in each.complaints]
        if not services:
            absent = endpoint.demand.absent(endpoint.title)
            if absent is None or not self._services.is_whole:
                what = "no service" if endpoint.title == "*:*" else f"nothing of {endpoint.title}"
                return not_checked(self.rule, f"{what} is in the capture")
            complaints = [Complaint(absent)]
        if complaints:
            for complaint in complaints:
                if complaint.connection is not None:
                    self.note(complaint.connection)
            more = len(complaints) - TOLD
            words = "; ".join(complaint.text for complaint in complaints[:TOLD])
            return self.outcome(False, f"{words}; and {more:,} more" if more > 0 else words)
        unknown = [each.unknown for each in judgements if each.unknown]
        if unknown:
            return not_checked(self.rule, "; ".join(unknown[:TOLD]))
        found = [each.found for each in judgements]
        return self.outcome(True, found[0] if len(found) == 1 else plural(len(found), "service"))


_TRIALS: dict[Kind, type[Trial]] = {"latency": _Latency, "order": _InOrder, "sequence": Sequences}
