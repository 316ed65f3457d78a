"""Programs that capture for us end with us, whenever that is."""

import signal
import subprocess
from typing import Any

import pytest

from tests.support.live_program import running, wait_for
from zmtpsniff.capture.engines.guard import GuardedProcess, uninterrupted


def test_an_interrupt_between_the_program_and_its_guard(monkeypatch: pytest.MonkeyPatch) -> None:
    """It comes when the guard is there, who ends the program."""
    started: list[int] = []
    popen = subprocess.Popen

    def start(*arguments: Any, **options: Any) -> Any:
        process = popen(*arguments, **options)
        started.append(process.pid)
        if len(started) == 1:
            signal.raise_signal(signal.SIGINT)
        return process

    monkeypatch.setattr(subprocess, "Popen", start)
    with pytest.raises(KeyboardInterrupt):
        GuardedProcess(["sleep", "600"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    monkeypatch.undo()
    assert len(started) == 2
    wait_for(lambda: running(started) == [])


def test_signals_are_as_before_afterwards(monkeypatch: pytest.MonkeyPatch) -> None:
    came: list[int] = []
    numbers = [signal.SIGTERM, signal.SIGHUP]
    before = [signal.signal(number, lambda number, _: came.append(number)) for number in numbers]
    try:
        with uninterrupted():
            for number in numbers:
                signal.raise_signal(number)
            assert came == []
        assert came == numbers
        signal.raise_signal(signal.SIGHUP)
        assert came == [*numbers, signal.SIGHUP]
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)
