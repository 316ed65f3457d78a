"""Every recorded capture whose contents are known, held against what its applications really sent.

The captures and the program that compares (``judge.py``) are beside the checkout where they are available; the
captures in ``fixtures/`` are part of them and are tested by their golden output everywhere.
"""

import importlib.util
import json
from functools import cache
from types import ModuleType

import pytest

from tests.support.paths import CAPTURES
from tests.support.runner import read_lines

_JUDGE = CAPTURES.parent / "judge.py"
_TRUTHS = sorted(CAPTURES.glob("*.truth.json")) if _JUDGE.exists() else []


@cache
def _judge() -> ModuleType:
    spec = importlib.util.spec_from_file_location("judge", _JUDGE)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.skipif(not _TRUTHS, reason=f"no captures with judge.py at {CAPTURES} (set ZMTPSNIFF_CAPTURES)")
@pytest.mark.parametrize("name", [path.name.removesuffix(".truth.json") for path in _TRUTHS] or ["none"])
def test_output_agrees_with_truth(name: str) -> None:
    truth = json.loads((CAPTURES / f"{name}.truth.json").read_text())
    ports = [c["server_port"] for c in truth["connections"] if c.get("transport") == "udp"]
    options = [word for port in ports for word in ("-d", f"udp.port=={port},zmtp")]
    flows, records, faults = _judge().load(read_lines(*options, CAPTURES / truth["file"]))
    assert faults + _judge().judge(truth, flows, records) == []
