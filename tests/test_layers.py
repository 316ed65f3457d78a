"""Rules of imports, of modules that starting must not import, and of names."""

import ast
import gc
import subprocess
import sys
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

from tests.support.paths import PROJECT

pytestmark = pytest.mark.xdist_group("layers")  # one worker parses all modules

# Words, tables and the native core, for all.
GROUND_FLOOR = {
    "zmtpsniff.words", "zmtpsniff.native", "dissectors.address", "dissectors.columns", "dissectors.zmtp.sockets",
}  # fmt: skip
# For those who ask what events mean to each other.
WHAT_EVENTS_MEAN = {
    *(f"zmtpsniff.analysis.{name}" for name in ("dossier", "event_times", "interruptions", "ledger")),
    *(f"dissectors.{name}" for name in ("batches", "events", "problems", "records")),
    "zmtpsniff.net.witness",
}
# module or package: what it may import of ours, beside its own modules and the ground floor
ALLOWED = {
    "dissectors": set(),
    "zmtpsniff/words": {"dissectors.events"},
    "zmtpsniff/native": {"zmtpsniff.errors"},
    "zmtpsniff/capture": {"zmtpsniff.errors"},  # files and engines
    "zmtpsniff/net": {
        "zmtpsniff.capture.plaintexts",
        "zmtpsniff.capture.block",
        "dissectors.snapshots",
    },
    "zmtpsniff/analysis/patterns": {
        "zmtpsniff.analysis.defaults",
        "zmtpsniff.analysis.dossier",
        "zmtpsniff.analysis.interruptions",
        "zmtpsniff.analysis.ledger",
        "zmtpsniff.analysis.insertions",
        "zmtpsniff.decode_as",
        "zmtpsniff.net.notices",
        "dissectors.batches",
        "dissectors.events",
        "dissectors.problems",
        "dissectors.zmtp.wire",
    },
    "zmtpsniff/analysis/statistics": {
        "zmtpsniff.analysis.defaults",
        "zmtpsniff.analysis.interruptions",
        "zmtpsniff.analysis.ledger",
        "dissectors.batches",
        "dissectors.events",
    },
    "zmtpsniff/analysis/ways": {*WHAT_EVENTS_MEAN, "dissectors.snapshots"},  # quick structs
    "zmtpsniff/analysis/findings": {
        *WHAT_EVENTS_MEAN,
        "zmtpsniff.analysis.defaults",
        "zmtpsniff.analysis.statistics.stats_records",
        "zmtpsniff.analysis.statistics.sketch",
        "zmtpsniff.analysis.statistics.timeline",
        "zmtpsniff.analysis.ways",
        "zmtpsniff.decode_as",
    },
    "zmtpsniff/analysis": {
        "zmtpsniff.decode_as",
        "zmtpsniff.errors",
        "zmtpsniff.net.notices",
        "zmtpsniff.net.witness",
        "dissectors",
    },
    "zmtpsniff/host": {
        "dissectors.events",
        "dissectors.zmtp.curve_keys",
    },
    "zmtpsniff/engine": {
        "zmtpsniff.analysis",
        "zmtpsniff.capture",
        "zmtpsniff.decode_as",
        "zmtpsniff.host.local",
        "zmtpsniff.net",
        "dissectors",
    },
    "zmtpsniff/engine/memory.py": set(),
    "zmtpsniff/engine/flow_engine.py": {
        "zmtpsniff.engine.settings",
        "zmtpsniff.decode_as",
        "zmtpsniff.net",
        "dissectors",
    },
    "zmtpsniff/engine/settings.py": {
        "zmtpsniff.analysis.defaults",
        "zmtpsniff.capture.time_window",
        "zmtpsniff.decode_as",
        "zmtpsniff.net.limits",
        "dissectors.zmtp.curve_keys",
        "dissectors.zmtp.limits",
    },
    "zmtpsniff/engine/key_file.py": {"dissectors.zmtp.curve_keys"},
    "zmtpsniff/engine/selector.py": {"zmtpsniff.capture", "zmtpsniff.net", "dissectors.events"},
    "zmtpsniff/dissection.py": {
        "zmtpsniff.analysis.findings",
        "zmtpsniff.analysis.ways",
        "zmtpsniff.capture",
        "zmtpsniff.decode_as",
        "zmtpsniff.engine",
        "zmtpsniff.errors",
        "zmtpsniff.net.skew",  # of several files
        "zmtpsniff.net.views",
        "zmtpsniff.render.arrow",
        "zmtpsniff.filters",
        "dissectors",
    },
    "zmtpsniff/pytest_plugin.py": {
        "zmtpsniff",
        "dissectors.events",
    },
    "zmtpsniff/testing.py": {
        "zmtpsniff.analysis.plugins",
        "zmtpsniff.decode_as",
        "zmtpsniff.dissection",
        "zmtpsniff.engine",
        "dissectors",
    },
    "zmtpsniff/errors.py": set(),
    "zmtpsniff/export": {
        "zmtpsniff.__version__",
        "zmtpsniff.analysis.findings",
        "zmtpsniff.analysis.bodies",
        "zmtpsniff.analysis.statistics.stats_records",
        "zmtpsniff.analysis.ways",
        "zmtpsniff.errors",
        "zmtpsniff.render.payload",
        "dissectors.batches",
        "dissectors.events",
        "dissectors.payloads",
    },
    "zmtpsniff/extcap": {
        "zmtpsniff.capture.block",
        "zmtpsniff.errors",
        "zmtpsniff.render.payload",
        "dissectors.events",
        "dissectors.zmtp.encoder",
        "dissectors.zmtp.wire",
    },
    "zmtpsniff/replay": {
        "zmtpsniff.errors",
        "dissectors.events",
        "dissectors.payloads",
    },
    "zmtpsniff/filters": {
        "zmtpsniff.errors",
        "zmtpsniff.analysis.bodies",
        "dissectors.events",
        "dissectors.payloads",
        "dissectors.problems",
        "dissectors.records",
    },
    "zmtpsniff/report": {
        "zmtpsniff.analysis.defaults",
        "zmtpsniff.render",
        "zmtpsniff.analysis.findings",
        "zmtpsniff.analysis.statistics",
        "zmtpsniff.analysis.ways",
        "zmtpsniff.net.witness",
        "dissectors.events",
    },
    "zmtpsniff/spark": {
        "zmtpsniff.analysis",
        "zmtpsniff.report.results",
        "zmtpsniff.engine",
        "zmtpsniff.net.addresses",
        "zmtpsniff.capture",
        "zmtpsniff.decode_as",
        "zmtpsniff.errors",
        "zmtpsniff.net.flow",
        "zmtpsniff.net.limits",
        "zmtpsniff.net.networks",
        "zmtpsniff.net.notices",
        "zmtpsniff.net.packets",
        "zmtpsniff.net.segment",
        "zmtpsniff.net.witness",
        "dissectors",
    },
    "zmtpsniff/cli/status_line.py": {
        "zmtpsniff.cli.last_line",
        "zmtpsniff.dissection",
        "dissectors.batches",
        "dissectors.events",
    },
    "zmtpsniff/render": {
        "zmtpsniff.errors",
        "zmtpsniff.analysis.statistics",
        "zmtpsniff.analysis.findings.finding",
        "zmtpsniff.analysis.ways.way_records",
        "dissectors.batches",
        "dissectors.events",
        "dissectors.zmtp.limits",
        "dissectors.records",
    },
    "zmtpsniff/check": {
        "zmtpsniff.analysis.interruptions",
        "zmtpsniff.analysis.statistics.lengths",
        "zmtpsniff.analysis.statistics.sketch",
        "zmtpsniff.analysis.bodies",
        "zmtpsniff.analysis.findings",
        "zmtpsniff.errors",
        "zmtpsniff.filters",
        "zmtpsniff.render",
        "dissectors.events",
        "dissectors.problems",
        "dissectors.records",
    },
    "zmtpsniff/browse": {
        "zmtpsniff.__version__",
        "zmtpsniff.analysis.findings",
        "zmtpsniff.analysis.statistics",
        "zmtpsniff.analysis.ways",
        "zmtpsniff.capture",
        "zmtpsniff.dissection",
        "zmtpsniff.errors",
        "zmtpsniff.filters",
        "zmtpsniff.net.addresses",
        "zmtpsniff.net.networks",
        "zmtpsniff.net.packets",
        "zmtpsniff.render",
        "dissectors",
    },
    "zmtpsniff/decode_as.py": {"zmtpsniff.errors"},
    "zmtpsniff/cli/output.py": {"zmtpsniff.errors"},
    "zmtpsniff/cli/last_line.py": set(),
    "zmtpsniff/cli/progress_line.py": {
        "zmtpsniff.cli.last_line",
        "zmtpsniff.dissection",
        "zmtpsniff.render",
        "dissectors.events",
    },
}
SPARK = ["pyspark", "pyarrow", "pandas", "duckdb"]
LATE = [
    "rich",
    "textual",
    "scapy",
    "pyshark",
    "backports.zstd",
    "cbor2",
    "lzma",
    "lark",
    "re2",
    "dissectors.events",
    "msgspec",
    *SPARK,
]


