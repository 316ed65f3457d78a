"""When findings come and go, for who is called then: ``diagnose --live``, ``--on-finding``, metrics.

A Diagnosis tells of all that was wrong so far. A finding *comes* when it is told for the first time, or happens again
after it went. It *worsens* when its severity rises. It *goes* when it has not happened again for a while, or is not
told any more. So a fault that happens a thousand times in a minute calls twice.
"""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from dissectors.events import SEVERITIES, Severity
from zmtpsniff.analysis.findings.finding import Finding

QUIET_NS = 60_000_000_000
"""A finding that has not happened again for so long is over."""
_LOOK_NS = 2_000_000_000  # between two looks
_MOST_COST = 0.01  # of the time for looks: a system with many connections is looked at less often
_MOST = 10_000  # findings at a time

_Key = tuple[str, str]


class _Current(NamedTuple):
    """A finding that came: as it was told last, and when it last was new."""

    finding: Finding
    earlier: int  # how often it happened before it came
    changed_ns: int
    is_over: bool
    worst: Severity  # that was told since it came


class FindingWatch:
    """Asks a Diagnosis again and again, and says which findings came, worsened and went."""

    def __init__(self, findings: Callable[[], Sequence[Finding]]) -> None:
        """``findings`` gives all findings so far, as those of a Diagnosis; none has come yet."""
        self._findings = findings
        self.found: Sequence[Finding] = ()
        """All findings, as they were told last."""
        self._current: dict[_Key, _Current] = {}
        self._next_ns = 0

    def look(self, now_ns: int) -> list[Finding]:
        """The findings that came, worsened or went since the last look, with ``state``; none if that was just now."""
        if now_ns < self._next_ns:
            return []
        begin = time.perf_counter_ns()
        told = self._compare(now_ns)
        self._next_ns = now_ns + max(_LOOK_NS, round((time.perf_counter_ns() - begin) / _MOST_COST))
        return told

    def active(self) -> list[Finding]:
        """The findings that came and have not gone."""
        return [one.finding for one in self._current.values() if not one.is_over]

    def finish(self) -> list[Finding]:
        """At the end: those that came or worsened since the last look. Others are not known to go."""
        return [one for one in self._compare(self._next_ns) if one.state != "goes"]

    def _compare(self, now_ns: int) -> list[Finding]:
        self.found = self._findings()
        found = _by_place(self.found)
        self._follow(found)
        told = []
        for key, finding in found.items():
            before = self._current.get(key)
            if before is None and len(self._current) >= _MOST:
                continue
            if before is None or (before.is_over and finding.count > before.finding.count):
                earlier = 0 if before is None else before.finding.count
                self._current[key] = _Current(finding, earlier, now_ns, False, finding.severity)
                told.append(_stated(finding, "comes", finding.count - earlier))
            elif finding.count > before.finding.count or finding.last_ns != before.finding.last_ns:
                self._current[key] = before = before._replace(finding=finding, changed_ns=now_ns)
            if before and not before.is_over and _is_worse(finding.severity, before.worst):
                self._current[key] = before._replace(finding=finding, worst=finding.severity)
                told.append(_stated(finding, "worsens", finding.count - before.earlier))
        for key, one in list(self._current.items()):
            is_told = key in found
            if not one.is_over and (not is_told or now_ns - one.changed_ns >= QUIET_NS):
                self._current[key] = one._replace(is_over=True)
                told.append(_stated(one.finding, "goes", one.finding.count - one.earlier))
            if not is_told:
                del self._current[key]
        return told

    def _follow(self, found: Mapping[_Key, Finding]) -> None:
        """A finding may name another client each time that it happens: one that shares a socket with it is the same."""
        gone = [key for key in self._current if key not in found]
        for key, finding in found.items():
            if key in self._current:
                continue
            for other in gone:
                if other[0] == key[0] and {*finding.endpoints} & {*self._current[other].finding.endpoints}:
                    self._current[key] = self._current.pop(other)
                    gone.remove(other)
                    break


def _is_worse(severity: Severity, than: Severity) -> bool:
    return SEVERITIES.index(severity) < SEVERITIES.index(than)


def _stated(finding: Finding, state: str, count: int) -> Finding:
    """The finding as it is told when it comes, worsens or goes: with how often it happened since it came."""
    return msgspec.structs.replace(finding, state=state, count=count)


def _by_place(findings: Iterable[Finding]) -> dict[_Key, Finding]:
    """Findings by code and place: the socket that they are about. Of several of one place the first is told."""
    found: dict[_Key, Finding] = {}
    for one in findings:
        found.setdefault((one.name, one.endpoints[0] if one.endpoints else ""), one)
    return found
