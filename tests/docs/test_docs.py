"""Documentation that is made from the code says what the code says."""

import importlib.util
import json
import re
import shutil
import subprocess
from pathlib import Path
from types import ModuleType
from typing import Any

import click
import pytest
import yaml

from dissectors.payloads.registry import built_in
from tests.support.paths import PROJECT
from tests.support.shown_commands import blocks
from zmtpsniff.analysis.findings.catalogue import FINDINGS


def _reference() -> ModuleType:
    spec = importlib.util.spec_from_file_location("reference", PROJECT / "docs" / "reference.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_reference_and_manual_pages(request: pytest.FixtureRequest) -> None:
    reference = _reference()
    if request.config.getoption("--renew-golden"):
        reference.main()
    made: dict[Path, str] = reference.pages()
    for path, text in made.items():
        assert path.read_text() == text, f"{path}: renew it with pytest tests/docs/test_docs.py --renew-golden"
    for folder in ("man", "reference"):
        assert {path for path in made if path.parent.name == folder} == set((PROJECT / "docs" / folder).iterdir())


MANUAL_PAGES = sorted((PROJECT / "docs" / "man").iterdir())


@pytest.mark.skipif(shutil.which("man") is None, reason="man is not installed")
def test_manual_pages_are_sound_for_man() -> None:
    for page in MANUAL_PAGES:
        done = subprocess.run(
            ["man", "--warnings", "-E", "UTF-8", "-l", "-Tutf8", "-Z", page], capture_output=True, text=True, check=True
        )
        assert done.stderr == "", page


@pytest.mark.skipif(shutil.which("mandoc") is None, reason="mandoc is not installed")
def test_manual_pages_are_sound_for_mandoc() -> None:
    done = subprocess.run(
        ["mandoc", "-Tlint", "-W", "warning", *MANUAL_PAGES], capture_output=True, text=True, check=False
    )
    # A date would make another page of each build.
    assert [line for line in done.stdout.splitlines() if "missing date" not in line] == []


def test_yaml_in_pages_is_yaml() -> None:
    found = 0
    for page in (PROJECT / "docs").rglob("*.md"):
        for block in blocks(page):
            if block.kind == "yaml":
                assert yaml.safe_load(block.text), f"{page}:{block.line}"
                found += 1
    assert found


def test_the_sidecar_runs_what_there_is() -> None:
    (block,) = [block for block in blocks(PROJECT / "docs" / "howto" / "kubernetes.md") if block.kind == "yaml"]
    containers: list[dict[str, Any]] = yaml.safe_load(block.text)["spec"]["containers"]
    (sidecar,) = [each for each in containers if each["name"] == "zmtpsniff"]
    program, name, *arguments = sidecar["command"]
    assert program == "zmtpsniff"
    cli = _reference().cli
    command = cli.get_command(click.Context(cli), name)
    with command.make_context(name, arguments) as context:
        assert context.params["interfaces"] == ("any",)


@pytest.mark.parametrize("version", ["1.31", "1.37"])
def test_kubernetes_takes_the_manifests(version: str) -> None:
    """By its OpenAPI schema, where no field may be unknown."""
    kubernetes = pytest.importorskip("kubernetes_validate", reason="kubernetes-validate is not installed")
    texts = [path.read_text() for path in (PROJECT / "docs").glob("*.yml")]
    texts += [block.text for page in (PROJECT / "docs").rglob("*.md") for block in blocks(page) if block.kind == "yaml"]
    parts = [part for text in texts for part in yaml.safe_load_all(text) if "apiVersion" in part]
    assert {part["kind"] for part in parts} >= {"DaemonSet", "Pod", "CronJob", "Role", "RoleBinding", "ConfigMap"}
    for part in parts:
        assert kubernetes.validate(part, version, strict=True) == version
        with pytest.raises(kubernetes.ValidationError):
            kubernetes.validate({**part, "metaData": {}}, version, strict=True)


def test_the_changelog_is_in_order() -> None:
    text = (PROJECT / "CHANGELOG.md").read_text()
    versions = re.findall(r"(?m)^## \[(.+?)\](?: - (\d{4}-\d\d-\d\d))?$", text)
    assert versions[0] == ("Unreleased", "")
    assert all(date for _, date in versions[1:])
    assert set(re.findall(r"(?m)^### (.+)$", text)) <= {
        "Added", "Changed", "Deprecated", "Removed", "Fixed", "Security",
    }  # fmt: skip


def test_records_stay_what_they_were(request: pytest.FixtureRequest) -> None:
    """Within one MAJOR nothing that the schema says goes away or changes; what is new does no harm."""
    from zmtpsniff.analysis.statistics.stats_records import AnyRecord
    from zmtpsniff.render.json_schema import VERSION, json_schema

    now = {"record": json_schema(), "statistics": json_schema(AnyRecord)}
    known = PROJECT / "tests" / "support" / "schemas" / f"records-{VERSION.partition('.')[0]}.json"
    if known.exists():
        differences = list(_lost(json.loads(known.read_text()), json.loads(json.dumps(now)), "schema"))
        assert differences == [], "raise MAJOR of the records' version, or keep what was there"
    if request.config.getoption("--renew-golden"):  # what is new must stay from now on
        known.write_text(json.dumps(now, indent=1, sort_keys=True) + "\n")
    assert known.exists()


def _lost(old: Any, new: Any, place: str) -> Any:
    """The statements of a schema that another lacks; titles, texts and identifiers may change."""
    if isinstance(old, dict) and isinstance(new, dict):
        for key, value in old.items():
            if key in ("description", "title", "$id"):
                continue
            if key not in new:
                yield f"{place}.{key} is gone"
            else:
                yield from _lost(value, new[key], f"{place}.{key}")
        if "properties" in old:
            # A field that was always there must not become one that may be missing.
            yield from (f"{place}: {name}" for name in set(old.get("required", [])) - set(new.get("required", [])))
    elif isinstance(old, list) and isinstance(new, list):
        yield from (f"{place}: {value} is gone" for value in old if value not in new)
    elif old != new:
        yield f"{place}: {old} is {new} now"


def test_what_is_lost_is_found() -> None:
    """The comparison above sees what it is for."""
    old: dict[str, Any] = {"properties": {"a": {"type": "integer"}, "b": {"enum": ["x", "y"]}}, "required": ["a"]}
    assert list(_lost(old, {**old, "properties": {**old["properties"], "c": {"type": "string"}}}, "")) == []
    assert len(list(_lost(old, {**old, "properties": {"a": {"type": "string"}, "b": {"enum": ["x"]}}}, ""))) == 2
    assert len(list(_lost(old, {**old, "required": []}, ""))) == 2
    assert len(list(_lost(old, {"properties": {"a": old["properties"]["a"]}, "required": ["a"]}, ""))) == 1


PAGES = [*PROJECT.glob("*.md"), *(PROJECT / "docs").rglob("*.md"), *PROJECT.glob("*/README.md")]


def without_code(page: Path) -> str:
    """A page without what stands between fences, where a bar is no table."""
    return re.sub(r"^( *)(`{3,}).*?^ *\2", "", page.read_text(), flags=re.M | re.S)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(PROJECT)))
