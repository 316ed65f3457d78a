"""How much memory a capture may have is what its control groups say."""

from pathlib import Path

import pytest

from tests.capture.test_live_queue import Burst
from zmtpsniff.capture import live
from zmtpsniff.capture.memory_limit import memory_limit

OLD = "9:name=systemd:/\n4:memory:/pods/one\n2:cpuacct:/pods/one\n0::/\n"
NEW = "0::/system.slice/zmtpsniff.service\n"


@pytest.mark.parametrize(
    ("groups", "files", "limit"),
    [
        (NEW, {}, None),
        (NEW, {"system.slice/memory.max": "max", "system.slice/zmtpsniff.service/memory.max": "max"}, None),
        (NEW, {"system.slice/memory.max": "700", "system.slice/zmtpsniff.service/memory.max": "max"}, 700),
        (NEW, {"system.slice/zmtpsniff.service/memory.max": "700", "system.slice/memory.max": "800"}, 700),
        (NEW, {f"system.slice/zmtpsniff.service/memory.{name}": str(len(name)) for name in ("max", "high")}, 3),
        ("0::/\n", {"memory.max": "900"}, 900),  # a container sees its own group only
        (OLD, {"memory/pods/memory.limit_in_bytes": "600"}, 600),
        (OLD, {"memory/memory.limit_in_bytes": "500", "memory.max": "900"}, 500),
        (OLD.replace("memory", "cpu"), {"memory/pods/one/memory.limit_in_bytes": "600"}, None),
    ],
)
def test_the_lowest_of_all_groups_counts(groups: str, files: dict[str, str], limit: int | None, tmp_path: Path) -> None:
    own = tmp_path / "own"
    own.write_text(groups)
    for name, text in files.items():
        file = tmp_path / "root" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{text}\n")
    assert memory_limit(own, tmp_path / "root") == limit


def test_no_groups(tmp_path: Path) -> None:
    assert memory_limit(tmp_path / "own", tmp_path) is None


@pytest.mark.parametrize(("limit", "octets"), [(100_000, 25_000), (None, 256 << 20)])
def test_the_queue_takes_a_part_of_it(limit: int | None, octets: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "memory_limit", lambda: limit)
    engine = Burst(200)
    source = live.LiveSource(engine)
    batches = source.batches()
    seen = len(next(batches))
    assert engine.all_out.wait(60)
    source.stop()
    seen += sum(map(len, batches))
    assert seen + source.overrun == 2000
    assert seen <= octets // 800 + 10
    assert (source.overrun == 0) == (limit is None)
