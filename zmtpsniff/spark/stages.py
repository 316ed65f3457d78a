"""The stages of ``read`` behind the dissection of a series. They see the events of all its connections.

A run goes on from the state that the stages had when the run before ended. The state is a pickle that can name nothing
but classes and a few functions of analysis, and methods of its objects: whoever reads it runs no other code.
"""

import io
import pickle
from collections import ChainMap
from collections.abc import Callable, Iterable, Mapping, Sequence
from hashlib import sha256
from types import FunctionType, MethodType, NoneType
from typing import Any

import msgspec

from dissectors.events import AnyEvent, Capture, Problem
from dissectors.payloads.dafka import DAFKA
from dissectors.payloads.registry import built_in
from dissectors.payloads.zgossip import ZGOSSIP
from zmtpsniff.analysis.findings import Diagnosis
from zmtpsniff.analysis.findings.finding import Finding
from zmtpsniff.analysis.patterns import Patterns
from zmtpsniff.analysis.patterns.conversation import NO_RULES
from zmtpsniff.analysis.payloads import Payloads
from zmtpsniff.analysis.ways.hops import Hop, OpenWay
from zmtpsniff.analysis.ways.way_records import Way
from zmtpsniff.analysis.ways.ways import Ways
from zmtpsniff.engine.flow_engine import StateError
from zmtpsniff.engine.settings import Settings
from zmtpsniff.net.notices import Notice
from zmtpsniff.net.witness import Acknowledge, Witness, Witnesses

_PACKAGES = (
    "zmtpsniff.analysis.patterns.", "zmtpsniff.analysis.findings.", "zmtpsniff.analysis.ways.",
    "zmtpsniff.analysis.statistics.", "zmtpsniff.analysis.payloads", "zmtpsniff.analysis.dossier",
    "zmtpsniff.analysis.insertions", "zmtpsniff.analysis.interruptions", "zmtpsniff.analysis.ledger",
    "zmtpsniff.check.numbers", "zmtpsniff.decode_as",
    "zmtpsniff.net.notices", "zmtpsniff.net.witness", "zmtpsniff.words.set_clocks", "dissectors.",
)  # fmt: skip
_OTHERS = {
    "builtins": {
        "bool", "bytearray", "bytes", "dict", "float", "frozenset", "int", "list", "object", "set", "str", "tuple",
    },
    "collections": {"Counter", "OrderedDict", "defaultdict", "deque"},
    "copyreg": {"_reconstructor"},
    "functools": {"partial"},
    "re": {"_compile"},
}  # fmt: skip
_SHARED: dict[str, Any] = {
    "no rules": NO_RULES,
    "nothing": NoneType,
    "zgossip": ZGOSSIP,
    "dafka": DAFKA,
}
_LINKED = (Hop, OpenWay)  # that refer to each other in chains, which would be as many calls in each other
# Stages know contents by Python's hash(), which is another one in each process unless PYTHONHASHSEED is set, as Spark
# does for its workers.
_SEED = hash("zmtpsniff")


def method(owner: Any, name: str) -> Any:
    """A method of an object of ours."""
    if not type(owner).__module__.startswith(_PACKAGES) or name.startswith("__"):
        raise pickle.UnpicklingError(f"{name} is no method of ours")
    return getattr(owner, name)


def blank(kind: int) -> Any:
    """A linked object whose fields are still to come."""
    made: Any = _LINKED[kind]
    return made(*[None] * len(made.__struct_fields__))


def shared(name: str) -> Any:
    """An object that the reader has, by its name; :class:`_Unpickler` has the function."""
    raise pickle.UnpicklingError(name)


_OURS = {function.__name__: function for function in (method, blank)}


