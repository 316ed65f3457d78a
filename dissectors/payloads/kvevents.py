"""Events of the key-value caches of vLLM and SGLang (vllm/distributed/kv_events.py, ZmqEventPublisher)."""

from typing import Any, ClassVar

from dissectors.payloads import Message, Payload, PayloadConnection, PayloadKind, messagepack, text

_SEQUENCE = 8
_BATCHES = frozenset({0x92, 0x93})  # of MessagePack: an array of 2 or 3
_TIME = 0xCB  # a float of 64 bits
_FIELDS: dict[str, tuple[str, ...]] = {
    "BlockStored": ("block_hashes", "parent_block_hash", "token_ids", "block_size", "lora_id", "medium", "lora_name"),
    "BlockRemoved": ("block_hashes", "medium"),
    "AllBlocksCleared": (),
}
_LISTS = {"BlockStored": ("block_hashes", "token_ids"), "BlockRemoved": ("block_hashes",), "AllBlocksCleared": ()}


class KvEvents:
    """Batches of events as a publisher sends them, and as it sends them again to a peer that missed some."""

    name = "kvevents"
    least_frames = 2
    fields: ClassVar[dict[str, PayloadKind]] = {
        "sequence": "number", "time": "number", "events": "list of objects", "events.event": "text",
        "events.block_hashes": "list of values", "events.parent_block_hash": "value",
        "events.token_ids": "list of numbers", "events.block_size": "number", "events.medium": "text",
        "topic": "text", "rank": "number",
    }  # fmt: skip

    def match(self, message: Message, connection: PayloadConnection) -> bool:
        """Whether topic, sequence number and batch are there: an array of a time, a list of known events, a rank."""
        return _read(message) is not None

    def dissect(self, message: Message, connection: PayloadConnection) -> Payload | None:
        """The batch. Events are lists in most versions, and dicts in SGLang's later ones."""
        found = _read(message)
        if found is None:
            return None
        topic, sequence, batch, events = found
        fields: dict[str, Any] = {"sequence": sequence, "time": batch[0], "events": events}
        if topic is not None:
            fields["topic"] = topic
        if len(batch) == 3:
            fields["rank"] = batch[2]
        counts: dict[str, int] = {}
        for event in events:
            counts[event["event"]] = counts.get(event["event"], 0) + 1
        told = [name if count == 1 else f"{count} {name}" for name, count in counts.items()]
        return Payload("kvevents", f"{sequence} {', '.join(told)}", fields)


def _read(message: Message) -> tuple[str | None, int, list[Any], list[dict[str, Any]]] | None:
    """Topic, sequence number, batch, and its events.

    A batch that is sent again has a delimiter in front, and no topic in SGLang.
    """
    frames = message.frames
    if not 2 <= len(frames) <= 4:
        return None
    number, body = frames[-2], frames[-1]
    if (
        not isinstance(number, bytes)
        or len(number) != _SEQUENCE
        or not isinstance(body, bytes)
        or len(body) < 2
        or body[0] not in _BATCHES
        or body[1] != _TIME
    ):
        return None
    before = frames[:-2]
    if len(before) == 2 and before[0] == b"":
        del before[0]
    if len(before) > 1:
        return None
    topic = text(before[0]) if before and before[0] else None
    try:
        batch = messagepack.value(body)
    except ValueError:
        return None
    if not isinstance(batch[1], list):
        return None
    events = [named for event in batch[1] if (named := _named(event)) is not None]
    if not events or len(events) < len(batch[1]):
        return None
    if len(batch) == 3 and not (batch[2] is None or isinstance(batch[2], int)):
        return None
    return topic, int.from_bytes(number, "big"), batch, events


def _named(event: Any) -> dict[str, Any] | None:
    """An event as a dict; None if it is none that is known.

    ``more`` has the values that newer versions add after the known fields.
    """
    fields: dict[str, Any] = {}
    name = None
    if isinstance(event, dict):
        name = event.get("type")
        # A field named "event" would hide the name of the event. No version has one.
        fields = {field: event[field] for field in event if field not in ("type", "event")}
    elif isinstance(event, list) and event:
        name, *values = event
        names = _FIELDS.get(name, ()) if isinstance(name, str) else ()
        fields = dict(zip(names, values, strict=False))
        if more := values[len(names) :]:
            fields["more"] = more
    if not isinstance(name, str) or name not in _FIELDS:
        return None
    return {"event": name, **fields} if all(isinstance(fields.get(one), list) for one in _LISTS[name]) else None