@cache
def _parse(path: Path) -> ast.Module:
    gc.disable()  # a tree is kept: searching all of them for cycles takes twice as long as parsing
    try:
        return ast.parse(path.read_text())
    finally:
        gc.freeze()
        gc.enable()


def _imports(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(_parse(path)):
        if isinstance(node, ast.Import):
            found |= {name.name for name in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module == "zmtpsniff":
            found |= {f"zmtpsniff.{name.name}" for name in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
    return {name for name in found if name.split(".")[0] in ("zmtpsniff", "dissectors")}


@pytest.mark.parametrize("part", ALLOWED)
def test_imports_are_allowed(part: str) -> None:
    root = PROJECT / part
    paths = sorted(root.rglob("*.py")) if root.is_dir() else [root]
    assert paths
    may = (
        ALLOWED[part]
        | {part.replace("/", ".")}
        | (set() if part in ("dissectors", "zmtpsniff/words") else GROUND_FLOOR)
    )
    for path in paths:
        for name in _imports(path):
            assert any(name == allowed or name.startswith(f"{allowed}.") for allowed in may), f"{path} imports {name}"


def _needs(modules: dict[str, Path]) -> dict[str, set[str]]:
    """The imports of each module from others, also in functions and for types alone."""
    needs: dict[str, set[str]] = {}
    for name, path in modules.items():
        found = set()
        for node in ast.walk(_parse(path)):
            if isinstance(node, ast.ImportFrom) and node.module:
                whole = {f"{node.module}.{alias.name}": node.module for alias in node.names}
                found |= {module if module in modules else package for module, package in whole.items()}
            elif isinstance(node, ast.Import):
                found |= {alias.name for alias in node.names}
        needs[name] = (found & modules.keys()) - {name}
    return needs


def test_modules_import_each_other_in_one_direction() -> None:
    """Each part can be read, made and tested without those that use it."""
    needs = _needs(_sources())
    assert "dissectors.zmtp.session" in needs["dissectors.zmtp.half"]
    assert "zmtpsniff.render.tree" in needs["zmtpsniff.render"]
    TopologicalSorter(needs).prepare()  # raises CycleError, which has the circle


def test_dissectors_do_no_input_or_output() -> None:
    banned = {"time", "socket", "os", "sys", "logging", "pathlib", "subprocess", "threading", "asyncio", "io"}
    paths = list((PROJECT / "dissectors").rglob("*.py"))
    assert paths
    for path in paths:
        tree = _parse(path)
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                assert not banned & {name.name for name in node.names}, path
            elif isinstance(node, ast.ImportFrom):
                assert (node.module or "").split(".")[0] not in banned, path
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                assert node.func.id not in ("print", "open"), path


def test_start_up_imports_little() -> None:
    """Not even where all commands are asked for, as ``--help`` does."""
    code = f"""
import sys
from zmtpsniff.cli.main import cli

with cli.make_context("zmtpsniff", ["read"]) as context:
    assert all(cli.get_command(context, name) for name in cli.list_commands(context))
print([name for name in {LATE} if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_reading_imports_what_it_uses() -> None:
    """Each of these takes as long as a capture of a thousand packets."""
    unused = {
        "dataclasses",
        "importlib.metadata",
        "ipaddress",
        "json",
        "pathlib",
        "subprocess",
        "zmtpsniff.capture.strace_log",
        "zmtpsniff.cli.live_command",
        "zmtpsniff.filters",
        "zmtpsniff.host",
    }
    code = "import atexit, sys, zmtpsniff.cli.main as main; atexit.register(lambda: print(*sys.modules)); main.main()"
    capture = PROJECT / "fixtures" / "m31_req_rep.pcap"
    done = subprocess.run(
        [sys.executable, "-c", code, "read", "-T", "json", capture], capture_output=True, text=True, check=True
    )
    modules = set(done.stdout.splitlines()[-1].split())
    assert "zmtpsniff.engine.sniffer" in modules
    assert not unused & modules


def test_the_helper_reads_nothing_of_the_network() -> None:
    """The helper that keeps root's rights has no code that takes packets, streams or frames apart."""
    code = "import sys, zmtpsniff.host.helper, zmtpsniff.host.watch, zmtpsniff.host.memory_keys; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    ours = {name for name in done.stdout.split() if name.split(".")[0] in ("zmtpsniff", "dissectors")}
    packages = {"dissectors", "dissectors.zmtp", "zmtpsniff", "zmtpsniff.host"}
    allowed = packages | {
        "dissectors.events",
        "dissectors.records",
        "dissectors.zmtp.curve_keys",
        "dissectors.zmtp.sockets",
    }
    assert {name for name in ours if not name.startswith("zmtpsniff.host.")} <= allowed


def test_spark_is_imported_late() -> None:
    names = ("inputs", "options", "session", "tables")
    modules = ", ".join(f"zmtpsniff.spark.{name}" for name in names)
    code = (
        f"import sys, zmtpsniff.cli.spark_command, {modules}; print([name for name in {SPARK} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def _sources() -> dict[str, Path]:
    """Our modules and packages by their whole names."""
    paths = [path for part in ("dissectors", "zmtpsniff") for path in (PROJECT / part).rglob("*.py")]
    return {".".join(path.relative_to(PROJECT).with_suffix("").parts).removesuffix(".__init__"): path for path in paths}


def test_the_top_has_what_users_import() -> None:
    """Everything else has a room."""
    top = {path.stem for path in (PROJECT / "zmtpsniff").glob("*.py")} - {"__init__", "__main__"}
    assert top == {"decode_as", "dissection", "errors", "pytest_plugin", "testing"}


@cache
def _bases() -> dict[str, list[str]]:
    """Each class of ours by its whole name, with the classes that it is made from."""
    found = {}
    for module, path in _sources().items():
        tree = _parse(path)
        imported = {
            alias.asname or alias.name: f"{node.module}.{alias.name}"
            for node in ast.walk(tree)
            if isinstance(node, ast.ImportFrom)
            for alias in node.names
        }
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                names = [ast.unparse(base).partition("[")[0] for base in node.bases]
                found[f"{module}.{node.name}"] = [imported.get(name, f"{module}.{name}") for name in names]
    return found


def _above(name: str, bases: dict[str, list[str]]) -> set[str]:
    direct = {base for base in bases[name] if base in bases}
    return direct.union(*(_above(base, bases) for base in direct))


# Tests of what has no module of its own: by folder, the names after test_.
TOPICS = {
    "": {"examples", "layers", "package", "workflows"},  # programs to copy, who imports whom, installing, releases
    "check": {"captures", "live"},  # policies made of captures, and held against live traffic
    "cli": {"completion"},  # in real shells
    "dissectors/zmtp": {"property_names", "streams"},  # which several readers look for, and whole conversations
    "render": {"diagrams", "golden", "output_safety", "people"},  # of several formats
    "spark": {"cluster", "curve", "cut_out", "follow", "memory", "streaming_docs", "usage"},  # from end to end
}
# Folders of such tests: of whole programs, of real peers, and of what the documentation says.
TOPIC_FOLDERS = {"docs", "peers", "program"}


def _subjects(folder: str) -> set[str]:
    """The modules that tests of a folder may be named after: its package, or a module or package in that."""
    package = PROJECT / (folder if folder.startswith("dissectors") else f"zmtpsniff/{folder}")
    return {package.name} | {path.stem for path in package.iterdir() if path.is_dir() or path.suffix in (".py", ".c")}


def test_tests_are_where_their_subject_is() -> None:
    """The tests of ``zmtpsniff/x/y.py`` are in ``tests/x/test_y.py``, and in ``tests/x/test_y_z.py`` if z is a part."""
    lost = set()
    for path in (PROJECT / "tests").rglob("test_*.py"):
        folder = path.parent.relative_to(PROJECT / "tests").as_posix().removeprefix(".")
        name = path.stem.removeprefix("test_")
        if folder in TOPIC_FOLDERS or name in TOPICS.get(folder, ()):
            continue
        if not any(name == subject or name.startswith(f"{subject}_") for subject in _subjects(folder)):
            lost.add(str(path))
    assert lost == set()
    for folder, names in TOPICS.items():
        assert not {name for name in names if not (PROJECT / "tests" / folder / f"test_{name}.py").exists()}


def test_public_classes_have_names_of_their_own() -> None:
    """A search for a class finds one."""
    where: dict[str, set[str]] = {}
    for name in _bases():
        module, _, short = name.rpartition(".")
        if not short.startswith("_"):
            where.setdefault(short, set()).add(module)
    assert {short: modules for short, modules in where.items() if len(modules) > 1} == {}


# Names that are documented although they begin with an underscore: methods of NamedTuple, and an end without a
# clean-up. And pyspark's gateway to Java, of which it has no public name.
PUBLIC_ALL_THE_SAME = {"_asdict", "_replace", "_exit", "_jvm", "_jdf"}


def _is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__") and name not in PUBLIC_ALL_THE_SAME


def _is_constant(name: str) -> bool:
    """Whether it is a module's constant, in place of which a test may put another one."""
    return name == name.upper()


def _names_made(tree: ast.AST) -> set[str]:
    """The names that a module defines: functions, classes, variables, and what its classes set of themselves."""
    names = set()
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                names.add(name)
            case ast.Name(id=name, ctx=ast.Store()):
                names.add(name)
            case ast.Attribute(value=ast.Name(id="self" | "cls"), attr=name, ctx=ast.Store()):
                names.add(name)
    return names


def _private_names_of_others(tree: ast.AST) -> set[str]:
    """Private names that a module uses, by a dot, an import or as text, and does not define."""
    used = set()
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(value=ast.Name(id="self" | "cls")):
                pass
            case ast.Attribute(attr=name):
                used.add(name)
            case ast.ImportFrom(names=aliases):
                used |= {alias.name for alias in aliases}
            case ast.Call(
                func=ast.Name(id="getattr" | "setattr" | "delattr"), args=[_, ast.Constant(value=str(name)), *_]
            ):
                used.add(name)
            case ast.Call(func=ast.Attribute(attr="setattr" | "delattr"), args=arguments):  # of pytest's MonkeyPatch
                texts = [one.value for one in arguments[:2] if isinstance(one, ast.Constant)]
                names = {str(text).rpartition(".")[2] for text in texts}
                used |= {name for name in names if not _is_constant(name)}
    private = set(filter(_is_private, used))
    return private - _names_made(tree) if private else private


@pytest.mark.parametrize(
    "source",
    [
        "half._read", "half._buffer.held = 1", "self.half._read()", "from a.b import _c", "setattr(x, '_y', 1)",
        "monkeypatch.setattr(x, '_y', 1)", "monkeypatch.setattr('a.b._y', 1)",
    ],
)  # fmt: skip
def test_private_names_of_others_are_recognised(source: str) -> None:
    assert len(_private_names_of_others(ast.parse(source))) == 1
    assert not _private_names_of_others(ast.parse(f"{source}\n_read = _buffer = _c = _y = 0"))


def test_a_test_may_put_another_constant_in_a_module() -> None:
    assert not _private_names_of_others(ast.parse("monkeypatch.setattr(module, '_MOST_SEGMENTS', 10)"))
    assert _private_names_of_others(ast.parse("monkeypatch.setattr(module, 'x', other._MOST_SEGMENTS)")) == {
        "_MOST_SEGMENTS"
    }


@pytest.mark.parametrize("part", ["dissectors", "zmtpsniff", "benchmarks", "docs", "fixtures", "tests"])
def test_nobody_names_what_is_private_to_another_module(part: str) -> None:
    """A name that another module needs is public; a private one may change without a look at the others."""
    paths = sorted((PROJECT / part).rglob("*.py"))
    assert paths
    found = {str(path.relative_to(PROJECT)): _private_names_of_others(_parse(path)) for path in paths}
    assert {path: names for path, names in found.items() if names} == {}


def test_classes_inherit_little() -> None:
    """A class has at most two of ours above it, so a reader needs no more than three."""
    bases = _bases()
    assert _above("dissectors.events.Message", bases) == {"dissectors.events.WireEvent", "dissectors.events.Event"}
    assert not {name for name in bases if len(_above(name, bases)) > 2}
