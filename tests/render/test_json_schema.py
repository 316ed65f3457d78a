import io
import json
from typing import Any

import jsonschema
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dissectors.events import (
    EVENT_TYPES,
    Capture,
    Command,
    Event,
    Message,
    Problem,
)
from dissectors.records import record_fields
from tests.support.made_up_events import made_up
from zmtpsniff.render.json_schema import json_schema
from zmtpsniff.render.jsonl import JsonlRenderer

VALIDATOR = jsonschema.Draft202012Validator(json_schema())
PLACE = (1_700_000_000_123_456_789, 17, 1, "10.0.0.1:43210", "10.0.0.2:5555")


def record(event: Any) -> dict[str, Any]:
    stream = io.BytesIO()
    JsonlRenderer(stream, max_bytes=4).write([event])
    written: dict[str, Any] = json.loads(stream.getvalue())
    return written


def test_schema_is_a_schema() -> None:
    jsonschema.Draft202012Validator.check_schema(json_schema())


@pytest.mark.parametrize("kind", EVENT_TYPES)
@given(data=st.data())
def test_records_fulfil_the_schema(kind: type[Event], data: st.DataObject) -> None:
    event = data.draw(made_up(kind))
    written = record(event)
    VALIDATOR.validate(written)
    assert set(written) <= {"type", *(field.name for field in record_fields(kind))}


@pytest.mark.parametrize("kind", EVENT_TYPES)
def test_schema_names_every_field_and_says_what_the_record_is(kind: type[Event]) -> None:
    definition = json_schema()["$defs"][kind.__name__]
    assert list(definition["properties"]) == ["type", *(field.name for field in record_fields(kind))]
    assert definition["properties"]["type"] == {"const": kind.__struct_config__.tag}
    required = [field.name for field in msgspec.structs.fields(kind) if field.required]
    assert definition["required"] == ["type", *required]
    assert definition["description"]


MESSAGE = record(Message(*PLACE, [b"a", b"\0"], "REQ"))


@pytest.mark.parametrize(
    "wrong",
    [
        {**MESSAGE, "type": "massage"},
        {**MESSAGE, "socket_type": None},
        {**MESSAGE, "frames": [{"text": "a"}]},
        {**MESSAGE, "frames": [{"length": 1, "text": "a", "hex": "61"}]},
        {**MESSAGE, "frames": [{"length": 1, "hex": "6"}]},
        {**MESSAGE, "frames": [{"length": 1, "text": "a", "truncated": False}]},
        {**MESSAGE, "frames": ["a"]},
        {name: value for name, value in MESSAGE.items() if name != "packet"},
        {**record(Problem("note", "a", "b")), "severity": "fatal"},
        {**record(Command(*PLACE, "READY", {"Identity": b""})), "properties": {"Identity": ""}},
        {},
    ],
)
def test_what_breaks_the_contract_breaks_the_schema(wrong: dict[str, Any]) -> None:
    assert not VALIDATOR.is_valid(wrong)


def test_fields_of_later_versions_are_allowed() -> None:
    VALIDATOR.validate({**MESSAGE, "later": 1})
    VALIDATOR.validate({**record(Capture(1, 0, 1, 1, 0, 0, 5)), "later": None})
