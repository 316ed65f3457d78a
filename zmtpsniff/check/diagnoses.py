"""Rules on findings: what a diagnosis of the same traffic may not find."""

from collections.abc import Callable, Sequence

from dissectors.events import Connection, Severity
from zmtpsniff.analysis.findings.catalogue import FINDINGS
from zmtpsniff.analysis.findings.finding import Finding
from zmtpsniff.analysis.findings.violations import REPEATED
from zmtpsniff.check.model import Offence, Outcome, Rule, not_checked
from zmtpsniff.check.sight import has_handshake
from zmtpsniff.check.span import Span
from zmtpsniff.check.trials import Shower, Trial
from zmtpsniff.words.counts import plural

_FAILING: tuple[Severity, ...] = ("error", "warning")  # those that a rule can name; a note fails nothing
FINDING_NAMES = (*FINDINGS, *REPEATED, *_FAILING)
# Findings that no hole in the capture can explain: they are about attempts to connect, or about the capture.
_ALWAYS = frozenset({"capture-late", "capture-lossy", "endpoint-refused", "endpoint-silent", "reconnect-storm"})
# Findings that a handshake shows. All others need socket types, and a capture without holes.
_BY_HANDSHAKE = frozenset(
    {
        "credentials-refused",
        "handshake-failed",
        "mechanisms-differ",
        "password-in-clear",
        "server-key-wrong",
        "sockets-mismatched",
        "version-old",
    }
)


class NoFindings(Trial):
    """Whether a diagnosis, which takes all events itself, finds nothing of some kinds."""

    def __init__(self, rule: Rule, shower: Shower, findings: Callable[[], Sequence[Finding]]) -> None:
        """``findings`` gives those of a diagnosis of the same events. It is called after the last event."""
        super().__init__(rule, shower)
        self._findings = findings
        self._codes = set(rule.codes)
        if self._codes & set(_FAILING):
            self._codes |= set(FINDINGS)
        self._late = 0
        self._untyped = 0

    def end(self, connection: Connection) -> None:
        """Count connections that do not show all that a diagnosis asks for."""
        if not has_handshake(connection):
            self._late += 1
        # An encrypted connection shows no types either, and without its keys nobody expects to see inside it.
        is_open = connection.mechanism in (None, "NULL", "PLAIN") and connection.handshake in ("complete", "not-seen")
        if is_open and None in (connection.client.socket_type, connection.server.socket_type):
            self._untyped += 1

    def finish(self, span: Span) -> Outcome:
        """The outcome."""
        findings = self._findings()
        found = [finding for finding in findings if self._is_meant(finding)]
        if found:
            self.offences = [self._offence(finding) for finding in found[: self.shown]]
            self.more = len(found) - len(self.offences)
            return self.outcome(False, f"{plural(len(found), 'finding')}, none allowed")
        unknown = self._unknown(findings)
        if unknown:
            return not_checked(self.rule, unknown)
        return self.outcome(True, "no such finding")

    def _is_meant(self, finding: Finding) -> bool:
        if finding.severity in self.rule.codes:
            return True
        # A finding that is only a note this time, such as a service that started a little late, is no fault.
        noted = finding.severity == "note" and FINDINGS[finding.code].severity != "note"
        return not noted and not {finding.code, finding.name}.isdisjoint(self.rule.codes)

    def _unknown(self, findings: Sequence[Finding]) -> str:
        """Why there may be findings that cannot be made here."""
        codes = self._codes - _ALWAYS
        if not codes:
            return ""
        if not self.seen:
            return "there is no ZMTP connection in the capture"
        if self._late and codes & _BY_HANDSHAKE:
            return f"{self._late:,} of {plural(self.seen, 'connection')} began before the capture"
        if codes - _BY_HANDSHAKE:
            if self._untyped:
                return f"{self._untyped:,} of {plural(self.seen, 'connection')} do not show what sockets they join"
            if any(finding.code == "capture-lossy" for finding in findings):
                return "the capture does not have everything"
        return ""

    def _offence(self, finding: Finding) -> Offence:
        first = finding.evidence[0] if finding.evidence else None
        packet, flow = (first.packet, first.flow) if first is not None else (None, None)
        return self.shower.said(
            f"{finding.severity} {finding.heading}: {finding.summary}", packet, flow, finding.first_ns
        )
