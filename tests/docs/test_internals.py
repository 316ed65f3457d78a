"""docs/internals.md: the walk of one packet names what there is."""

import re
from importlib import import_module

from tests.support.paths import PROJECT


def test_each_step_of_the_walk_can_be_opened() -> None:
    page = (PROJECT / "docs" / "internals.md").read_text()
    steps = re.findall(r"^\d+\. `(\w+)\.(\w+)\(\)` in `([\w/]+)\.py`", page, re.MULTILINE)
    assert len(steps) == 10
    for owner, method, path in steps:
        assert callable(getattr(getattr(import_module(path.replace("/", ".")), owner), method))
