"""Diagnoses of captures, for tests."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from dissectors.events import AnyEvent
from tests.world.tap import Packets
from zmtpsniff.analysis.findings import Diagnosis
from zmtpsniff.analysis.findings.finding import Finding
from zmtpsniff.analysis.findings.numbering import NumberPlace
from zmtpsniff.capture.block import Packet
from zmtpsniff.dissection import open_files
from zmtpsniff.engine.settings import Settings
from zmtpsniff.engine.sniffer import Collaborators, Sniffer


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


def diagnose_events(events: Iterable[AnyEvent]) -> list[Finding]:
    """The findings of events."""
    diagnosis = Diagnosis()
    diagnosis.take(list(events))
    return diagnosis.findings()


def alarms(findings: Sequence[Finding]) -> list[tuple[str, str]]:
    """Code and summary of all findings that are more than notes."""
    return [(one.code, one.summary) for one in findings if one.severity != "note"]
