"""The interface for programs: it gives what the commands show, in any thread, and says in a line what is wrong."""

import asyncio
import io
import json
import re
import subprocess
import sys
import threading
import time
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
import zmq

import zmtpsniff
from dissectors.events import AnyEvent, Capture, Connection, Cut, Event, Hidden, Message, Octets
from dissectors.records import record_fields
from tests.support.examples import sampled
from tests.support.namespaces import needs_namespaces
from tests.support.paths import FIXTURES
from tests.support.runner import read_json, run
from tests.support.saved_files import save
from tests.support.shown_commands import PAGES, blocks
from tests.world.tap import load
from zmtpsniff.analysis.ways.way_records import Way
from zmtpsniff.browse.packet_store import TappedSource
from zmtpsniff.capture.block import Packet
from zmtpsniff.dissection import open_files
from zmtpsniff.engine.settings import Settings

CAPTURE = FIXTURES / "m31_req_rep.pcap"
LOSSY = FIXTURES / "net_zmtp1_gap.pcap"


def kinds(events: Any) -> list[str]:
    return [event.__struct_config__.tag for event in events]


@pytest.mark.parametrize("path", sampled(sorted(FIXTURES.glob("*_*.pcap*"))), ids=lambda path: path.name)
def test_it_gives_what_the_command_shows(path: Path) -> None:
    records = read_json(str(path))
    with zmtpsniff.open(path) as capture:
        events = list(capture)
        assert kinds(events) == [record["type"] for record in records]
        assert capture.totals == events[-1]
    numbers = [(getattr(event, "packet", None), getattr(event, "time_ns", None)) for event in events]
    assert numbers == [(record.get("packet"), record.get("time_ns")) for record in records]


def test_each_iteration_reads_from_the_beginning() -> None:
    with zmtpsniff.open(str(CAPTURE)) as capture:
        everything = list(capture)
        assert list(capture.messages()) == [event for event in everything if isinstance(event, Message)]
        assert len(list(capture.connections())) == 1
        assert sum(map(len, capture.batches())) == len(everything)


def test_kinds_of_events() -> None:
    with zmtpsniff.open(LOSSY) as capture:
        assert {problem.code for problem in capture.problems()} >= {"capture-gap"}
        assert all(isinstance(octets, bytes) for message in capture.messages() for octets in message.frames)


def test_where() -> None:
    with zmtpsniff.open(CAPTURE, where='type == "message" and socket_type == "REQ"') as capture:
        events = list(capture)
        assert {type(event) for event in events} == {Message}
        assert capture.totals.messages > len(events)


def test_findings() -> None:
    with zmtpsniff.open(FIXTURES / "rec_reconnect_storm.pcap", where='type == "nothing"') as capture:
        assert [(each.code, each.severity) for each in capture.findings()][:1] == [("reconnect-storm", "warning")]
        assert list(capture) == []
    assert zmtpsniff.open(FIXTURES / "m31_req_rep.pcap").findings() == []


def test_several_files() -> None:
    other = FIXTURES / "m31_pub_sub.pcap"
    expected = Counter(record["type"] for record in read_json(str(CAPTURE), str(other)))
    assert Counter(kinds(zmtpsniff.open(CAPTURE, other))) == expected
    assert Counter(kinds(zmtpsniff.open([CAPTURE, str(other)]))) == expected


def test_file_objects() -> None:
    expected = list(zmtpsniff.open(CAPTURE))
    octets = CAPTURE.read_bytes()
    seekable = io.BytesIO(b"before" + octets)
    seekable.seek(6)
    capture = zmtpsniff.open(seekable)
    assert list(capture) == expected
    assert list(capture) == expected
    with CAPTURE.open("rb") as file:
        assert list(zmtpsniff.open(file)) == expected
        assert not file.closed  # it is its opener's


