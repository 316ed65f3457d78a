"""libzmq with its drafts as a peer, captured live: ws://, RADIO and DISH over udp and tcp, the draft sockets."""

import json
import subprocess
from typing import Any

import pytest

from tests.support import draft_peers, draft_sockets
from tests.support.conversation import octets, wrong
from tests.support.live_program import LiveProgram, Record, live, needs_privilege
from tests.support.namespaces import Side, needs_namespaces
from tests.support.paths import program

HOST = "127.0.0.1"
FIRST_PORT = 5700
PROGRAM = [*program(draft_peers), str(draft_sockets.WITH_DRAFTS)]

pytestmark = [
    needs_namespaces,
    needs_privilege,
    pytest.mark.skipif(
        not draft_sockets.WITH_DRAFTS.exists(),
        reason="no libzmq with drafts: tests/support/libzmq/build .ci/libzmq makes one",
    ),
]


def run(side: Side, exchange: str, port: int) -> list[dict[str, Any]]:
    """The logs of the two sockets of an exchange."""
    command = side.command(*PROGRAM, exchange, HOST, str(port))
    done = subprocess.run(command, capture_output=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr.decode()
    return list(map(json.loads, done.stdout.splitlines()))


def capture(side: Side, *exchanges: str) -> dict[str, tuple[list[Record], list[dict[str, Any]]]]:
    """The records and the log of each exchange, on a port of its own."""
    ports = {name: FIRST_PORT + number for number, name in enumerate(exchanges)}
    named = [word for port in ports.values() for word in ("-d", f"udp.port=={port},zmtp")]
    with live("-i", "lo", "--max-bytes", "0", *named, prefix=side.command()) as program:
        logs = {name: run(side, name, port) for name, port in ports.items()}
        await_last(program, side)
        records = program.interrupt()
    assert wrong([record for record in records if "flow" not in record]) == []
    return {name: (of_port(records, port), logs[name]) for name, port in ports.items()}


def await_last(program: LiveProgram, side: Side) -> None:
    """Packets are read in order: once the last exchange is there, all are."""
    run(side, "channel", FIRST_PORT - 1)
    program.read_until(lambda records: bool(connections(of_port(records[-1:], FIRST_PORT - 1))))


def of_port(records: list[Record], port: int) -> list[Record]:
    return [record for record in records if any(end.endswith(f":{port}") for end in ends(record))]


def ends(record: Record) -> list[str]:
    if record["type"] == "connection":
        return [record["client"]["address"], record["server"]["address"]]
    return [record.get("src", ""), record.get("dst", "")]


def connections(records: list[Record]) -> list[Record]:
    return [record for record in records if record["type"] == "connection"]


def check_messages(records: list[Record], log: list[dict[str, Any]]) -> Record:
    """All that was logged is in the records, in order and once, and nothing else is; the one connection."""
    (connection,) = connections(records)
    for side in ("client", "server"):
        address = connection[side]["address"]
        sent = [record for record in records if record["type"] == "message" and record["src"] == address]
        seen = [draft_peers.fingerprint(list(map(octets, record["frames"]))) for record in sent]
        assert seen == [line["frames"] for line in log if line["by"] == side]
        assert connection["messages"][side] == len(seen)
    return connection


def of_command(records: list[Record], *names: str) -> list[Record]:
    return [record for record in records if record["type"] == "command" and record["name"] in names]


def types(connection: Record) -> tuple[str, str]:
    return connection["client"]["socket_type"], connection["server"]["socket_type"]


WS = {
    "ws_sizes": ("PAIR", "PAIR"),
    "ws_requests": ("REQ", "ROUTER"),
    "ws_pub_sub": ("SUB", "PUB"),
    "ws_plain": ("DEALER", "DEALER"),
    "ws_client_server": ("CLIENT", "SERVER"),
    "ws_closed": ("PAIR", "PAIR"),
}


def test_websocket(side: Side) -> None:
    found = capture(side, *WS, "ws_plain_refused")
    for name, kinds in WS.items():
        records, log = found[name]
        connection = check_messages(records, log)
        assert wrong(records) == [], name
        mechanism = "PLAIN" if name == "ws_plain" else "NULL"
        assert (connection["transport"], connection["version"]) == ("ws", "ZWS2.0")
        assert (connection["mechanism"], connection["handshake"], connection["end"]) == (mechanism, "complete", "fin")
        assert types(connection) == kinds
    check_heartbeats(found["ws_sizes"][0])
    changes = [record for record in found["ws_pub_sub"][0] if record["type"] == "subscription"]
    assert [(record["action"], octets(record["topic"])) for record in changes] == [
        ("subscribe", b"weather"),
        ("cancel", b"weather"),
    ]
    closes = of_command(found["ws_closed"][0], "CLOSE")
    assert [record["status"] for record in closes] == [1000, 1000]
    assert octets(closes[0]["reason"]) == b"bye"
    (ping, pong) = of_command(found["ws_closed"][0], "PING", "PONG")
    assert octets(ping["context"]) == b"still there?"
    assert (pong["request"], "context" in pong) == (ping["packet"], False)  # libzmq's is empty
    check_plain(found["ws_plain"][0])
    check_refused(found["ws_plain_refused"][0])


def check_heartbeats(records: list[Record]) -> None:
    beats = of_command(records, "PING", "PONG")
    answered = {record["request"] for record in beats if record["name"] == "PONG"}
    pings = [record["packet"] for record in beats if record["name"] == "PING"]
    assert answered >= set(pings[:-1])  # the last one may be too late for an answer
    assert answered <= set(pings)
    assert len(pings) >= 2


def check_plain(records: list[Record]) -> None:
    commands = of_command(records, "HELLO", "WELCOME", "INITIATE", "READY")
    assert [record["name"] for record in commands] == ["HELLO", "WELCOME", "INITIATE", "READY"]
    assert octets(commands[0]["username"]) == draft_peers.USERNAME
    assert draft_peers.PASSWORD.decode() not in json.dumps(records)


def check_refused(records: list[Record]) -> None:
    assert {record["handshake"] for record in connections(records)} == {"failed"}
    assert {record["code"] for record in wrong(records)} == {"peer-error"}
    (error,) = of_command(records, "ERROR")
    assert octets(error["reason"]) == b"400"
    assert draft_peers.WRONG.decode() not in json.dumps(records)


TCP = {
    "tcp_radio_dish": ("DISH", "RADIO"),
    "client_server": ("CLIENT", "SERVER"),
    "scatter_gather": ("SCATTER", "GATHER"),
    "channel": ("CHANNEL", "CHANNEL"),
}


def test_draft_sockets_over_tcp_and_udp(side: Side) -> None:
    found = capture(side, *TCP, "udp_radio_dish")
    for name, kinds in TCP.items():
        records, log = found[name]
        connection = check_messages(records, log)
        assert wrong(records) == [], name
        assert (connection["transport"], connection["handshake"], connection["end"]) == ("tcp", "complete", "fin")
        assert types(connection) == kinds
    groups = of_command(found["tcp_radio_dish"][0], "JOIN", "LEAVE")
    assert [(record["name"], octets(record["group"])) for record in groups] == [
        *(("JOIN", group) for group in draft_peers.GROUPS),
        ("LEAVE", draft_peers.GROUPS[0]),
    ]
    records, log = found["udp_radio_dish"]
    connection = check_messages(records, log)
    assert wrong(records) == []
    assert connection["transport"] == "udp"
    assert types(connection) == ("RADIO", "DISH")
