"""Diagnoses of captures, for tests."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from dissectors.events import AnyEvent, Capture
from tests.world.tap import Packets
from zmtpsniff.analysis.findings import Diagnosis
from zmtpsniff.analysis.findings.finding import Finding
from zmtpsniff.analysis.findings.numbering import NumberPlace
from zmtpsniff.capture.block import Packet
from zmtpsniff.dissection import open_files
from zmtpsniff.engine.settings import Settings
from zmtpsniff.engine.sniffer import Collaborators, Sniffer
from zmtpsniff.net.witness import Attempt, Stall

OVER = Capture(0, 0, 0, 0, 0, 0, 0)
"""The end of a capture."""


def diagnose(*captures: Path, settings: Settings | None = None, sequence: NumberPlace | None = None) -> list[Finding]:
    """The findings of captures, read as one; ``sequence`` as in Diagnosis."""
    settings = settings or Settings()
    diagnosis = Diagnosis(settings.decode_as, settings.reply_seconds, sequence)
    for events in open_files(captures, settings, Collaborators(witness=diagnosis)).batches():
        diagnosis.take(events)
    return diagnosis.findings()


def diagnose_packets(packets: Sequence[Packet]) -> list[Finding]:
    """The findings of packets."""
    diagnosis = Diagnosis()
    for events in Sniffer(Packets(packets), Settings(), Collaborators(witness=diagnosis)).events():
        diagnosis.take(events)
    return diagnosis.findings()


def diagnose_events(events: Iterable[AnyEvent], *seen: Attempt | Stall) -> list[Finding]:
    """The findings of events, after those that the flow table has ``seen``."""
    diagnosis = Diagnosis()
    for one in seen:
        if isinstance(one, Stall):
            diagnosis.stall(one)
        else:
            diagnosis.attempt(one)
    diagnosis.take(list(events))
    return diagnosis.findings()


def faults(findings: Iterable[Finding]) -> list[Finding]:
    """All findings that are more than notes."""
    return [one for one in findings if one.severity != "note"]


def alarms(findings: Iterable[Finding]) -> list[tuple[str, str]]:
    """Code and summary of these."""
    return [(one.code, one.summary) for one in faults(findings)]


def accused(findings: Iterable[Finding]) -> set[tuple[str, str]]:
    """Code and place of these."""
    return {(one.code, one.endpoints[0]) for one in faults(findings)}
