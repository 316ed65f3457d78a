"""A Jupyter kernel that runs cells, captured live: every message on its channel, joined with what it answers."""

import importlib.util
import json
import subprocess
from typing import Any

import pytest

from tests.support import kernel_client
from tests.support.conversation import wrong
from tests.support.kernel_client import ANSWER, CELLS, CHANNELS
from tests.support.live_program import Record, live, needs_privilege
from tests.support.namespaces import joined_namespaces, needs_namespaces
from tests.support.paths import program

PORT = 5900
HEARTBEATS = PORT + CHANNELS.index("hb")
PROGRAM = [*program(kernel_client), str(PORT)]

pytestmark = [
    pytest.mark.slow,  # fixtures/app_jupyter.pcap is one
    needs_namespaces,
    needs_privilege,
    pytest.mark.skipif(importlib.util.find_spec("ipykernel") is None, reason="ipykernel is not installed"),
]


def port_of(record: Record) -> int:
    return min(int(record[end].rpartition(":")[2]) for end in ("src", "dst"))


def test_cells_and_what_comes_of_them() -> None:
    with joined_namespaces() as (side, _):
        heartbeats = ("-d", f"tcp.port=={HEARTBEATS},jupyter")
        with live("-i", "lo", "--max-bytes", "0", *heartbeats, prefix=side.command()) as program:
            done = subprocess.run(side.command(*PROGRAM), capture_output=True, check=False, timeout=120)
            assert done.returncode == 0, done.stderr.decode()
            program.read_until(lambda records: "shutdown_reply" in kinds(records[-1:]))
            records = program.interrupt()
    log = list(map(json.loads, done.stdout.splitlines()))
    # On a busy machine a heartbeat may not be answered in time.
    assert [problem for problem in wrong(records) if port_of(problem) != HEARTBEATS] == []
    messages = [record for record in records if record["type"] == "message" and "payload" in record]
    for record in messages:
        assert record["payload"]["channel"] == CHANNELS[port_of(record) - PORT]
    assert {record["payload"]["channel"] for record in messages} == set(CHANNELS)
    check_heartbeats(messages)
    seen = {record["payload"]["header"]["msg_id"]: record for record in messages if "header" in record["payload"]}
    told = [line for line in log if "cell" not in line]
    assert {line["channel"] for line in told} == set(CHANNELS) - {"hb"}
    for line in told:
        check_joined(seen[line["msg_id"]], line, seen)
    check_cells(messages)


def kinds(records: list[Record]) -> list[str]:
    return [record["payload"].get("msg_type", "") for record in records if "payload" in record]


def check_joined(record: Record, line: dict[str, Any], seen: dict[str, Record]) -> None:
    """A message is on its channel, and tells the packet of the request that it is about, if there is one."""
    payload = record["payload"]
    assert (payload["channel"], payload["msg_type"]) == (line["channel"], line["msg_type"])
    if line["parent"] is not None:
        request = seen[line["parent"]]
        assert (payload["request"], payload["answers"]) == (request["packet"], request["payload"]["msg_type"])
        assert payload["answers"].endswith("_request")


def check_cells(messages: list[Record]) -> None:
    requests = [record for record in messages if record["payload"].get("msg_type") == "execute_request"]
    # wait_for_ready and others of the client run cells, too, which are empty.
    requests = [record for record in requests if record["payload"]["content"]["code"]]
    assert [record["payload"]["content"]["code"] for record in requests] == CELLS
    results = []
    for request in requests:
        about = [record["payload"] for record in messages if record["payload"].get("request") == request["packet"]]
        (reply,) = (payload for payload in about if payload["msg_type"] == "execute_reply")
        results.append(reply["content"]["status"])
        states = [payload["content"]["execution_state"] for payload in about if payload["msg_type"] == "status"]
        assert states == ["busy", "idle"]
        assert "execute_input" in [payload["msg_type"] for payload in about]
    assert results == ["ok", "ok", "ok", "ok", "error", "ok"]
    (answer,) = (record["payload"] for record in messages if record["payload"].get("msg_type") == "input_reply")
    assert answer["content"] == {"value": ANSWER}


def check_heartbeats(messages: list[Record]) -> None:
    beats = [record for record in messages if record["payload"]["channel"] == "hb"]
    there = [record["payload"]["content"] for record in beats if port_of(record) == int(record["dst"].split(":")[1])]
    back = [record["payload"]["content"] for record in beats if port_of(record) == int(record["src"].split(":")[1])]
    assert there
    assert there[: len(back)] == back