class _Pickler(pickle.Pickler):
    def __init__(self, file: io.BytesIO, names: Mapping[int, str]) -> None:
        """``names`` are those of objects that the reader has, by their identities."""
        super().__init__(file, pickle.HIGHEST_PROTOCOL)
        self._names = names
        self._waiting: list[Any] = []  # linked objects whose fields are not saved yet

    def reducer_override(self, value: Any) -> Any:
        """How an object is saved that is no plain data. A persistent_id() would be asked about each number, too."""
        if isinstance(value, _LINKED):
            self._waiting.append(value)
            return blank, (_LINKED.index(type(value)),)
        name = self._names.get(id(value))
        if name is not None:
            return shared, (name,)
        if isinstance(value, MethodType):
            return method, (value.__self__, value.__name__)
        return NotImplemented

    def dump_all(self, value: Any) -> None:
        """Save an object, and behind it the fields of linked ones."""
        self.dump(value)
        while self._waiting:
            some, self._waiting = self._waiting, []
            self.dump([(one, msgspec.structs.astuple(one)) for one in some])
        self.dump([])


class _Unpickler(pickle.Unpickler):
    def __init__(self, octets: bytes, objects: Mapping[str, Any]) -> None:
        """``objects`` are those that the writer named."""
        super().__init__(io.BytesIO(octets))
        self._objects = objects

    def find_class(self, module: str, name: str) -> Any:
        if module == __name__ and name == shared.__name__:
            return self._objects.__getitem__
        if module == __name__ and name in _OURS:
            return _OURS[name]
        is_ours = module.startswith(_PACKAGES)
        found = super().find_class(module, name) if is_ours or name in _OTHERS.get(module, ()) else None
        if not callable(found) or (is_ours and not isinstance(found, type | FunctionType)):
            raise pickle.UnpicklingError(f"{module}.{name} has no state")
        return found

    def load_all(self) -> Any:
        """Load an object that dump_all() saved."""
        value = self.load()
        while some := self.load():
            for one, fields in some:
                for field, content in zip(one.__struct_fields__, fields, strict=True):
                    setattr(one, field, content)
        return value


