"""The fields of each application protocol: those of real programs, and of octets made after the specification."""

import io
import json
from typing import Any

import msgspec
import pytest

from dissectors.events import AnyEvent, Hidden, Message, Payload
from dissectors.payloads.registry import built_in
from tests.analysis.test_payloads import PLACE, given, needs_captures, octets, payloads_of, read, truth
from tests.support.paths import CAPTURES, FIXTURES
from zmtpsniff.analysis.payloads import Payloads
from zmtpsniff.render import make_renderer


def payload(*frames: bytes) -> Payload | None:
    """The payload that the built-in dissectors find in a message."""
    (event,) = given(built_in(), list(frames))
    assert isinstance(event, Message)
    return event.payload


def fields(*frames: bytes) -> dict[str, Any]:
    found = payload(*frames)
    assert found is not None
    return found.fields


# ---------------------------------------------------------------------- Malamute


@needs_captures
def test_malamute_commands_are_what_clients_did() -> None:
    records = read(CAPTURES / "app_malamute.pcap")
    commands = 0
    for connection in truth("app_malamute")["connections"]:
        client = f"127.0.0.1:{connection['client_port']}"
        for direction, end in (("client_to_server", "src"), ("server_to_client", "dst")):
            sent = [record["payload"] for record in records if record["type"] == "message" and record[end] == client]
            # Pings and the end are not listed.
            later = iter(sent)
            for expected in connection["mlm_commands"][direction]:
                listed = {"command": expected} if isinstance(expected, str) else dict(expected)
                if listed["command"] == "STREAM_DELIVER":  # the grammar calls the stream's name "address"
                    listed["sender"], listed["address"] = listed["address"], listed.pop("stream")
                found = next(payload for payload in later if payload["command"] == listed["command"])
                content = [octets(frame).decode() for frame in found.pop("content", [])]
                assert {**found, **({"content": content} if content else {})}.items() >= listed.items()
                commands += 1
    assert commands == 27  # all that are listed


@needs_captures
def test_malamute_replies_are_joined_with_requests() -> None:
    records = read(CAPTURES / "app_malamute.pcap")
    sent = {record["packet"]: record["payload"] for record in records if "payload" in record}
    replies = [found for found in sent.values() if found["command"] in ("OK", "CONNECTION_PONG")]
    assert len(replies) == 17
    for record in records:
        if "request" in record.get("payload", {}):
            assert record["request"] == record["payload"]["request"]
            assert 0 < record["latency_ns"] < 10_000_000  # and not since something else
            assert "paired" not in record
    for reply in replies:
        assert sent[reply["request"]]["command"] == reply["answers"]
    assert [reply["answers"] for reply in replies].count("CONNECTION_CLOSE") == 4


def test_malamute_confirmation_is_joined_by_its_tracker() -> None:
    send = b"\xaa\xa8\x09\x03box\x01s\x02t1" + (1000).to_bytes(4, "big")
    found = fields(send, b"body")
    assert found == {
        "command": "MAILBOX_SEND", "address": "box", "subject": "s", "tracker": "t1", "timeout": 1000,
        "content": [b"body"],
    }  # fmt: skip
    assert fields(b"\xaa\xa8\x11\x02t1\x01\x2e\x00")["status_code"] == 302


@pytest.mark.parametrize(
    "frame",
    [
        b"\xaa\xa8\x00",
        b"\xaa\xa8\x13",
        b"\xaa\xa8\x05\x09short",
        b"\xaa\xa8\x05\x01ab",
        b"\xaa\xa8\x01\x08MALAMUTF\0\1\0",
        b"\xaa\xa9\x02",
    ],
)
def test_malformed_malamute_is_none(frame: bytes) -> None:
    assert payload(frame) is None


# ---------------------------------------------------------------------- Majordomo


