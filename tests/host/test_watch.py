"""Keys of programs that were quicker than their probes: they are in memory as long as the connection is open."""

from pathlib import Path

from tests.support.curve_program import compiled, connect, copied, needs_wheel, started
from tests.support.live_program import wait_for
from tests.support.uprobes import need_uprobes
from zmtpsniff.host.memory_keys import MemorySearch
from zmtpsniff.host.watch import KeyWatch


@needs_wheel
def test_connections_that_a_program_has_already(tmp_path: Path) -> None:
    need_uprobes()
    with started(compiled(tmp_path), copied(tmp_path / "copy")) as process:
        watch = KeyWatch()
        try:
            (before,) = watch.search(process.pid)
            assert watch.search(process.pid) == []  # each once
            connect(process)
            (later,) = set(MemorySearch([], 60).connections(process.pid)) - {before}
            seen = []

            def sees() -> bool:
                watch.wake()
                seen.extend(watch.read())
                return later in seen

            wait_for(sees)
            assert watch.search(process.pid) == []
        finally:
            watch.close()