class Stages:
    """The stages that follow on the dissection of a series."""

    def __init__(self, settings: Settings, state: bytes = b"", diagnoses: bool = True, follows: bool = False) -> None:
        """Go on from a :meth:`state`, or begin; raises StateError.

        There are findings only if it ``diagnoses``, and ways if it ``follows`` messages.
        """
        self.diagnosis = Diagnosis(settings.decode_as, settings.reply_seconds) if diagnoses else None
        self.ways = Ways() if follows else None
        if state:
            others, diagnosis, ways = _opened(state)
            self.patterns, self.payloads = _loaded(others)
            if diagnoses:
                self.diagnosis = _loaded(diagnosis)
            if follows:
                self.ways = _loaded(ways) or Ways()
        else:
            self.patterns = Patterns(settings.reply_seconds, settings.decode_as)
            self.payloads = Payloads(built_in(), settings.decode_as, settings.limits.show_secrets)

    @property
    def witness(self) -> Witness | None:
        """Hears what connections show below their octets, for those stages that there are; None for none."""
        stages = [stage for stage in (self.diagnosis, self.ways) if stage is not None]
        return Witnesses(*stages) if stages else None

    @property
    def acknowledge(self) -> Acknowledge | None:
        """Hears what receivers acknowledge, before the events of the same packets come; None if nothing needs it."""
        return None if self.ways is None else self.ways.acknowledge

    def take(
        self,
        events: list[AnyEvent],
        notices: Sequence[tuple[int, Notice]],
        horizon_ns: int | None,
        horizons: Mapping[int, int],
    ) -> list[AnyEvent]:
        """The events of a batch with what stages add, as :meth:`Patterns.take` has it."""
        return self._diagnosed(self.patterns.take(events, horizon_ns, notices, horizons))

    def _diagnosed(self, events: list[AnyEvent]) -> list[AnyEvent]:
        events = self.payloads.take(events)  # also where nobody is told: they say which messages ask
        if self.diagnosis is not None:
            self.diagnosis.take(events)
        return events if self.ways is None else [*events, *self._way_records(self.ways.take(events))]

    def _way_records(self, finished: Sequence[OpenWay]) -> list[Any]:
        """The records of finished ways. No other stage takes them."""
        assert self.ways is not None
        return [record for way in finished if (record := self.ways.record(way)) is not None]

    def finish(self, now_ns: int) -> list[AnyEvent]:
        """The last events: it is ``now_ns``, and the files end."""
        self.patterns.settle(now_ns)
        return self._diagnosed(self.patterns.take([]) + self.patterns.finish())

    def learn(self, faults: Sequence[Problem]) -> None:
        """Learn of faults of the files."""
        if self.diagnosis is not None:
            self.diagnosis.take(faults)
        if self.ways is not None:
            for fault in faults:
                self.ways.see_problem(fault)

    def findings(self, totals: Capture) -> list[Finding]:
        """The findings so far, with these totals. It is the last call to the stages."""
        if self.diagnosis is None:
            return []
        self.diagnosis.take([totals])
        return self.diagnosis.findings()

    def last_ways(self, now_ns: int) -> list[Way]:
        """The ways that are not over, as they are at ``now_ns``. No events can be taken after that."""
        return [] if self.ways is None else self._way_records(self.ways.finish(now_ns))

    def put_aside(self, flows: Iterable[int]) -> dict[int, bytes]:
        """Give away what only these flows need, to :meth:`take_up` before their next events.

        Events that are told once time has passed stay here.
        """
        names = _names(self._common())
        found: dict[int, bytes] = {}
        for flow in flows:
            pattern = self.patterns.conversations.put_aside(flow)
            found[flow] = _saved(
                (
                    pattern,
                    self.payloads.put_aside(flow),
                    None if self.diagnosis is None else self.diagnosis.put_aside(flow),
                ),
                names,
            )
            if pattern is not None:
                pattern.conversation.part()
        return found

    def take_up(self, facts: Mapping[int, bytes]) -> None:
        """Take back what was put aside of flows; raises StateError."""
        objects = self._common() if facts else {}
        for flow, octets in facts.items():
            pattern, payload, diagnosis = _loaded(octets, objects)
            if pattern is not None:
                self.patterns.conversations.take_up(flow, pattern)
            if payload is not None:
                self.payloads.take_up(payload)
            if diagnosis is not None and self.diagnosis is not None:
                self.diagnosis.take_up(flow, diagnosis)

    def _common(self) -> Mapping[str, Any]:
        """The objects that facts of flows refer to and that stay here, by name."""
        return ChainMap(_SHARED, self.patterns.common)

    def state(self) -> bytes:
        """The state for the next run."""
        stages = (self.patterns, self.payloads), self.diagnosis, self.ways
        octets = msgspec.msgpack.encode((_SEED, *map(_saved, stages)))
        return sha256(octets).digest() + octets


def saved_events(events: Sequence[AnyEvent | Notice]) -> bytes:
    """Events and notices as octets; none for none."""
    return pickle.dumps(events, pickle.HIGHEST_PROTOCOL) if events else b""


def loaded_events(octets: bytes) -> list[AnyEvent | Notice]:
    """The events of :func:`saved_events`; raises StateError."""
    return _loaded(octets, load=_Unpickler.load) if octets else []


def _names(objects: Mapping[str, Any]) -> dict[int, str]:
    return {id(one): name for name, one in objects.items()}


def _saved(stage: Any, names: Mapping[int, str] = _names(_SHARED)) -> bytes:
    out = io.BytesIO()
    _Pickler(out, names).dump_all(stage)
    return out.getvalue()


def _loaded(
    octets: bytes, objects: Mapping[str, Any] = _SHARED, load: Callable[["_Unpickler"], Any] = _Unpickler.load_all
) -> Any:
    try:
        return load(_Unpickler(octets, objects))
    except Exception as error:  # whatever objects of another version make of it
        raise StateError(f"not a state of this version: {error}") from error


def _opened(state: bytes) -> tuple[bytes, bytes, bytes]:
    """The states of what is before the diagnosis, of that, and of ways."""
    if sha256(state[32:]).digest() != state[:32]:
        raise StateError("not a state of stages")
    seed, *stages = msgspec.msgpack.decode(state[32:], type=tuple[int, bytes, bytes, bytes])
    if seed != _SEED:
        raise StateError("a state of a process with another PYTHONHASHSEED")
    return stages[0], stages[1], stages[2]
