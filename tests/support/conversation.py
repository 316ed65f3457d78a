"""Conversations of the programs in peers.py, and what zmtpsniff must have seen of them."""

import json
import subprocess
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import zmq

from tests.support import peers, ticker
from tests.support.live_program import Record
from tests.support.namespaces import Side
from tests.support.paths import program
from tests.world.events import is_subsequence

Logs = dict[str, list[dict[str, Any]]]  # what the server and the client logged
EVERYTHING = tuple(name for name in peers.EXCHANGES if name != "flood" and not name.startswith("curve_"))
UNDER_CURVE = tuple(name for name in peers.EXCHANGES if name.startswith("curve_"))
FEW = ("push_pull", "req_rep", "pub_sub")
_PEERS = [*program(ticker), peers.__name__]
_STANDSTILL_MS = 500  # half of what an answer to a heartbeat may take


def converse(server: Side, client: Side, host: str, exchanges: Sequence[str], **more: int) -> Logs:
    """Run both programs to their end, with ``more`` in their plan; returns what they logged.

    Raises StandstillError if they have heartbeats, and the machine let one of them stand still.
    """
    curve = [key.decode() for key in zmq.curve_keypair()]
    plan = json.dumps({"host": host, "exchanges": exchanges, "curve": curve, **more})
    running = [
        subprocess.Popen(side.command(*_PEERS, role, plan), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        for role, side in (("server", server), ("client", client))
    ]
    try:
        # Both are read at the same time: one whose log fills its pipe waits, and the other one waits for it.
        with ThreadPoolExecutor() as readers:
            said = list(readers.map(lambda process: process.communicate(timeout=180), running))
    finally:
        for process in running:
            process.kill()
            process.wait()
    for process, (_, errors) in zip(running, said, strict=True):
        assert process.returncode == 0, errors.decode()
        if "heartbeat_ms" in more and ticker.longest_ms(errors) > _STANDSTILL_MS:
            raise ticker.StandstillError
    server_said, client_said = (list(map(json.loads, lines.splitlines())) for lines, _ in said)
    return {"server": server_said, "client": client_said}


def logged(logs: Logs, role: str, port: int, *what: str) -> list[list[list[Any]]]:
    return [line["frames"] for line in logs[role] if line["port"] == port and line["what"] in what]


def octets(shown: dict[str, Any]) -> bytes:
    assert "truncated" not in shown
    return shown["text"].encode() if "text" in shown else bytes.fromhex(shown["hex"])


def closed(count: int, host: str) -> Callable[[list[Record]], bool]:
    """Whether so many connections with a host are over; to be asked again and again, as records come."""
    looked = found = 0

    def done(records: list[Record]) -> bool:
        nonlocal looked, found
        new = records[looked:]
        looked += len(new)
        found += len([record for record in new if record["type"] == "connection" and is_with(record, host)])
        return found >= count

    return done


def is_with(record: Record, host: str) -> bool:
    ends = (
        [record["client"]["address"], record["server"]["address"]]
        if record["type"] == "connection"
        else [record.get("src", ""), record.get("dst", "")]
    )
    return any(end.startswith((f"{host}:", f"[{host}]:")) for end in ends)


def check(
    records: list[Record],
    logs: Logs,
    host: str,
    exchanges: Sequence[str],
    ends: Collection[str] = ("fin",),
    is_decrypted: bool = False,
) -> None:
    """All that the programs logged is in the records, in order and once, and nothing else is.

    Connections may end in any of these ways. Messages under CURVE are as the rest if they are ``is_decrypted``.
    """
    records = [record for record in records if is_with(record, host)]
    for port, name in [(peers.CONTROL_PORT, "control"), *enumerate(exchanges, peers.FIRST_PORT)]:
        mechanism = peers.EXCHANGES[name].mechanism if name in peers.EXCHANGES else "NULL"
        ours = [record for record in records if record.get("server", {}).get("address", "").endswith(f":{port}")]
        (connection,) = ours
        assert connection["handshake"] == "complete", name
        assert connection["end"] in ends, name
        assert connection.get("mechanism") == mechanism
        flow = [record for record in records if record["flow"] == connection["flow"]]
        assert (name, wrong(flow)) == (name, [])
        for sender, receiver in (("client", "server"), ("server", "client")):
            sent = [record for record in flow if record.get("src") == connection[sender]["address"]]
            seen = [peers.fingerprint(list(map(octets, r["frames"]))) for r in sent if r["type"] == "message"]
            if mechanism == "CURVE" and not is_decrypted:
                assert seen == []
                boxes = [record for record in sent if record["type"] == "command" and record["name"] == "MESSAGE"]
                said = logged(logs, sender, port, "sent")
                assert len(boxes) == sum(map(len, said)), f"{name}, {sender}"
                continue
            if (name, sender) == ("topics", "server"):
                # The publisher drops what it knows that nobody wants, and the subscriber what it did not know yet.
                assert is_subsequence(seen, logged(logs, sender, port, "sent"))
                assert is_subsequence(logged(logs, receiver, port, "received"), seen)
            else:
                assert seen == logged(logs, receiver, port, "received"), f"{name}, {sender}"
                assert seen == logged(logs, sender, port, "sent") or "pub_sub" in name
            changed = [[r["action"], octets(r["topic"])] for r in sent if r["type"] == "subscription"]
            said = logged(logs, sender, port, "subscribed", "cancelled")
            assert len(changed) == len(said)
            assert [peers.fingerprint([topic]) for _, topic in changed] == said


def wrong(records: list[Record]) -> list[Record]:
    return [record for record in records if record["type"] == "problem" and record["severity"] != "note"]


def check_secrets(output: str) -> None:
    for secret in (peers.MARK, peers.PASSWORD):
        assert secret.decode() not in output
        assert secret.hex() not in output


def check_end(records: list[Record]) -> None:
    assert [record["type"] for record in records].count("capture") == 1
    assert records[-1]["type"] == "capture"
    assert records[-1]["dropped"] == 0
    assert wrong(records) == []
