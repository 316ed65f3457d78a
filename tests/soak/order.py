"""A plug-in of pytest that shuffles tests: the modules, and the tests of each, so that what they share is made once."""

import random
from itertools import groupby

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--order", type=int, default=0, metavar="SEED", help="run the tests in the order that this makes")


@pytest.hookimpl(trylast=True)  # whatever sorts tests has done so
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """All workers of pytest-xdist shuffle alike: they get the same seed."""
    chance = random.Random(config.getoption("order"))
    modules = [list(tests) for _, tests in groupby(items, lambda item: item.path)]
    chance.shuffle(modules)
    for tests in modules:
        chance.shuffle(tests)
    items[:] = [test for tests in modules for test in tests]