def test_what_cannot_be_read_again() -> None:
    with subprocess.Popen(["cat", CAPTURE], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        capture = zmtpsniff.open(process.stdout)
        assert len(list(capture)) == len(list(zmtpsniff.open(CAPTURE)))
    with pytest.raises(zmtpsniff.Error, match="cannot be read twice"):
        list(capture)


def test_threads() -> None:
    """Iterations of one capture do not know of each other."""
    expected = list(zmtpsniff.open(CAPTURE))
    capture = zmtpsniff.open(CAPTURE)
    found: list[Any] = []
    threads = [threading.Thread(target=lambda: found.append(list(capture))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [expected] * 4


def test_asyncio() -> None:
    async def read() -> list[Any]:
        return [event async for event in zmtpsniff.open(CAPTURE)]

    assert asyncio.run(read()) == list(zmtpsniff.open(CAPTURE))


@pytest.mark.parametrize(
    ("arguments", "options", "words"),
    [
        (["no-such.pcap"], {}, "no-such.pcap: No such file or directory"),
        ([__file__], {}, "not a capture file"),
        ([CAPTURE], {"where": "type =="}, "where: column 8"),
        ([CAPTURE], {"decode_as": "5555"}, "decode_as: '5555' is no rule like"),
        ([CAPTURE], {"decode_as": ["tcp.port==5555,nonsense"]}, "decode_as: protocol 'nonsense' is none of"),
        ([CAPTURE], {"plugins": ["no-such.py"]}, "plug-in no-such.py: no such file"),
        ([CAPTURE], {"interface": "lo"}, "either capture files or interface="),
        ([], {}, "either capture files or interface="),
        ([CAPTURE], {"count": 0}, "count: must be 1 or more, not 0"),
        ([CAPTURE], {"max_bytes": -1}, "max_bytes: must be 0 for all, or more, not -1"),
        ([], {"interface": "lo", "seconds": 0.0}, "seconds: must be over 0, not 0.0"),
        (
            [],
            {"interface": "lo", "engine": "best"},
            "engine: must be one of auto, dumpcap, ",
        ),
        ([CAPTURE], {"seconds": 3.0}, "seconds: only with interface=, not with capture files"),
        ([CAPTURE], {"engine": "scapy"}, "engine: only with interface="),
        ([CAPTURE], {"capture_filter": "tcp"}, "capture_filter: only with interface="),
        ([CAPTURE], {"plugins": "nowhere.py"}, "nowhere.py: no such file"),
        ([None], {}, "must be a name or an open file, not None"),
        ([io.StringIO("text")], {}, "must be opened with mode 'rb', not as text"),
    ],
)
def test_errors(arguments: list[Any], options: dict[str, Any], words: str) -> None:
    with pytest.raises(zmtpsniff.Error) as raised:
        list(zmtpsniff.open(*arguments, **options))
    assert words in str(raised.value)
    assert "\n" not in str(raised.value)


def test_keys_of_curve(tmp_path: Path) -> None:
    pytest.importorskip("nacl", reason="PyNaCl is not installed: pip install 'zmtpsniff[curve]'")
    path = FIXTURES / "sec_curve_keys.pcapng"
    with zmtpsniff.open(path) as capture:  # which has its keys
        expected = [message.frames for message in capture.messages()]
    assert expected
    keys, bare = tmp_path / "keys", tmp_path / "bare.pcapng"
    keys.write_bytes(b"\n".join(re.findall(rb"CURVE_[A-Z_]+ [-0-9a-f ]+", path.read_bytes())))
    save(bare, [load(path)])
    assert list(zmtpsniff.open(bare).messages()) == []
    with zmtpsniff.open(bare, curve_keys=keys) as capture:
        assert [message.frames for message in capture.messages()] == expected
    keys.write_text("no key\n")
    with pytest.raises(zmtpsniff.Error, match=r"curve_keys: .*line 1"):
        zmtpsniff.open(bare, curve_keys=[str(keys)])


def test_its_names_are_listed() -> None:
    assert {"Dissection", "Error", "open", "__version__"} <= set(dir(zmtpsniff))


def test_importing_it_takes_no_time() -> None:
    code = (
        "import sys, zmtpsniff; print([name for name in ('msgspec', 'scapy', 'click', 'rich') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_nothing_is_printed_and_signals_stay(capfd: pytest.CaptureFixture[str]) -> None:
    import signal

    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)]
    list(zmtpsniff.open(LOSSY))
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)] == before
    assert capfd.readouterr() == ("", "")


