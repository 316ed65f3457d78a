"""Run the tests with the lowest version of each dependency that is declared: ``python -m tests.lowest``.

For the oldest and the newest Python that is here, or for those named (``--python 3.12``). Each has a virtual
environment of its own, which uv makes, and which is gone at the end. All other options go to pytest. The exit status is
1 if a test fails, or if a lowest version could not be had: another package wants a newer one, or it has no wheel for
this Python.
"""

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

from packaging.requirements import Requirement
from packaging.version import Version

from tests.support.paths import PROJECT
from tests.support.pythons import PACKAGE, PYTHONS, find_python

_EXTRAS = "test,spark-java"  # which want all the others

# In the environment that is looked at: the versions of the packages that are named.
_VERSIONS = "import importlib.metadata as m, sys; print(*map(m.version, sys.argv[1:]))"


def requirements(*, of_ourselves: bool = False) -> list[Requirement]:
    """Return every dependency that is declared, those of all extras among them; or our extras that others bring."""
    lines = [*PACKAGE["dependencies"], *(line for lines in PACKAGE["optional-dependencies"].values() for line in lines)]
    return [each for each in map(Requirement, lines) if (each.name == PACKAGE["name"]) == of_ourselves]


def lowest(requirement: Requirement) -> Version:
    """Return the lowest version that a requirement names."""
    return min(
        Version(each.version.removesuffix(".*")) for each in requirement.specifier if each.operator in (">=", "==")
    )


def main() -> int:
    """Run them."""
    here = [version for version in PYTHONS if find_python(version)]
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--python", action="append", choices=here, help="a version; repeatable")
    options, given = parser.parse_known_args()
    versions = options.python or sorted({here[0], here[-1]}, key=here.index)
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)  # tests run the program as other users
        subprocess.run([sys.executable, "-m", "venv", f"{folder}/uv"], check=True)
        subprocess.run([f"{folder}/uv/bin/pip", "install", "-q", "uv"], check=True)
        return max([_run(Path(folder), version, given) for version in versions])


def _run(folder: Path, version: str, options: list[str]) -> int:
    uv, environment = str(folder / "uv" / "bin" / "uv"), folder / version
    python = str(environment / "bin" / "python")
    subprocess.run([uv, "venv", "-q", "--python", str(find_python(version)), str(environment)], check=True)
    install = [uv, "pip", "install", "-q", "--python", python, "--resolution", "lowest-direct"]
    # pyspark and we ourselves are the only ones that are built.
    install += ["--only-binary", ":all:", "--no-binary", "pyspark", "--no-binary", PACKAGE["name"]]
    subprocess.run([*install, "-e", f"{PROJECT}[{_EXTRAS}]"], check=True)
    wanted = {
        each.name: lowest(each)
        for each in requirements()
        if not each.marker or each.marker.evaluate({"python_version": version})
    }
    asked = subprocess.run([python, "-c", _VERSIONS, *wanted], check=True, capture_output=True, text=True)
    others = [
        f"{name} {low} is declared, {found} is the lowest that can be installed with the others"
        for (name, low), found in zip(wanted.items(), asked.stdout.split(), strict=True)
        if Version(found).release[: len(low.release)] != low.release
    ]
    print(f"Python {version}:", *others, sep="\n", flush=True)
    done = subprocess.run(
        [python, "-m", "pytest", "-q", "-n", "auto", "--dist", "loadgroup", *options], cwd=PROJECT, check=False
    )
    return int(bool(others) or done.returncode != 0)


if __name__ == "__main__":
    sys.exit(main())
