"""The stages of ``read`` behind the dissection of a series. They see the events of all its connections.

A run goes on from the state that the stages had when the run before ended. The state is a pickle that can name nothing
but classes and a few functions of analysis, and methods of its objects: whoever reads it runs no other code.
"""

import io
import pickle
from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any

from dissectors.events import AnyEvent
from zmtpsniff.analysis.patterns import Patterns
from zmtpsniff.analysis.patterns.conversation import NO_RULES
from zmtpsniff.engine.flow_engine import StateError
from zmtpsniff.engine.settings import Settings
from zmtpsniff.net.notices import Notice

_PACKAGES = ("zmtpsniff.analysis.", "dissectors.")
_OTHERS = {
    ("collections", "Counter"), ("collections", "OrderedDict"), ("collections", "defaultdict"),
    ("collections", "deque"), ("functools", "partial"), ("zmtpsniff.net.notices", "Delay"),
    ("zmtpsniff.net.notices", "Doubt"), ("zmtpsniff.net.notices", "Refusal"), ("builtins", "dict"),
    ("builtins", "list"), ("builtins", "set"), ("builtins", "frozenset"), ("builtins", "bytearray"),
    ("copyreg", "_reconstructor"), ("builtins", "object"),
}  # fmt: skip
_FUNCTIONS = ("_all_of_them", "_name_sender")  # that states hold with some of their arguments
_SHARED = {"no rules": NO_RULES}
# Stages know contents by Python's hash(), which is another one in each process unless PYTHONHASHSEED is set, as Spark
# does for its workers.
_SEED = hash("zmtpsniff")


def method(owner: Any, name: str) -> Any:
    """A method of an object of ours."""
    if not type(owner).__module__.startswith(_PACKAGES) or name.startswith("__"):
        raise pickle.UnpicklingError(f"{name} is no method of ours")
    return getattr(owner, name)


class _Pickler(pickle.Pickler):
    def reducer_override(self, value: Any) -> Any:
        if hasattr(value, "__func__") and not isinstance(value, type):
            return method, (value.__self__, value.__name__)
        return NotImplemented

    def persistent_id(self, value: Any) -> str | None:
        return next((name for name, one in _SHARED.items() if one is value), None)


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) == (__name__, "method"):
            return method
        is_ours = module.startswith(_PACKAGES)
        found = super().find_class(module, name) if is_ours or (module, name) in _OTHERS else None
        if not callable(found) or (is_ours and not isinstance(found, type) and name not in _FUNCTIONS):
            raise pickle.UnpicklingError(f"{module}.{name} has no state")
        return found

    def persistent_load(self, name: str) -> Any:
        return _SHARED[name]


class Stages:
    """The stages that follow on the dissection of a series."""

    def __init__(self, settings: Settings, state: bytes = b"") -> None:
        """Go on from a :meth:`state`, or begin; raises StateError."""
        self.patterns = Patterns(settings.reply_seconds, settings.decode_as)
        if not state:
            return
        if sha256(state[32:]).digest() != state[:32]:
            raise StateError("not a state of stages")
        try:
            seed, self.patterns = _Unpickler(io.BytesIO(state[32:])).load()
        except Exception as error:  # whatever objects of another version make of it
            raise StateError(f"not a state of this version: {error}") from error
        if seed != _SEED:
            raise StateError("a state of a process with another PYTHONHASHSEED")

    def take(
        self,
        events: list[AnyEvent],
        notices: Sequence[tuple[int, Notice]],
        horizon_ns: int | None,
        horizons: Mapping[int, int],
    ) -> list[AnyEvent]:
        """The events of a batch with what stages add, as :meth:`Patterns.take` has it."""
        return self.patterns.take(events, horizon_ns, notices, horizons)

    def finish(self, now_ns: int) -> list[AnyEvent]:
        """The last events: it is ``now_ns``, and the files end."""
        self.patterns.settle(now_ns)
        return self.patterns.take([]) + self.patterns.finish()

    def state(self) -> bytes:
        """The state for the next run."""
        out = io.BytesIO()
        _Pickler(out, pickle.HIGHEST_PROTOCOL).dump((_SEED, self.patterns))
        octets = out.getvalue()
        return sha256(octets).digest() + octets
