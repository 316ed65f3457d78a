"""Whether the kernel gives probes to tests, and what is left of ours."""

import os
from pathlib import Path

import pytest

from zmtpsniff.host.uprobes import NoUprobesError, Uprobes, find_tracefs

EVENTS = Path("/sys/kernel/tracing/uprobe_events")


def need_uprobes() -> None:
    """Skip the test where the kernel forbids probes, and say why; fail where it has them and we find none."""
    if os.geteuid() != 0:
        pytest.skip("probes need root")
    why = ""
    try:
        Uprobes().close()
    except NoUprobesError as error:
        why = str(error)
    assert not why or not EVENTS.exists(), f"there are probes, but: {why}"
    if why:
        pytest.skip(f"no probes here: {why}")


def placed(pid: int) -> list[str]:
    """The probes and the instances of tracefs that a process has, as it is or as it was.

    Groups of probes vanish while this looks, also those of other tests: a folder that has gone has none.
    """
    folder = find_tracefs()
    groups = [f"{folder}/events/{name}" for name in names(f"{folder}/events") if name.startswith(f"zmtpsniff_{pid}_")]
    probes = [name for group in groups for name in names(group) if os.path.isdir(f"{group}/{name}")]
    return probes + [name for name in names(f"{folder}/instances") if name.startswith(f"zmtpsniff_{pid}_")]


def names(folder: str) -> list[str]:
    """The names in a folder; none where there is no such folder any more."""
    try:
        return os.listdir(folder)
    except FileNotFoundError:
        return []
