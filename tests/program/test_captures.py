"""Every recorded capture whose contents are known, held against what its applications really sent.

The captures and the program that compares (``judge.py``) are beside the checkout where they are available; the
captures in ``fixtures/`` are part of them and are tested by their golden output everywhere.
"""

import importlib.util
import json
import sys
from types import ModuleType

import pytest

from tests.support.paths import CAPTURES

_JUDGE = CAPTURES.parent / "judge.py"
_TRUTHS = sorted(CAPTURES.glob("*.truth.json")) if _JUDGE.exists() else []
_COMMAND = f"{sys.executable} -m zmtpsniff read -T json --max-bytes 0"


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
    assert _judge().run(_COMMAND, truth, CAPTURES / truth["file"]) == []
