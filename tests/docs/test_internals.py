"""docs/internals.md: the walks of a packet and of a request name what there is."""

import re
from importlib import import_module

from tests.support.paths import PROJECT

PAGE = (PROJECT / "docs" / "internals.md").read_text()


def test_each_step_of_the_walk_can_be_opened() -> None:
    walk = PAGE.partition("## The way of one packet")[2].partition("##")[0]
    steps = re.findall(r"^\d+\. `\w+\.\w+\(\)` in `[\w/]+\.py`", walk, re.MULTILINE)
    assert len(steps) == 10


def test_each_method_that_the_page_names_with_its_file_is_there() -> None:
    named = re.findall(r"`(\w+)\.(\w+)\(\)`\s+in\s+`([\w/]+)\.py`", PAGE)
    assert len(named) > 15
    for owner, method, path in named:
        assert callable(getattr(getattr(import_module(path.replace("/", ".")), owner), method))