@needs_captures
def test_majordomo_commands_are_what_was_sent() -> None:
    records = read(CAPTURES / "app_majordomo_mdp01.pcap")
    names = {1: "READY", 2: "REQUEST", 3: "REPLY", 4: "HEARTBEAT", 5: "DISCONNECT"}
    for connection in truth("app_majordomo_mdp01")["connections"]:
        client = f"127.0.0.1:{connection['client_port']}"
        for direction, end in (("client_to_server", "src"), ("server_to_client", "dst")):
            sent = [record["payload"] for record in records if record["type"] == "message" and record[end] == client]
            for found, frames in zip(sent, connection["messages"][direction], strict=True):
                _, header, *rest = map(bytes.fromhex, frames)
                body = [octets(frame) for frame in found.get("body", [])]
                assert found["version"] == "0.1"
                if header == b"MDPC01":
                    assert found["role"] == "client"
                    assert found["command"] == ("REQUEST" if end == "src" else "REPLY")
                    assert [found["service"].encode(), *body] == rest
                else:
                    assert found["role"] == "worker"
                    assert found["command"] == names[rest[0][0]]
                    if "addresses" in found:
                        assert [*map(octets, found["addresses"]), b"", *body] == rest[1:]
    assert [record["payload"]["request"] for record in records if "request" in record.get("payload", {})] == [
        25, 24, 32, 31, 40, 39, 47,
    ]  # fmt: skip


def test_majordomo_02() -> None:
    assert fields(b"MDPC02", b"\1", b"echo", b"a", b"b") == {
        "version": "0.2", "role": "client", "command": "REQUEST", "service": "echo", "body": [b"a", b"b"],
    }  # fmt: skip
    assert fields(b"MDPW02", b"\4", b"client", b"", b"a") == {
        "version": "0.2", "role": "worker", "command": "FINAL", "addresses": [b"client"], "body": [b"a"],
    }  # fmt: skip
    assert fields(b"", b"MDPW02", b"\6") == {"version": "0.2", "role": "worker", "command": "DISCONNECT"}
    assert payload(b"MDPW02", b"\7") is None
    assert payload(b"MDPC02", b"\1") is None
    assert payload(b"MDPW02", b"\2", b"no delimiter", b"a") is None


