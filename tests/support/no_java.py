"""A machine without Java: what Spark's scripts need, and nothing else in the path."""

import os
from pathlib import Path

_TOOLS = ("sh", "bash", "dirname", "ps", "uname", "cat", "rm", "mkdir", "nice", "ls", "tr", "sed", "id")


def without_java(folder: Path) -> dict[str, str]:
    """The environment of a process that finds no Java but that of a Python package; ``folder`` takes its tools."""
    folder.mkdir()
    for name in _TOOLS:
        for place in ("/bin", "/usr/bin"):
            if Path(place, name).exists() and not (folder / name).exists():
                (folder / name).symlink_to(Path(place, name))
    left_out = ("JAVA_HOME", "SPARK_HOME", "PYTHONPATH", "VIRTUAL_ENV")
    return {name: value for name, value in os.environ.items() if name not in left_out} | {"PATH": str(folder)}
