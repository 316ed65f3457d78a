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
    """The probes and the instances of tracefs that a process has, as it is or as it was."""
    folder = Path(find_tracefs())
    probes = folder.glob(f"events/zmtpsniff_{pid}_*/*/")
    return [path.name for path in (*probes, *folder.glob(f"instances/zmtpsniff_{pid}_*"))]
