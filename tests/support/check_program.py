"""zmtpsniff check as a program and as a function, for tests."""

import gzip
import json
import struct
from collections.abc import Container
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import zmtpsniff
from tests.support.paths import CAPTURES, FIXTURES, PROJECT
from tests.support.runner import run
from zmtpsniff.check.model import Outcome
from zmtpsniff.check.policy import PolicyError, parse_policy
from zmtpsniff.check.rules import Check


class CheckRun(NamedTuple):
    """The output of a run."""

    status: int
    out: str
    err: str

    def rules(self) -> dict[str, dict[str, Any]]:
        """The rules of a report in JSON, by their names."""
        return {rule["name"]: rule for rule in json.loads(self.out)["rules"]}

    def failed(self) -> set[str]:
        return {name for name, rule in self.rules().items() if rule["verdict"] == "failed"}


def check(*arguments: str | Path, cwd: Path = PROJECT, octets: bytes = b"") -> CheckRun:
    """Run the program in the project, whose captures can then be named as in fixtures/."""
    done = run("check", *arguments, cwd=cwd, octets=octets)
    return CheckRun(done.returncode, done.stdout, done.stderr)


def capture(name: str) -> Path:
    """A capture of the fixtures, or else of those that a checkout may have beside it."""
    return FIXTURES / name if (FIXTURES / name).exists() else CAPTURES / name


def without_packets(name: str, numbers: Container[int], to: Path) -> Path:
    """A copy of a pcap file of the fixtures without the packets of these numbers, from 1."""
    data = capture(name).read_bytes()
    if name.endswith(".gz"):
        data = gzip.decompress(data)
    order = "<" if data[:4] in (b"\xd4\xc3\xb2\xa1", b"\x4d\x3c\xb2\xa1") else ">"
    kept, place, number = [data[:24]], 24, 1
    while place < len(data):
        end = place + 16 + struct.unpack_from(f"{order}I", data, place + 8)[0]
        if number not in numbers:
            kept.append(data[place:end])
        place, number = end, number + 1
    path = to / f"without_{Path(name).name.removesuffix('.gz')}"
    path.write_bytes(b"".join(kept))
    return path


def outcomes(captures: str | Path | list[str], policy: str, shown: int = 5) -> dict[str, Outcome]:
    """How the rules of a policy fare with captures, by their names."""
    names = captures if isinstance(captures, list) else [captures]
    trial = Check(parse_policy(policy, "policy.toml"), shown, utc=True)
    for events in zmtpsniff.open([capture(str(name)) for name in names], payload=False).batches():
        trial.take(events)
    return {outcome.rule.name: outcome for outcome in trial.finish()}


def hold_mistake(policy: str, line: int, words: list[str]) -> None:
    """Hold that a policy is refused, in one line that names the ``line`` of the mistake and has these words."""
    with pytest.raises(PolicyError) as raised:
        parse_policy(policy, "x.toml")
    said = str(raised.value)
    assert said.startswith(f"x.toml:{line}: ")
    assert all(word in said for word in words), said
    assert "\n" not in said
