"""Messages in columns are shown as they are one by one."""

import io
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dissectors.batches import BatchSide, MessageBatch
from tests.support.both_cores import built_core
from tests.world.columns import NS, batch_of
from zmtpsniff.render import Format, batch_text, make_renderer
from zmtpsniff.render.summary import SummaryRenderer

SENDERS = [
    BatchSide(flow, src, dst, socket_type, True, True, True)
    for flow, src, dst, socket_type in (
        (1, "10.0.0.1:43210", "10.0.0.2:5555", "REQ"),
        (1, "10.0.0.2:5555", "10.0.0.1:43210", "REP"),
        (123, "10.0.0.2:5555", "10.0.0.1:43210", None),
        (7, "10.0.0.2:1", "10.0.0.1:2", "RADIO"),
        (7, "\x1b[31m\ud800é", "10.0.0.1:2", "\u202e"),
    )
]
WIDE = BatchSide(8, "[2001:db8::1234:5678]:43210", "10.0.0.1:2", "PUSH", True, True, True)

bodies = st.one_of(
    st.text(alphabet=st.characters(min_codepoint=0x20, max_codepoint=0x7E), max_size=12).map(str.encode),
    st.sampled_from([b"", b"x" * 31, b"x" * 32, b"x" * 65, b"x" * 1400, b"x" * 70_000]),
    st.sampled_from([b'{"a":1}', b" [1]", b'"', b"\\", b"a\nb", b"\0k\x8bEg", bytes(70), "é".encode(), b"\xff" * 40]),
)
latencies = st.sampled_from(
    [0, 499, 999, 1500, 999_499, 999_500, 999_499_999, 999_500_000, 999_999_999, NS, 59_999_500_000, 60 * NS, -1]
)
messages = st.tuples(
    st.integers(0, len(SENDERS) - 1),
    st.lists(bodies, max_size=9),
    st.integers(0, 3),  # envelope
    st.tuples(st.sampled_from([0, 1, 99_999]), st.integers(1, 2), st.integers(0, 2)),  # its request
    latencies | st.integers(0, 70 * NS),
    st.tuples(st.sampled_from([0, 5]), st.integers(1, 2), st.just(4)),  # what it forwards
    st.sampled_from([0, 1, 499, 1000, 999_999_999, NS, 86_400 * NS, -NS]),  # how much later it comes
)


def shown(output: Format, events: list[Any], encoding: str = "utf-8", **options: Any) -> str:
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding, newline="")
    renderer = make_renderer(output, stream, utc=True, **options)
    renderer.write(events)
    stream.flush()
    return raw.getvalue().decode(encoding)


def assert_the_same(batches: list[MessageBatch], output: Format, **options: Any) -> None:
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(batch_text, "core", None)
        one_by_one = shown(output, [message for batch in batches for message in batch.messages()], **options)
        assert shown(output, list(batches), **options) == one_by_one
        monkeypatch.setattr(batch_text, "core", built_core())
        monkeypatch.setattr(batch_text, "SHORTEST", 0)
        assert shown(output, list(batches), **options) == one_by_one


@given(
    st.lists(messages, max_size=8),
    st.sampled_from(["summary", "tree"]),
    st.sampled_from([None, 0, 8]),
    st.sampled_from(["always", "never"]),
    st.sampled_from(["utf-8", "ascii"]),
)
@example([(0, [b"a"], 0, (0, 1, 0), 0, (0, 1, 4), 0)] * 900, "tree", None, "never", "utf-8")
def test_any_messages(made: list[Any], output: Any, max_bytes: int | None, color: Any, encoding: str) -> None:
    batch = batch_of(made, SENDERS)
    assert_the_same([batch, batch], output, max_bytes=max_bytes, color=color, encoding=encoding)


@pytest.mark.parametrize("output", ["summary", "tree"])
@pytest.mark.parametrize("options", [{"verbosity": 1}, {"times": "relative"}, {"times": "delta"}])
def test_other_lines(output: Any, options: dict[str, Any]) -> None:
    made = [(sender, [b"a", b"b"], 0, (0, 1, 0), 0, (0, 1, 4), later) for sender in (0, 1) for later in (0, 10)]
    batch = batch_of(made, SENDERS)
    events = [batch] if options.get("times") != "delta" else batch.messages()
    one_by_one = shown(output, list(batch.messages()), **options)
    assert shown(output, list(events), **options) == one_by_one


def test_addresses_make_columns_wider_from_their_first_message_on() -> None:
    made = [(sender, [b"a"], 0, (0, 1, 0), 0, (0, 1, 4), 1) for sender in (0, 1, 5, 0, 1)]
    batch = batch_of(made, [*SENDERS, WIDE])
    assert_the_same([batch, batch], "summary")


def test_hardly_a_message_becomes_an_object(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first of a second does; so do none whose bodies are cut or binary. Widths of columns are known before."""
    made = [
        (0, [b"", b"body" * 99, bytes(9)], 1, (7, 1, 2), 500_000, (5, 2, 4), 1),
        (2, ["é".encode()], 0, (0, 1, 0), 0, (0, 1, 0), 1),
    ]
    asked: list[tuple[int, int]] = []
    of_batch = MessageBatch.part

    def part(batch: MessageBatch, begin: int, end: int) -> MessageBatch:
        asked.append((begin, end))
        return of_batch(batch, begin, end)

    monkeypatch.setattr(batch_text, "core", built_core())
    monkeypatch.setattr(MessageBatch, "part", part)
    for output in ("summary", "tree"):
        asked.clear()
        batch = batch_of(made * 20, SENDERS[:3])
        assert shown(output, [batch.messages()[0], batch]).count("\n") > 40
        assert [span for span in asked if span[1] == span[0] + 1] == [(0, 1)]


def test_columns_without_alignment() -> None:
    """So check shows messages that break a rule."""
    texts = []
    for core in (None, built_core()):
        with pytest.MonkeyPatch.context() as monkeypatch:
            monkeypatch.setattr(batch_text, "core", core)
            stream = io.StringIO()
            batches: list[Any] = [batch_of([(0, [b"a"], 0, (0, 1, 0), 0, (0, 1, 4), 1)] * 9, SENDERS)]
            SummaryRenderer(stream, utc=True, color="never", aligned=False).write(batches)
            texts.append(stream.getvalue())
    assert texts[0] == texts[1]