def test_the_examples_are_typed(tmp_path: Path) -> None:
    (page,) = (page for page in PAGES if page.name == "python.md")
    for number, block in enumerate(block for block in blocks(page) if block.kind == "python"):
        if block.mark("run by") is None:
            (tmp_path / f"example_{number}.py").write_text(block.text)
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file=", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_arrow() -> None:
    pytest.importorskip("pyarrow", reason="pyarrow is not installed: pip install 'zmtpsniff[spark]'")
    for path in (CAPTURE, FIXTURES / "app_jupyter.pcap", FIXTURES / "zap_over_tcp.pcap"):
        with zmtpsniff.open(path) as capture:
            messages = list(capture.messages())
            rows = capture.to_arrow().to_pylist()
            connections = capture.to_arrow(Connection).to_pylist()
        assert [row["packet"] for row in rows] == [message.packet for message in messages]
        assert [row["latency_ns"] for row in rows] == [message.latency_ns for message in messages]
        for row, message in zip(rows, messages, strict=True):
            shown = [frame for frame, own in zip(row["frames"], message.frames, strict=True) if frame == own]
            assert len(shown) == len(row["frames"]) or "zap" in path.name
            payload = None if row["payload"] is None else json.loads(row["payload"])
            assert (payload and payload["protocol"]) == (message.payload and message.payload.protocol)
        assert all(row["client"]["address"] and row["messages"]["client"] >= 0 for row in connections)


def test_arrow_has_times_topics_and_texts() -> None:
    polars = pytest.importorskip("polars")
    with zmtpsniff.open(FIXTURES / "m31_pub_sub.pcap") as capture:
        first = next(capture.messages())
        row = polars.from_arrow(capture.to_arrow()).row(0, named=True)
    assert row["time_ns"] == first.time
    assert (row["topic"], row["text"]) == ("weather.0", [first.octets(0).decode(), first.octets(1).decode()])


def test_what_programs_import_is_there_and_says_what_its_fields_mean() -> None:
    for name in zmtpsniff.__all__:
        assert getattr(zmtpsniff, name)
    code = "import zmtpsniff; help(zmtpsniff.Message)"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    for field in record_fields(Message):
        assert f"{field.name}: " in shown
        assert field.text.split(".")[0] in " ".join(shown.split())
    assert "Message(time_ns:int,packet:int,flow:int,src:str" in "".join(shown.replace("|", "").split())
    assert "Meta(" not in shown


def test_what_programs_import_keeps_its_meanings_for_the_schema() -> None:
    code = """if True:
        import sys, zmtpsniff
        if sys.argv[1:]:
            zmtpsniff.Message, zmtpsniff.Connection
        from zmtpsniff.render.json_schema import json_schema
        print(json_schema())
    """
    before, after = (
        subprocess.run([sys.executable, "-c", code, *argument], capture_output=True, text=True, check=True).stdout
        for argument in ([], ["imported"])
    )
    assert before == after


def test_what_is_printed_is_short() -> None:
    with zmtpsniff.open(CAPTURE) as capture:
        message = next(capture.messages())
        assert "offset" not in repr(message)
        assert "None" not in repr(message)
        assert f"packet={message.packet}, flow=1" in repr(message)
        assert repr(capture) == f"<zmtpsniff.Dissection of {CAPTURE}, {capture.packets} packets so far>"


def test_octets_of_a_frame_that_is_cut() -> None:
    frames: list[Octets] = [b"EUR", Cut(b"1.0", 4)]
    message = Message(0, 1, 1, "a:1", "b:2", frames, "PUB")
    assert (message.topic, message.octets(0), message.octets(-1)) == (b"EUR", b"EUR", b"1.0")
    assert list(map(len, message.frames)) == [3, 4]
    assert Hidden(0)
    assert len(Hidden(0)) == 0


def test_ways() -> None:
    path = FIXTURES / "shop" / "none.pcap.gz"
    with zmtpsniff.open(path) as capture:
        ways = capture.ways()
    done = run("trace", "-T", "json", str(path))
    assert msgspec.json.decode(b"[" + b",".join(done.stdout.encode().splitlines()) + b"]", type=list[Way]) == ways


