"""The small process that keeps root's rights while another, which has none, reads what came from the network.

    python -m zmtpsniff.host.helper

It takes requests from its standard input and writes replies to its standard output, a JSON object a line. Its end is
the end of its input, so that it goes when who started it is gone, however that happened.

    {"do": "watch", "long_term": false}                     place probes; wants long-term keys, too, or not
        {"is": "ready"} or {"is": "refused", "why": line}
        {"is": "key", "line": line of a key file}           as they are made
    {"do": "see"}
        {"is": "seen", "time_ns": N}                        all keys that were made before have been told
    {"do": "search", "id": N, "pids": [N], "seconds": N, "targets": [SearchTarget, octets as base64]}
        {"is": "key", "line": …}, {"is": "told", "text": line}, {"is": "searched", "id": N, "octets": N, "whole": true}
    {"do": "owners", "id": N, "ends": [[local, remote]]}
        {"is": "owner", "id": N, "local": text, "pid": N, "name": text, "container": text or null,
         "pod": text or null, "time_ns": N}
        {"is": "looked", "id": N}                           there was a first look, and what it found has been told

Nothing of the network is parsed here: what a capture held comes as keys and boxes of octets, which are compared with
memory and given to libsodium as they are.
"""

import contextlib
import os
import queue
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from dissectors.zmtp.curve_keys import Key, NoSodiumError, format_key
from zmtpsniff.host.kernel_sockets import SocketEnds, SocketTable
from zmtpsniff.host.memory_keys import MemorySearch, SearchError, SearchTarget
from zmtpsniff.host.processes import look_up
from zmtpsniff.host.uprobes import NoUprobesError
from zmtpsniff.host.watch import KeyWatch

LONGEST_REQUEST = 16 << 20
_MOST_TARGETS = 1024
_MOST_PIDS = 256
# A program may make its first key a millisecond after it has loaded the library.
_NICE = -10
_SWITCH_SECONDS = 0.0005
_OWNER_SECONDS = (0.0, 0.02, 0.1, 0.5)  # after the request: a server's end belongs to nobody until it is accepted


class Helper:
    """Does what it is asked until nobody can ask any more."""

    def __init__(self, requests: Any, replies: Any) -> None:
        """Read lines from ``requests``, write lines to ``replies``; both binary files."""
        self._requests = requests
        self._replies = replies
        self._lock = threading.Lock()  # of the replies
        self._over = threading.Event()
        self._queues: dict[str, queue.SimpleQueue[Any]] = {
            do: queue.SimpleQueue() for do in ("watch", "search", "owners")
        }
        self._watch: KeyWatch | None = None

    def run(self) -> None:
        """Serve until the requests end."""
        for work in (self._read, self._search, self._find_owners):
            threading.Thread(target=self._until_over, args=(work,), daemon=True).start()
        # The probes belong to this thread, since it outlives the others.
        while not self._over.is_set() and (request := self._queues["watch"].get()):
            self._watch_keys(bool(request["long_term"]))

    def stop(self) -> None:
        """End soon."""
        self._over.set()
        self._queues["watch"].put(None)
        if self._watch is not None:
            self._watch.wake()

    def _until_over(self, work: Callable[[], None]) -> None:
        try:
            with contextlib.suppress(OSError, ValueError, msgspec.MsgspecError):  # nobody reads, or writes sense
                work()
        finally:
            self.stop()

    def _read(self) -> None:
        while line := self._requests.readline(LONGEST_REQUEST):
            request = msgspec.json.decode(line)
            if request["do"] != "see":
                self._queues[request["do"]].put(request)
            elif self._watch is not None:
                self._watch.wake()

    def _say(self, kind: str, **fields: Any) -> None:
        line = msgspec.json.encode({"is": kind, **fields}) + b"\n"
        with self._lock:
            self._replies.write(line)
            self._replies.flush()

    def _tell(self, text: str) -> None:
        self._say("told", text=text)

    def _watch_keys(self, long_term: bool) -> None:
        try:
            watch = self._watch = KeyWatch(long_term=long_term)
        except (NoUprobesError, NoSodiumError) as error:
            self._say("refused", why=str(error))
            return
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICE)
        sys.setswitchinterval(_SWITCH_SECONDS)
        try:
            self._say("ready")
            while not self._over.is_set():
                while watch.faults:
                    self._tell(watch.faults.pop(0))
                self._say_keys(watch.read())
                while watch.late:
                    threading.Thread(target=self._search_late, args=(watch, watch.late.pop()), daemon=True).start()
                if watch.is_woken:
                    self._say("seen", time_ns=watch.seen_ns)
        except OSError:  # nobody reads
            self._over.set()
        finally:
            watch.close()

    def _search_late(self, watch: KeyWatch, pid: int) -> None:
        """Search a process that may have been quicker than its probes, while its connections are open."""
        try:
            self._say_keys(watch.search(pid))
        except SearchError:
            self._tell(f"process {pid} ended before its memory could be searched: its keys may be missing")

    def _say_keys(self, keys: Iterable[Key]) -> None:
        for key in keys:
            self._say("key", line=format_key(key))

    def _search(self) -> None:
        while True:
            request = self._queues["search"].get()
            targets = msgspec.convert(request["targets"][:_MOST_TARGETS], list[SearchTarget])
            search = MemorySearch(targets, float(request["seconds"]), self._tell)
            for pid in request["pids"][:_MOST_PIDS]:
                try:
                    self._say_keys(search.process(int(pid)))
                except SearchError as error:
                    self._tell(str(error))
            self._say("searched", id=request["id"], octets=search.octets, whole=not search.is_cut_short)

    def _find_owners(self) -> None:
        table = SocketTable()
        waiting: list[tuple[float, int, int, SocketEnds]] = []  # when, which try, request, what
        while True:
            try:
                timeout = max(0.0, waiting[0][0] - time.monotonic()) if waiting else None
                while True:  # all that wait are looked up together
                    request = self._queues["owners"].get(timeout=timeout)
                    for local, remote in request["ends"][:2]:
                        waiting.append((time.monotonic(), 0, int(request["id"]), SocketEnds(local, remote)))
                    timeout = 0
            except queue.Empty:
                pass
            now = time.monotonic()
            due = [each for each in waiting if each[0] <= now]
            waiting = [each for each in waiting if each[0] > now]
            found = table.owners(each[3] for each in due)
            time_ns = time.time_ns()
            for _, tries, request_id, ends in due:
                process = look_up(found[ends]) if ends in found else None
                if process is not None:
                    named = msgspec.structs.asdict(process)
                    self._say("owner", id=request_id, local=ends.local, time_ns=time_ns, **named)
                elif tries + 1 < len(_OWNER_SECONDS):
                    waiting.append((now + _OWNER_SECONDS[tries + 1], tries + 1, request_id, ends))
            for request_id in {request_id for _, tries, request_id, _ in due if tries == 0}:
                self._say("looked", id=request_id)
            waiting.sort()


def main() -> None:
    """Serve the standard input."""
    helper = Helper(sys.stdin.buffer, sys.stdout.buffer)
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, lambda *_: helper.stop())
    helper.run()
    # Python's own end would wait for the thread that reads requests, and complain about replies that nobody reads.
    os._exit(0)


if __name__ == "__main__":
    main()
