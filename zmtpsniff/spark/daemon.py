"""What the Python workers of this machine are forked from: Spark's daemon, with pyspark as it is installed.

Spark puts archives of pyspark and py4j in front of what is installed. Python keeps nothing of what it compiles of an
archive: it takes a second until a daemon has compiled all that it imports, each time.
"""

import sys
from importlib.machinery import PathFinder
from pathlib import Path


def without_archives(path: list[str]) -> list[str]:
    """A path of modules without the archives that belong to the pyspark that is installed elsewhere in it."""
    rest = [entry for entry in path if not entry.endswith(".zip")]
    spec = PathFinder.find_spec("pyspark", rest)
    if spec is None or spec.origin is None:
        return path
    archives = Path(spec.origin).parent / "python" / "lib"
    return [entry for entry in path if Path(entry).parent != archives]


if __name__ == "__main__":
    sys.path[:] = without_archives(sys.path)
    from pyspark.daemon import manager

    manager()