def test_majordomo_replies_are_joined_only_with_the_one_request_that_waits() -> None:
    """Workers answer in any order."""
    asks, answers = [b"", b"MDPC01", b"echo", b"a"], [b"", b"MDPC01", b"echo", b"b"]
    client, broker = PLACE[3:], PLACE[:2:-1]
    sent = [(client, asks), (broker, answers), *2 * [(client, asks)], *2 * [(broker, answers)], (client, asks)]
    sent.append((broker, answers))
    events: list[AnyEvent] = [
        Message(number, number // 2 + 1, 1, *ends, list(frames), part=number % 2 + 1)
        for number, (ends, frames) in enumerate(sent)
    ]
    for event in events:
        if isinstance(event, Message):
            event.socket_type = "DEALER" if (event.src, event.dst) == client else "ROUTER"
    Payloads(built_in()).take(events)
    told = [(event.request, event.request_part) for event in events if isinstance(event, Message) and event.request]
    assert told == [(1, 1), (4, 1)]


def test_majordomo_of_majortomo() -> None:
    """It numbers what clients send and get as the specification does for workers, and names no service in replies."""
    found = [record for record in read(FIXTURES / "app_majordomo_mdp02.pcap") if "payload" in record]
    told = [(record["src"].partition(":")[0][-1:], record["payload"]["summary"]) for record in found]
    client = [("2", "client REQUEST tea"), ("1", "client PARTIAL"), ("1", "client FINAL")]
    assert [each for each in told if each[1].startswith("client")] == 2 * client
    answers = [record["payload"] for record in found if record["payload"]["summary"].startswith("client")]
    packets = [record["packet"] for record in found if record["payload"]["summary"] == "client REQUEST tea"]
    assert [each.get("request") for each in answers] == [None, packets[0], packets[0], None, packets[1], packets[1]]
    assert [octets(frame) for frame in answers[-1]["body"]] == [b"here is your", b"black"]


# ---------------------------------------------------------------------- Jupyter


@needs_captures
def test_jupyter_messages_are_what_was_sent() -> None:
    told = truth("app_jupyter")["jupyter"]
    records = [record for record in read(CAPTURES / "app_jupyter.pcap") if "payload" in record]
    for name, channel in told["channels"].items():
        for direction, end in (("client_to_server", "dst"), ("server_to_client", "src")):
            sent = [r["payload"] for r in records if r[end].endswith(f":{channel['port']}")]
            assert {found["channel"] for found in sent} <= {name}
            kinds = iter([found["msg_type"] for found in sent])
            assert all(any(kind == other for other in kinds) for kind in channel[direction])
    executed = [r for r in records if r["payload"]["msg_type"] == "execute_request"]
    assert [r["payload"]["header"]["msg_id"] for r in executed] == told["execute_msg_ids"]
    assert [r["payload"]["content"]["code"] for r in executed] == told["cells"]
    assert {r["payload"]["header"]["session"] for r in executed} == {told["client_session"]}
    for request in executed:
        answers = [r["payload"] for r in records if r["payload"].get("request") == request["packet"]]
        assert {found["channel"] for found in answers} == {"shell", "iopub"}
        assert [found["msg_type"] for found in answers if found["channel"] == "shell"] == ["execute_reply"]
        assert {found["answers"] for found in answers} == {"execute_request"}
        for found in answers:
            assert found["parent_header"]["msg_id"] == request["payload"]["header"]["msg_id"]


@needs_captures
def test_jupyter_heartbeats_are_known_where_somebody_says_so() -> None:
    found = payloads_of(CAPTURES / "app_jupyter.pcap", "-d", "tcp.port==22105,jupyter")
    assert [octets(each["content"]) for each in found if each["channel"] == "hb"] == [b"ping"] * 10


def test_jupyter_with_identities_and_buffers() -> None:
    header = json.dumps({"msg_id": "1", "msg_type": "comm_msg", "session": "s"}).encode()
    found = fields(b"\0one", b"two", b"<IDS|MSG>", b"ab", header, b"{}", b"{}", b"not JSON", b"\0\1")
    assert found["identities"] == [b"\0one", b"two"]
    assert (found["signature"], found["content"], found["buffers"]) == ("ab", b"not JSON", [b"\0\1"])
    assert payload(b"<IDS|MSG>", b"", b'{"msg_type": 1, "msg_id": "1"}', b"{}", b"{}", b"{}") is None
    assert payload(b"<IDS|MSG>", b"", header, b"{}", b"{}") is None
    assert payload(b"<IDS|MSG>", b"", b'{"\xff": 1}', b"{}", b"{}", b"{}") is None


# ---------------------------------------------------------------------- others, made after their specifications


def test_zre() -> None:
    hello = (
        b"\xaa\xa1\x01\x02\x00\x01\x14tcp://127.0.0.1:5670"
        + b"\0\0\0\1\0\0\0\6CHAT-1"
        + b"\x03\x04node"
        + b"\0\0\0\1\x08X-HEADER\0\0\0\5value"
    )
    assert fields(hello) == {
        "command": "HELLO", "sequence": 1, "endpoint": "tcp://127.0.0.1:5670", "groups": ["CHAT-1"], "status": 3,
        "name": "node", "headers": {"X-HEADER": "value"},
    }  # fmt: skip
    assert fields(b"\xaa\xa1\x03\x02\x00\x07\x04CHAT", b"a", b"b") == {
        "command": "SHOUT", "sequence": 7, "group": "CHAT", "content": [b"a", b"b"],
    }  # fmt: skip
    assert payload(b"\xaa\xa1\x06\x01\x00\x07") is None  # another version
    assert payload(b"\xaa\xa1\x01\x02\x00\x01\x00\xff\xff\xff\xff") is None  # more groups than there are octets


def test_zre_of_pyre() -> None:
    """Both peers greet, and each message is told as it was sent."""
    records = [record for record in read(FIXTURES / "app_zre.pcap") if "payload" in record]
    assert {record["payload"]["protocol"] for record in records} == {"zre"}
    sent: dict[str, list[str]] = {}
    for record in records:
        sent.setdefault(record["src"].rpartition(":")[0], []).append(record["payload"]["summary"].split(" tcp:")[0])
    assert sent == {
        "10.77.1.1": ["HELLO alice", "SHOUT tea", "WHISPER", "JOIN cake", "LEAVE cake", "LEAVE tea"],
        "10.77.1.2": ["HELLO bob", "LEAVE tea"],
    }
    hello = next(r["payload"] for r in records if r["payload"]["summary"].startswith("HELLO alice"))
    assert (hello["groups"], hello["headers"]) == (["tea"], {"X-ROLE": "first"})
    (content,) = next(r["payload"]["content"] for r in records if r["payload"]["command"] == "WHISPER")
    assert octets(content) == b"for you only"


def test_zre_1() -> None:
    hello = b"\xaa\xa1\x01\x00\x01\x0910.77.1.1\xc0\x00\x01\x06CHAT-1\x03\x01\x08X-ROLE=b"
    assert fields(hello) == {
        "command": "HELLO", "sequence": 1, "ipaddress": "10.77.1.1", "mailbox": 0xC000, "groups": ["CHAT-1"],
        "status": 3, "headers": {"X-ROLE": "b"},
    }  # fmt: skip
    assert fields(b"\xaa\xa1\x02\x00\x02", b"hi") == {"command": "WHISPER", "sequence": 2, "content": [b"hi"]}
    assert payload(b"\xaa\xa1\x01\x00\x01\x00\xc0\x00\x00\x03\x01\x08no value") is None
    log = b"\xaa\xa2\x01\x03\x05\x00\x07\x00\x08" + (9).to_bytes(8, "big") + b"\x04text"
    assert fields(log) == {
        "command": "LOG", "level": "INFO", "event": "SEND", "node": 7, "peer": 8, "time_ms": 9, "data": "text",
    }  # fmt: skip
    assert payload(log.replace(b"\x03\x05", b"\x04\x05")) is None


def test_zgossip_of_czmq() -> None:
    """A server that connects says HELLO and publishes what it knows, as the one it connects to does."""
    found = [
        (record["src"].partition(":")[0][-1:], record["payload"]["summary"])
        for record in read(FIXTURES / "app_zgossip.pcap")
        if "payload" in record
    ]
    inventory, orders = "PUBLISH inventory tcp://10.77.1.1:5555", "PUBLISH orders tcp://10.77.1.2:5556"
    assert found == [("2", "HELLO"), ("1", inventory), ("2", inventory), ("2", orders), ("1", orders)]


def test_zgossip() -> None:
    publish = b"\xaa\xa0\x02\x01\x03key\0\0\0\5value\0\0\1\0"
    assert fields(publish) == {"command": "PUBLISH", "key": "key", "value": "value", "ttl": 256}
    assert fields(b"\xaa\xa0\x03\x01") == {"command": "PING"}


def test_filemq() -> None:
    number = (5).to_bytes(8, "big")
    chunk = b"\xaa\xa3\x08" + number + b"\1\5a.txt" + number + b"\1\0\0\0\0\0\0\0\3abc"
    assert fields(chunk) == {
        "command": "CHEEZBURGER", "sequence": 5, "operation": "create", "filename": "a.txt", "offset": 5, "eof": True,
        "headers": {}, "chunk": b"abc",
    }  # fmt: skip
    assert fields(b"\xaa\xa3\x01\x06FILEMQ\0\2") == {"command": "OHAI", "version": 2}
    assert payload(b"\xaa\xa3\x01\x06FILEMR\0\2") is None


def test_filemq_1() -> None:
    number = (5).to_bytes(8, "big")
    assert fields(b"\xaa\xa3\x01\x06FILEMQ\0\1") == {"command": "OHAI", "version": 1}
    assert fields(b"\xaa\xa3\x05\1/\1\x08RESYNC=1\0") == {
        "command": "ICANHAZ", "path": "/", "options": {"RESYNC": "1"}, "cache": {},
    }  # fmt: skip
    assert fields(b"\xaa\xa3\x07" + number) == {"command": "NOM", "credit": 5}
    assert fields(b"\xaa\xa3\x08" + number + b"\2\5a.txt" + number + b"\0", b"abc") == {
        "command": "CHEEZBURGER", "sequence": 5, "operation": "delete", "filename": "a.txt", "offset": 5,
        "headers": {}, "chunk": b"abc",
    }  # fmt: skip
    assert fields(b"\xaa\xa3\x02\1\5PLAIN", b"\0") == {
        "command": "ORLY", "mechanisms": ["PLAIN"], "challenge": b"\0",
    }  # fmt: skip
    answer = payload(b"\xaa\xa3\x03\5PLAIN", b"\0alice\0secret")
    assert answer is not None
    assert (answer.fields["response"], answer.secrets) == (Hidden(13), [1])


def test_xrap_and_dafka() -> None:
    tracker = (7).to_bytes(4, "big")
    get = b"\xaa\xa5\x03" + tracker + b"\4/a/b" + bytes(4 + 8) + b"\0\4text"
    ok = b"\xaa\xa5\x05" + tracker + (304).to_bytes(2, "big")
    dissectors = [dissector for dissector in built_in() if dissector.name == "xrap"]
    asked, answered = Payloads(dissectors).take([Message(*PLACE, [get]), Message(*PLACE, [ok])])
    assert isinstance(asked, Message)
    assert isinstance(answered, Message)
    assert asked.payload is not None
    assert answered.payload is not None
    assert (asked.payload.summary, answered.payload.summary) == ("GET /a/b", "GET_EMPTY 304")
    assert answered.payload.fields["request"] == 17
    record = b"\xaa\xa5M\1\4node\5topic" + bytes(7) + b"\3"
    assert fields(b"Mtopic", record, b"tea") == {
        "command": "RECORD", "address": "node", "subject": "topic", "sequence": 3, "content": [b"tea"],
        "topic": "Mtopic",
    }  # fmt: skip
    assert payload(b"Htopic", record, b"tea") is None


def test_kv_events() -> None:
    number = (7).to_bytes(8, "big")
    stored = ["BlockStored", [b"\1\2", 3], None, [1, 2, 3, 4], 4, None, "GPU", None, [None]]
    batch = msgspec.msgpack.encode([1.5, [stored, ["BlockRemoved", [3]], ["AllBlocksCleared"]], 0])
    found = fields(b"kv-events", number, batch)
    assert (found["topic"], found["sequence"], found["time"], found["rank"]) == ("kv-events", 7, 1.5, 0)
    first, *others = found["events"]
    assert (first["event"], first["block_hashes"], first["token_ids"], first["medium"]) == (
        "BlockStored", [b"\1\2", 3], [1, 2, 3, 4], "GPU",
    )  # fmt: skip
    assert first["more"] == [[None]]
    assert others == [{"event": "BlockRemoved", "block_hashes": [3]}, {"event": "AllBlocksCleared"}]
    for frames in ([b"", b"kv-events", number, batch], [b"", number, batch]):  # what is sent again
        assert fields(*frames)["events"] == found["events"]
    tagged = msgspec.msgpack.encode([1.5, [{"type": "BlockRemoved", "block_hashes": [3], "medium": "CPU"}], None])
    assert fields(b"", number, tagged)["events"] == [{"event": "BlockRemoved", "block_hashes": [3], "medium": "CPU"}]
    known = ["AllBlocksCleared"]
    odd = [[["SomethingElse", [3]]], [], [["BlockStored"]], "AllBlocksCleared", [known, 7], [known, [7]], [[]]]
    for other in ([1, [known]], *([1.5, events] for events in odd), [1.5, [known], "rank"]):
        assert payload(b"kv-events", number, msgspec.msgpack.encode(other)) is None
    assert payload(b"kv-events", number[1:], batch) is None
    assert payload(b"kv-events", number, b"\x92\xcb") is None


def test_kv_events_of_octets_that_nobody_sends() -> None:
    """A field with the name of ours, and extensions of MessagePack, which only their senders know."""
    extension = msgspec.msgpack.Ext(5, b"\0\1")
    batch = msgspec.msgpack.encode([1.5, [{"type": "AllBlocksCleared", "event": [1], "more": extension}]])
    assert fields(b"", bytes(8), batch)["events"] == [
        {"event": "AllBlocksCleared", "more": {"ext": 5, "data": b"\0\1"}},
    ]  # fmt: skip


def test_bitcoin() -> None:
    shown = bytes(range(32))
    number = (7).to_bytes(4, "little")
    assert fields(b"hashblock", shown, number) == {"topic": "hashblock", "sequence": 7, "hash": shown.hex()}
    assert fields(b"sequence", shown + b"A" + (9).to_bytes(8, "little"), number) == {
        "topic": "sequence", "sequence": 7, "hash": shown.hex(), "event": "transaction added", "mempool_sequence": 9,
    }  # fmt: skip
    assert fields(b"rawtx", bytes(60), number)["body"] == bytes(60)
    assert payload(b"hashtx", shown[:31], number) is None
    assert payload(b"hashtx", shown, b"7") is None


def test_salt() -> None:
    load = {"cmd": "_auth", "id": "minion-1", "token": b"\0\1"}
    clear = msgspec.msgpack.encode({"enc": "clear", "load": load, "version": 2})
    assert fields(b"", clear) == {"kind": "envelope", "enc": "clear", "load": load, "version": 2}
    published = msgspec.msgpack.encode({"enc": "aes", "load": bytes(64), "sig": bytes(9)})
    found = payload(b"broadcast", published)
    assert found is not None
    assert found.summary == "aes"
    event = {"id": "minion-1", "_stamp": "2026-11-21T12:00:00.000000"}
    assert fields(b"salt/auth\n\n" + msgspec.msgpack.encode(event)) == {
        "kind": "event", "tag": "salt/auth", "data": event,
    }  # fmt: skip
    assert payload(msgspec.msgpack.encode({"enc": "none", "load": load})) is None
    assert payload(b"GET /\n\n" + msgspec.msgpack.encode({"id": 1})) is None


def test_salt_with_an_extension_of_messagepack() -> None:
    event = {"id": "minion-1", "_stamp": "2026-11-21T12:00:00.000000", "x": msgspec.msgpack.Ext(-7, b"\0\1")}
    shown = io.BytesIO()
    make_renderer("json", shown).write(given(built_in(), [b"salt/job\n\n" + msgspec.msgpack.encode(event)]))
    assert json.loads(shown.getvalue())["payload"]["data"]["x"] == {"ext": -7, "data": {"length": 2, "hex": "0001"}}


def test_salt_of_a_master_and_its_minion() -> None:
    """Octets are strings of MessagePack that are no text, and what answers an encrypted request is sealed whole."""
    records = read(FIXTURES / "app_salt.pcap")
    assert not [record for record in records if record.get("code") == "payload-dissector-failed"]
    sent = [record for record in records if record["type"] == "message"]
    assert {record.get("payload", {}).get("protocol") for record in sent} == {"salt"}
    first, second, *others = [record["payload"] for record in sent]
    assert (first["summary"], first["load"]["cmd"], first["load"]["id"]) == ("clear _auth tea", "_auth", "tea")
    assert (second["load"]["enc"], second["load"]["publish_port"], second["request"]) == (
        "pub",
        4505,
        sent[0]["packet"],
    )
    assert second["load"]["nonce"] == first["load"]["nonce"]
    assert second["load"]["pub_key"].startswith("-----BEGIN PUBLIC KEY-----")
    assert "hex" in second["sig"]
    assert [found["summary"] for found in others] == [*["aes", "reply"] * 4, "aes", "aes", "reply"]
    asked = 0
    for record in sent:
        if record["socket_type"] == "REQ":
            asked = record["packet"]
        elif record["socket_type"] == "ROUTER":
            assert record["payload"]["request"] == record["request"] == asked


def test_zap_of_libzmq_and_pyzmq() -> None:
    """libzmq asks, through a proxy and so with an identity in front, and pyzmq's authenticator answers."""
    first, yes, second, no = payloads_of(FIXTURES / "rec_zap_by_tcp.pcap")
    for request, secret in ((first, "opensesame"), (second, "wrong")):
        assert (request["kind"], request["domain"], request["mechanism"]) == ("request", "global", "PLAIN")
        assert octets(request["username"]) == b"alice"
        assert request["password"] == {"length": len(secret)}
    assert (yes["status"], yes["reason"], yes["user_id"]) == (200, "OK", "alice")
    assert (no["status"], no["user_id"]) == (400, "")
    assert yes["request"] < no["request"]
