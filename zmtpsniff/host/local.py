"""The machine of a live capture: adds what it knows of connections to what the network shows."""

import threading
from collections.abc import Callable, Iterable, Sequence

from dissectors.events import AnyEvent, Command, Connection
from zmtpsniff.host.client import HelperClient
from zmtpsniff.host.kernel_sockets import KernelQueues
from zmtpsniff.host.keys import ConnectionKeys
from zmtpsniff.host.owners import ConnectionOwners


class LocalHost:
    """Adds to connections the processes at their ends, and finds keys, by a helper."""

    def __init__(
        self,
        helper: HelperClient,
        tell: Callable[[str], None],
        *,
        with_processes: bool = True,
        with_keys: bool = False,
    ) -> None:
        """``tell`` is called with lines for people; ``with_keys``, the helper watches for keys."""
        self.watches = False  # the helper has probes
        self.seen_ns = 0  # up to when the keys that programs made are known, since the Unix epoch
        self._helper = helper
        self._tell = tell
        self._with_processes = with_processes
        self._has_seen = threading.Event()
        self._is_closed = False
        self.owners = ConnectionOwners(helper)
        self.queues = KernelQueues()
        self.keys = ConnectionKeys(helper, self.owners) if with_keys else None

    def start(self) -> None:
        """Listen to the helper from now on."""
        threading.Thread(target=self._listen, name="host", daemon=True).start()

    def take(self, events: Sequence[AnyEvent], sealed: Iterable[Command] = ()) -> None:
        """Look at events in their order, all but messages, and add to them what this machine knows.

        Every connection has another event before its first message. ``sealed`` are commands that wait for a key.
        """
        for event in events:
            if isinstance(event, Connection):
                if self.keys is not None:
                    self.keys.end(event.flow)
                if self._with_processes:
                    self.owners.add_to(event)
            else:
                flow, src, dst = getattr(event, "flow", None), getattr(event, "src", None), getattr(event, "dst", None)
                if self._with_processes and flow is not None and src is not None and dst is not None:
                    self.owners.ask(flow, src, dst)
        if self.keys is not None:
            self.keys.take(events, sealed)

    def see(self, seconds: float) -> None:
        """Ask what keys programs have made by now, and wait for the answer, but for so long at most."""
        self._has_seen.clear()
        self._helper.see()
        self._has_seen.wait(seconds)

    def close(self) -> None:
        """End the helper."""
        self._is_closed = True
        self._helper.close()

    def _listen(self) -> None:
        while (reply := self._helper.replies.get()) is not None:
            match reply["is"]:
                case "owner" | "looked":
                    self.owners.see(reply)
                case "key" if self.keys is not None:
                    self.keys.see(reply["line"])
                case "seen":
                    self.seen_ns = reply["time_ns"]
                    self._has_seen.set()
                case "told":
                    self._tell(reply["text"])
        if not self._is_closed:
            self._tell("the helper ended: processes and keys are not known any more")
            self.watches = False
            self._has_seen.set()
