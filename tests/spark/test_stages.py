"""Stages resume from a state, and a state can name nothing but parts of stages."""

import os
import pickle
from hashlib import sha256
from pathlib import Path

import msgspec
import pytest

from dissectors.events import AnyEvent, Capture
from tests.support.examples import sampled
from tests.support.paths import FIXTURES
from zmtpsniff.decode_as import DecodeAs
from zmtpsniff.dissection import open_files
from zmtpsniff.engine.flow_engine import StateError
from zmtpsniff.engine.settings import Settings
from zmtpsniff.spark.stages import Stages


def told(path: Path, settings: Settings, goes_on: bool) -> list[AnyEvent]:
    """The events of a capture after stages that resume from a state behind each of its events, or do not."""
    stages = Stages(settings)
    flows: set[int] = set()
    found: list[AnyEvent] = []
    for events in open_files([path], settings._replace(patterns=False, payload=False)).batches():
        for event in events:
            found += stages.take([event], [], None, {})
            if goes_on:
                flows.add(getattr(event, "flow", None) or 0)
                facts = stages.put_aside(flows)
                stages = Stages(settings, stages.state())  # each in a process of its own
                stages.take_up(facts)
    found += stages.finish(1 << 62)
    return found + stages.findings(Capture(0, 0, 0, 0, 0, 0, 0, 1 << 62))  # type: ignore[operator]


@pytest.mark.parametrize("path", sampled(sorted(FIXTURES.glob("*.pcap*")), 8), ids=lambda path: path.name)
def test_they_go_on_behind_any_event(path: Path) -> None:
    """From a state without the facts of flows, which are put aside."""
    settings = Settings(decode_as=(DecodeAs("tcp", 20201, 20201, 0, "", "PULL"),))
    assert told(path, settings, goes_on=True) == told(path, settings, goes_on=False)


class _Foreign:
    def __reduce__(self) -> tuple[object, tuple[object, ...]]:
        return os.system, ("true",)


def state_of(content: object, seed: int = hash("zmtpsniff")) -> bytes:
    octets = msgspec.msgpack.encode((seed, pickle.dumps(content), b"", b""))
    return sha256(octets).digest() + octets


@pytest.mark.parametrize(
    ("state", "said"),
    [
        # A state names nothing but stages.
        *((state_of(one), "not a state of this version") for one in (_Foreign(), open_files, StateError, Stages.state)),
        (state_of(None)[:-1] + b"x", "not a state of stages"),  # damaged
        (state_of(None, seed=1), "PYTHONHASHSEED"),
    ],
    ids=["foreign", "function", "error", "method", "damaged", "other hashes"],
)
def test_another_state_is_refused(state: bytes, said: str) -> None:
    with pytest.raises(StateError, match=said):
        Stages(Settings(), state)
