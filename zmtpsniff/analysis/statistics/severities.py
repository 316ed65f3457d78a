"""Numbers of problems by how bad they are."""

from dissectors.events import SEVERITIES, Severity

Severities = dict[Severity, int]


def add_severities(counts: Severities, more: Severities) -> None:
    """Add numbers of problems."""
    for severity, count in more.items():
        counts[severity] = counts.get(severity, 0) + count


def worst(counts: Severities) -> Severity | None:
    """How bad the worst of some problems is, None if there are none."""
    return next((severity for severity in SEVERITIES if counts.get(severity)), None)
