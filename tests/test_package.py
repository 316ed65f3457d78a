"""The wheel and the sdist: the same each time, complete, and they work in clean environments of each Python."""

import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.lowest import lowest, requirements
from tests.support.no_java import without_java
from tests.support.paths import FIXTURES, PROJECT
from tests.support.pythons import PACKAGE, PYTHONS, find_python
from tests.support.shown_commands import blocks
from zmtpsniff import __version__

pytestmark = pytest.mark.xdist_group("package")  # one worker builds it
_LEFT_OUT = {
    ".git",
    ".venv",
    "__pycache__",
    ".mypy_cache",
    ".pytest_cache",
    ".ruff_cache",
    ".hypothesis",
    "dist",
    "work",
}


class Distribution(NamedTuple):
    """The files of a build."""

    wheel: Path
    sdist: Path


def _build(source: Path, target: Path, *, umask: int = 0o022, day: str = "1700000000") -> Distribution:
    command = next(block for block in blocks(PROJECT / "docs" / "packaging.md") if "hatchling" in block.text).text
    done = subprocess.run(
        [sys.executable, *command.split()[1:-1], str(target)],
        cwd=source, env={**os.environ, "SOURCE_DATE_EPOCH": day}, umask=umask, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    (wheel,) = target.glob("*.whl")
    (sdist,) = target.glob("*.tar.gz")
    return Distribution(wheel, sdist)


def _copy(target: Path) -> Path:
    """The source as a clone has it, with files made in another order and at other times."""
    shutil.copytree(PROJECT, target, ignore=lambda _, names: _LEFT_OUT & set(names))
    for place, path in enumerate(sorted(target.rglob("*"), reverse=True)):
        os.utime(path, (1_000_000_000 + place, 1_000_000_000 + place))
    return target


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Distribution:
    folder = tmp_path_factory.mktemp("built")
    return _build(_copy(folder / "source"), folder / "dist")


@pytest.mark.slow
def test_two_builds_are_the_same(built: Distribution, tmp_path: Path) -> None:
    again = _build(_copy(tmp_path / "another" / "folder"), tmp_path / "dist", umask=0o077)
    assert again.wheel.read_bytes() == built.wheel.read_bytes()
    assert again.sdist.read_bytes() == built.sdist.read_bytes()
    # And it is the files that are compared: another day makes others.
    other = _build(tmp_path / "another" / "folder", tmp_path / "other", day="1600000000")
    assert other.sdist.read_bytes() != built.sdist.read_bytes()


@pytest.mark.slow
def test_the_wheel_of_the_sdist_is_the_wheel(built: Distribution, tmp_path: Path) -> None:
    with tarfile.open(built.sdist) as archive:
        archive.extractall(tmp_path, filter="data")
    (source,) = tmp_path.iterdir()
    again = _build(source, tmp_path / "dist")
    assert again.wheel.read_bytes() == built.wheel.read_bytes()
    assert again.sdist.read_bytes() == built.sdist.read_bytes()


@pytest.mark.slow
def test_what_is_in_the_wheel(built: Distribution) -> None:
    with zipfile.ZipFile(built.wheel) as archive:
        names = set(archive.namelist())
    top = {name.split("/")[0] for name in names}
    stem = f"zmtpsniff-{__version__}"
    assert top == {"zmtpsniff", "dissectors", f"{stem}.dist-info", f"{stem}.data"}
    assert {"zmtpsniff/py.typed", "dissectors/py.typed", f"{stem}.dist-info/licenses/LICENSE"} <= names
    data = {name.removeprefix(f"{stem}.data/data/") for name in names if ".data/" in name}
    pages = {f"share/man/man1/{path.name}" for path in (PROJECT / "docs" / "man").iterdir()}
    assert len(pages) > 7
    assert data == pages | {
        "share/bash-completion/completions/zmtpsniff",
        "share/zsh/site-functions/_zmtpsniff",
        "share/fish/vendor_completions.d/zmtpsniff.fish",
    }
    for package in ("zmtpsniff", "dissectors"):
        for path in (PROJECT / package).rglob("*.py"):
            assert str(path.relative_to(PROJECT)) in names


@pytest.mark.slow
def test_what_is_in_the_sdist(built: Distribution) -> None:
    with tarfile.open(built.sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    wanted = [PROJECT / name for name in ("pyproject.toml", "LICENSE", "README.md", "CHANGELOG.md", "Containerfile")]
    for folder in ("zmtpsniff", "dissectors", "tests", "fixtures", "docs", "benchmarks", "packaging"):
        wanted += [path for path in (PROJECT / folder).rglob("*") if path.is_file() and path.suffix != ".so"]
    missing = [
        path for path in wanted if not _LEFT_OUT & set(path.parts) and str(path.relative_to(PROJECT)) not in names
    ]
    assert missing == []
    assert not [name for name in names if name.startswith((".venv", ".git/", "dist/"))]


@pytest.mark.slow
@pytest.mark.parametrize("version", PYTHONS)
def test_it_runs_in_a_clean_environment(built: Distribution, version: str, tmp_path: Path) -> None:
    """The tutorial works word for word in a folder of the sdist's files; then the sdist is installed."""
    python = find_python(version)
    if python is None:
        pytest.skip(f"no Python {version} here")
    (install,) = [block for block in blocks(PROJECT / "docs" / "tutorial.md") if "pip install" in block.text]
    script = install.text.replace("python3 ", f"{python} ")
    variables = _variables(built)
    with tarfile.open(built.sdist) as archive:
        archive.extractall(tmp_path, filter="data")
    (source,) = tmp_path.iterdir()
    installed = _run(["bash", "-ec", script], source, variables)
    assert installed == f"zmtpsniff {__version__} (native)\n"
    environment = source / ".venv"
    _try(environment, tmp_path, variables)
    pip = [str(environment / "bin" / "python"), "-m", "pip", "install", "-q"]
    if python == sys.executable:
        _run([*pip, "--no-deps", "--force-reinstall", str(built.sdist)], tmp_path, variables)
        _try(environment, tmp_path, variables)
        # Programs that use them can check their types, too: the packages say that they are typed.
        found = sorted(path.parent.name for path in environment.rglob("py.typed") if "click" not in str(path))
        assert {"zmtpsniff", "dissectors"} <= set(found)
    if python == sys.executable:  # a gigabyte, so once
        _try_spark(environment, tmp_path, variables)


def _try_spark(environment: Path, folder: Path, variables: dict[str, str]) -> None:
    """The recipe for Spark with a Java of its own works where there is no other."""
    (block,) = [
        block for block in blocks(PROJECT / "docs" / "recipes.md") if "pip install 'zmtpsniff[spark" in block.text
    ]
    install = block.text.splitlines()[0]
    _run(["bash", "-ec", f"{environment / 'bin' / install}"], folder, variables, 1200)
    nowhere = without_java(folder / "tools")
    assert shutil.which("java", path=nowhere["PATH"]) is None
    ingest = ["spark", "ingest", str(FIXTURES / "m31_req_rep.pcap"), "--output", "tables", "--master", "local[1]"]
    done = subprocess.run(
        [str(environment / "bin" / "zmtpsniff"), *ingest],
        cwd=folder, env=nowhere, capture_output=True, text=True, check=False, timeout=400,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert len(done.stderr.splitlines()) == 1, "Spark is to say nothing"
    count = "import sys; from pyarrow.dataset import dataset; print([dataset(t).count_rows() for t in sys.argv[1:]])"
    tables = [f"tables/{name}" for name in ("connections", "messages", "captures")]
    assert _run([str(environment / "bin" / "python"), "-c", count, *tables], folder, nowhere) == "[1, 24, 1]\n"


def _variables(built: Distribution) -> dict[str, str]:
    """The environment of a pip that takes the wheel from where it was built, before anything that a registry has."""
    variables = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    links = f"{built.wheel.parent} {variables.get('PIP_FIND_LINKS', '')}".strip()
    return variables | {"PIP_FIND_LINKS": links, "PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_NO_COMPILE": "1"}


def _try(environment: Path, folder: Path, variables: dict[str, str]) -> None:
    """Use the installed program as its users do: reading, checking, its manual page."""
    program = str(environment / "bin" / "zmtpsniff")
    capture = str(FIXTURES / "m31_req_rep.pcap")
    assert "24 messages" in _run([program, "read", "--utc", capture], folder, variables)
    assert "ok    no errors" in _run([program, "check", "--include", "protocol", capture], folder, variables)
    assert "REQ" in _run([program, "stats", capture], folder, variables)
    assert re.fullmatch(r"\d+\.\d+\n", _run([program, "schema", "--version"], folder, variables))
    assert _run([program, "read", "-Y", 'frames matches "request 3"', "-T", "json", capture], folder, variables)
    assert (environment / "share" / "man" / "man1" / "zmtpsniff-read.1").exists()
    if shutil.which("man") is not None:
        (shown,) = [
            block for block in blocks(PROJECT / "docs" / "howto" / "completion.md") if block.text.startswith("man ")
        ]
        path = f"{environment / 'bin'}:{variables['PATH']}"
        page = _run(["bash", "-ec", shown.text], folder, {**variables, "PATH": path, "MANPAGER": "cat"})
        assert "dissect capture files" in page


def _run(command: list[str], folder: Path, variables: dict[str, str], seconds: float = 400) -> str:
    done = subprocess.run(
        command, cwd=folder, env=variables, capture_output=True, text=True, check=False, timeout=seconds
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_what_packagers_are_told_is_what_is_declared() -> None:
    text = (PROJECT / "docs" / "packaging.md").read_text()
    assert re.findall(r"entry point `(.+?)`", text) == list(PACKAGE["scripts"].values())
    assert re.findall(r"Python (3\.\d+) to (3\.\d+)", text) == [(PYTHONS[0], PYTHONS[-1])]
    assert PACKAGE["requires-python"] == f">={PYTHONS[0]}"


def test_every_lower_bound_is_one() -> None:
    """A dependency without one, or with one that no version has, cannot be tested at its lowest version."""
    for requirement in requirements():
        assert lowest(requirement) in requirement.specifier, requirement
    # Tests run beside every other extra, so what they want is what is tested.
    wanted = {extra for each in requirements(of_ourselves=True) for extra in each.extras}
    assert wanted | {"test", "spark-java"} == set(PACKAGE["optional-dependencies"])


def test_the_container_and_the_debian_package_have_the_extras_that_their_commands_need() -> None:
    text = (PROJECT / "Containerfile").read_text()
    (extras,) = re.findall(r"(?m)^ARG EXTRAS=(\S+)$", text)
    of_no_command = {"arrow", "docs", "test", "spark", "spark-java"}
    assert set(extras.split(",")) == {*PACKAGE["optional-dependencies"]} - of_no_command
    assert text.count("[${EXTRAS}]") == 2  # what is built, and what is installed
    assert text.count("\nARG EXTRAS\n") == 2
    rules = (PROJECT / "packaging" / "debian" / "debian" / "rules").read_text()
    assert f"\nEXTRAS := {extras}\n" in rules


def test_the_container_file() -> None:
    """Held against the rules for such files; it is not built here, which needs a registry of images."""
    linter = Path(sys.executable).parent / "hadolint"
    if not linter.exists():
        pytest.skip("hadolint is not installed")
    done = subprocess.run([linter, PROJECT / "Containerfile"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")
    # Nothing of the source that it copies is missing, and the images have no host in their names.
    text = (PROJECT / "Containerfile").read_text()
    images = re.findall(r"(?m)^FROM (\S+)", text)
    assert images
    assert len(set(images)) == 1
    assert all(re.fullmatch(r"python:3\.\d+-slim@sha256:[0-9a-f]{64}", image) for image in images)