def test_every_table_is_a_table(page: Path) -> None:
    """An empty line ends a table, and its other rows become a paragraph full of bars."""
    for block in re.findall(r"(?:^\|.*\n?)+", without_code(page), re.M):
        rows = block.splitlines()
        assert len(rows) > 2, block
        assert re.fullmatch(r"\|(?: *:?-+:? *\|)+", rows[1].strip()), block
        columns = {len(re.findall(r"(?<!\\)\|", re.sub(r"`[^`]*`", "", row))) for row in rows}
        assert len(columns) == 1, block


def test_the_front_page_has_a_visible_link_to_every_page() -> None:
    docs = PROJECT / "docs"
    visible = set(re.findall(r"\]\(([^)#]+\.md)", without_code(docs / "index.md")))
    pages = {str(page.relative_to(docs)) for page in docs.rglob("*.md")} - {"index.md"}
    assert pages - visible == set()


def test_links_lead_somewhere() -> None:
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#]+)", page.read_text()):
            assert target.startswith("https://") or (page.parent / target).exists(), f"{page}: {target}"


def test_the_readme_has_figures_of_the_whole_report() -> None:
    """The README's short table is written from the same measurement as the long ones."""
    _, _, rest = (PROJECT / "README.md").read_text().partition("<!-- benchmarks: begin -->")
    table, end, _ = rest.partition("<!-- benchmarks: end -->")
    figures = re.findall(r"\d[\d.,-]*\d", table.replace("-T", ""))
    report = (PROJECT / "benchmarks" / "RESULTS.md").read_text()
    assert end
    assert len(figures) > 12
    assert [figure for figure in figures if figure not in report] == []


@pytest.mark.parametrize("page", ["curve.md", "howto/monitoring.md"])
def test_a_page_has_the_measured_price(page: str) -> None:
    _, _, rest = (PROJECT / "docs" / page).read_text().partition("<!-- benchmarks: begin -->\n\n")
    table, end, _ = rest.partition("\n\n<!-- benchmarks: end -->")
    assert end
    assert "| :-- |" in table
    assert table in (PROJECT / "benchmarks" / "LIVE.md").read_text()


def test_every_finding_is_on_its_page() -> None:
    page = (PROJECT / "docs" / "diagnose.md").read_text()
    assert [code for code in FINDINGS if f"`{code}`" not in page] == []


def test_every_payload_protocol_is_on_its_page() -> None:
    page = (PROJECT / "docs" / "payloads.md").read_text()
    missing = [one.name for one in built_in() if f"| `{one.name}` |" not in page]
    assert not missing, "give each a line in the table of docs/payloads.md"
