"""The clocks of capture files of several hosts are put right."""

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from zmtpsniff.cli.output import tell

if TYPE_CHECKING:
    from zmtpsniff.capture.files import Captures
    from zmtpsniff.dissection import Dissection
    from zmtpsniff.engine.settings import Settings
    from zmtpsniff.engine.sniffer import Collaborators

_TOLD_NS = 1_000_000  # a clock that differs by less is put right without a word
_TOLD_DRIFT_NS = 10_000  # in a second


def open_with_one_clock(names: Sequence[str], settings: "Settings", collaborators: "Collaborators") -> "Dissection":
    """Open capture files, which are read as one capture with one clock. Raises CaptureError, and as Dissection does."""
    from zmtpsniff.capture.files import open_captures
    from zmtpsniff.dissection import Dissection

    source = open_captures(names, settings.window)
    return Dissection(source, settings, with_clocks_set(source, names, settings, collaborators))


def with_clocks_set(
    source: "Captures", names: Sequence[str], settings: "Settings", collaborators: "Collaborators"
) -> "Collaborators":
    """Give the files of several hosts, of these names, one clock, and say which differ.

    Returns the collaborators of a dissection of their ``source``, with what the comparison shows.
    """
    if len(names) == 1 or not all(map(os.path.isfile, names)):
        return collaborators
    from zmtpsniff.capture.files import open_captures
    from zmtpsniff.net.skew import compare
    from zmtpsniff.words.durations import brief

    files = [open_captures([name]) for name in names]
    try:
        comparison = compare([file.batches() for file in files])
    finally:
        for file in files:
            file.close()
    differences = comparison.clocks
    for name, one in zip(names, differences, strict=True):
        drift_ns = round(one.drift * 1e9)  # in a second
        if abs(one.ahead_ns) >= _TOLD_NS or abs(drift_ns) >= _TOLD_DRIFT_NS:
            words = (
                f"{brief(abs(one.ahead_ns))} {'behind' if one.ahead_ns < 0 else 'ahead of'} that of {names[one.other]}"
            )
            if abs(drift_ns) >= _TOLD_DRIFT_NS:
                words += f" and {'gains' if drift_ns > 0 else 'loses'} {brief(abs(drift_ns))} a second"
            tell(f"{name}: its clock is {words}; its times are put right")
    source.set_clocks([one.right if one.ahead_ns or one.drift else None for one in differences])
    return collaborators if settings.window else collaborators._replace(translations=comparison.translations)
