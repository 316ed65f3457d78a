"""The example workflow for GitHub Actions: its YAML, and its commands on real traffic."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
import zmq

from tests.support.check_program import check
from tests.support.live_program import needs_privilege
from tests.support.paths import PROJECT

WORKFLOW = PROJECT / "docs" / "check-workflow.yml"
SERVICES = """\
import zmq
with zmq.Context() as context, context.socket(zmq.REP) as rep, context.socket(zmq.REQ) as req:
    rep.bind("tcp://127.0.0.1:{port}")
    req.connect("tcp://127.0.0.1:{port}")
    for _ in range({count}):
        req.send(b"order")
        rep.recv()
        rep.send(b"confirmed")
        req.recv()
"""


def _steps() -> dict[str, dict[str, Any]]:
    """The steps of the workflow that have a name."""
    (job,) = yaml.safe_load(WORKFLOW.read_text())["jobs"].values()
    return {step["name"]: step for step in job["steps"] if "name" in step}


def test_it_is_a_workflow() -> None:
    workflow = yaml.safe_load(WORKFLOW.read_text())
    assert set(workflow) == {"name", True, "permissions", "jobs"}  # YAML 1.1 takes "on" for a boolean
    assert workflow[True] == ["push", "pull_request"]
    (job,) = workflow["jobs"].values()
    for step in job["steps"]:
        assert ("uses" in step) != ("run" in step)
    # The uploaded file is the written one.
    watch = _steps()["Watch the services"]["run"]
    assert f"sarif={_steps()['Show what is wrong in code scanning']['with']['sarif_file']}" in watch
    for name in _steps()["Keep the packets"]["with"]["path"].split():
        assert name in watch


def _run(step: str, folder: Path, changes: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """The commands of a step, as a runner runs them (bash -e), with the program and sudo in the path."""
    programs = folder / "bin"
    programs.mkdir(exist_ok=True)
    _script(programs / "zmtpsniff", f'exec "{sys.executable}" -m zmtpsniff "$@"')
    _script(programs / "sudo", 'exec "$@"')
    commands = _steps()[step]["run"]
    for old, new in changes.items():
        commands = commands.replace(old, new)
    environment = {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}", "PYTHONPATH": str(PROJECT)}
    return subprocess.run(
        ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", commands],
        cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip


def _script(path: Path, line: str) -> None:
    path.write_text(f"#!/bin/sh\n{line}\n")
    path.chmod(0o755)


@pytest.mark.slow
@needs_privilege
@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")
def test_its_commands(tmp_path: Path) -> None:
    with zmq.Context() as context, context.socket(zmq.REP) as socket:
        port = socket.bind_to_random_port("tcp://127.0.0.1")
    (tmp_path / "policy.toml").write_text(
        'include = ["protocol", "secure", "complete", "modern"]\n'
        f'[[rule]]\nname = "orders"\nexpect = \'tcp.port == {port} && frames[1].text == "order"\'\nmin = 20\n'
    )
    (tmp_path / "services.py").write_text(SERVICES.format(port=port, count=20))
    _script(tmp_path / "run-services.sh", f'exec "{sys.executable}" services.py')
    # Other tests send over loopback at the same time.
    changes = {"duration:30": "duration:10", "-i lo": f"-i lo -f 'tcp port {port}'"}
    done = _run("Watch the services", tmp_path, changes)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "8 rules passed" in done.stdout
    assert "::notice title=zmtpsniff check::" in done.stdout
    assert {"traffic.pcapng", "traffic.xml", "traffic.sarif", "check.log"} <= {path.name for path in tmp_path.iterdir()}
    assert check(tmp_path / "traffic.pcapng", "--policy", tmp_path / "policy.toml").status == 0

    # The next release talks less.
    shutil.copy(tmp_path / "traffic.pcapng", tmp_path / "last-release.pcapng")
    assert _run("Compare with the traffic of the last release", tmp_path, {}).returncode == 0
    (tmp_path / "services.py").write_text(SERVICES.format(port=port, count=2))
    (tmp_path / "check.log").unlink()  # a runner begins in a folder without it
    done = _run("Watch the services", tmp_path, changes)
    assert done.returncode == 1
    assert "::error file=policy.toml,line=2,title=orders::" in done.stdout
    done = _run("Compare with the traffic of the last release", tmp_path, {})
    assert done.returncode == 1
    # Of all of a second, unless a busy machine takes longer for them.
    assert re.search(rf"127\.0\.0\.1:{port} sent [\d.]+ messages a second, and now [\d.]+", done.stdout)
