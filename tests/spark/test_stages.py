"""Stages go on from a state, and a state can name nothing but parts of stages."""

import os
import pickle
from hashlib import sha256
from pathlib import Path

import pytest

from dissectors.events import AnyEvent
from tests.support.paths import FIXTURES
from tests.support.settings import RELATIONS
from zmtpsniff.decode_as import parse
from zmtpsniff.dissection import open_files
from zmtpsniff.engine.flow_engine import StateError
from zmtpsniff.engine.settings import Settings
from zmtpsniff.spark.stages import Stages


def told(path: Path, settings: Settings, goes_on: bool) -> list[AnyEvent]:
    """The events of a capture after stages that go on from a state behind each of its events, or do not."""
    stages = Stages(settings)
    found: list[AnyEvent] = []
    for events in open_files([path], settings._replace(patterns=False)).batches():
        for event in events:
            found += stages.take([event], [], None, {})
            if goes_on:
                stages = Stages(settings, stages.state())
    return found + stages.finish(1 << 62)


@pytest.mark.parametrize("path", sorted(FIXTURES.glob("*.pcap*")), ids=lambda path: path.name)
def test_they_go_on_behind_any_event(path: Path) -> None:
    settings = RELATIONS._replace(decode_as=(parse("tcp.port==20201,PULL"),))
    assert told(path, settings, goes_on=True) == told(path, settings, goes_on=False)


class _Foreign:
    def __reduce__(self) -> tuple[object, tuple[object, ...]]:
        return os.system, ("true",)


@pytest.mark.parametrize("value", [_Foreign(), open_files, StateError, Stages.state])
def test_a_state_names_nothing_else(value: object) -> None:
    octets = pickle.dumps((hash("zmtpsniff"), value))
    with pytest.raises(StateError, match="not a state of this version"):
        Stages(RELATIONS, sha256(octets).digest() + octets)


def test_a_damaged_state_is_refused() -> None:
    state = bytearray(Stages(RELATIONS).state())
    state[40] ^= 1
    with pytest.raises(StateError, match="not a state of stages"):
        Stages(RELATIONS, bytes(state))


def test_a_state_of_other_hashes_is_refused() -> None:
    octets = pickle.dumps((hash("zmtpsniff") + 1, None))
    with pytest.raises(StateError, match="PYTHONHASHSEED"):
        Stages(RELATIONS, sha256(octets).digest() + octets)