@pytest.mark.parametrize("kind", AnyEvent.__args__)
def test_every_kind_of_event_has_a_table(kind: type[Event]) -> None:
    pytest.importorskip("pyarrow", reason="pyarrow is not installed: pip install 'zmtpsniff[spark]'")
    for path in (CAPTURE, FIXTURES / "m31_pub_sub.pcap", FIXTURES / "app_zbeacon.pcap", LOSSY):
        with zmtpsniff.open(path) as capture:
            count = sum(isinstance(event, kind) for event in capture)
            table = capture.to_arrow(kind)
        assert table.num_rows == count
        more = ["topic", "text"] if kind is Message else []
        assert table.column_names == [field.name for field in record_fields(kind)] + more


def test_pandas() -> None:
    pytest.importorskip("pandas", reason="pandas is not installed: pip install 'zmtpsniff[spark]'")
    with zmtpsniff.open(CAPTURE) as capture:
        frame = capture.to_pandas()
        assert list(frame.packet) == [message.packet for message in capture.messages()]


# ---------------------------------------------------------------------- live


def talk(requests: int = 3) -> int:
    """A few requests and their replies on the loopback; returns the server's port."""
    context = zmq.Context()
    server, client = context.socket(zmq.REP), context.socket(zmq.REQ)
    port = server.bind_to_random_port("tcp://127.0.0.1")
    client.connect(f"tcp://127.0.0.1:{port}")
    for number in range(requests):
        client.send(b"%d" % number)
        server.send(server.recv())
        client.recv()
    context.destroy(linger=0)
    return port


@needs_namespaces
def test_live_capture_begins_with_open() -> None:
    with zmtpsniff.open(interface="lo", seconds=60) as capture:
        port = talk()
        capture.stop()
        messages = [message.frames for message in capture.messages() if str(port) in message.src + message.dst]
        assert messages == [[b"", b"%d" % number] for number in (0, 0, 1, 1, 2, 2)]
        assert isinstance(capture.totals, Capture)
        with pytest.raises(zmtpsniff.Error, match="cannot be read twice"):
            list(capture)


@needs_namespaces
def test_live_in_asyncio() -> None:
    async def watch() -> int:
        seen = 0
        async for event in zmtpsniff.open(interface="lo", where='type == "message"', seconds=60):
            seen += isinstance(event, Message)
            if seen == 6:
                break
        return seen

    async def both() -> int:
        watching = asyncio.create_task(watch())
        await asyncio.sleep(0.1)
        await asyncio.to_thread(talk)
        return await watching

    assert asyncio.run(both()) == 6


@needs_namespaces
def test_a_task_that_is_cancelled_ends_its_capture() -> None:
    async def watch() -> None:
        async for _ in zmtpsniff.open(interface="lo"):
            pass

    async def cancel() -> None:
        watching = asyncio.create_task(watch())
        await asyncio.sleep(0.3)
        watching.cancel()
        with pytest.raises(asyncio.CancelledError):
            await watching

    asyncio.run(cancel())
    assert "capture" not in {thread.name for thread in threading.enumerate()}


@needs_namespaces
def test_another_thread_ends_it() -> None:
    capture = zmtpsniff.open(interface="lo")
    timer = threading.Timer(0.3, capture.close)
    began = time.monotonic()
    timer.start()
    assert isinstance(list(capture)[-1], Capture)
    assert time.monotonic() - began >= 0.2
    timer.join()
    assert "capture" not in {thread.name for thread in threading.enumerate()}


@needs_namespaces
def test_an_interface_that_is_not_there() -> None:
    with pytest.raises(zmtpsniff.Error, match="no interface with this name"):
        zmtpsniff.open(interface="nosuch0")


def test_it_says_how_far_it_is_and_shows_packets_on_their_way() -> None:
    packets: list[Packet] = []
    capture = open_files([CAPTURE], Settings(), through=partial(TappedSource, tap=packets.extend))
    assert capture.position is None  # nothing has begun
    batches = capture.batches()
    next(batches)
    size = CAPTURE.stat().st_size
    assert capture.position == (size, size)
    for _ in batches:
        pass
    assert capture.position is None
    assert capture.dropped == 0
    assert packets == load(CAPTURE)
