"""libzmq asks pyzmq's ThreadAuthenticator over tcp whom to let in, captured live."""

import json
import subprocess

from tests.support import zap_peers
from tests.support.conversation import octets, wrong
from tests.support.live_program import Record, live, needs_privilege
from tests.support.namespaces import joined_namespaces, needs_namespaces
from tests.support.paths import program
from tests.support.zap_peers import DOMAIN, PASSWORD, USERNAME, WRONG

PORT = 5950
PROGRAM = [*program(zap_peers), str(PORT)]
pytestmark = [needs_namespaces, needs_privilege]


def test_every_request_and_its_reply() -> None:
    with joined_namespaces() as (side, _), live("-i", "lo", prefix=side.command()) as program:
        done = subprocess.run(side.command(*PROGRAM), capture_output=True, check=False, timeout=120)
        assert done.returncode == 0, done.stderr.decode()
        program.read_until(lambda records: is_end(records[-1:]))
        records = program.interrupt()
    attempts = list(map(json.loads, done.stdout.splitlines()))
    told = [record for record in records if record.get("payload", {}).get("protocol") == "zap"]
    requests, replies = told[::2], told[1::2]
    assert len(requests) == len(replies) == len(attempts) == 5
    for request, reply, attempt in zip(requests, replies, attempts, strict=True):
        asked, answer = request["payload"], reply["payload"]
        assert (asked["kind"], asked["mechanism"], asked["domain"]) == (
            "request",
            attempt["mechanism"],
            DOMAIN.decode(),
        )
        assert (answer["kind"], answer["request"]) == ("reply", request["packet"])
        assert (answer["status"], answer["user_id"]) == (200 if attempt["let_in"] else 400, attempt["user_id"])
        assert asked.get("address") == "127.0.0.1"
    assert [octets(request["payload"]["username"]) for request in requests[1:3]] == [USERNAME.encode()] * 2
    assert [request["payload"]["password"] for request in requests[1:3]] == [
        {"length": len(password)} for password in (PASSWORD, WRONG)
    ]
    payloads = json.dumps([record["payload"] for record in told])
    assert PASSWORD not in payloads
    assert WRONG not in payloads
    # Those who were not let in, and nothing else, are problems.
    assert {problem["code"] for problem in wrong(records)} <= {"peer-error", "handshake-incomplete"}


def is_end(records: list[Record]) -> bool:
    """Whether the connection with the authenticator is over."""
    return any(
        record["type"] == "connection" and record["server"]["address"] == f"127.0.0.1:{PORT}" for record in records
    )
