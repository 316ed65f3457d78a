"""Lines for people of messages in columns, by the native core."""

from collections.abc import Callable, Iterable
from typing import NamedTuple

from dissectors.batches import MessageBatch
from dissectors.events import Message
from zmtpsniff.native import core

SHORTEST = 4  # messages of a batch that are worth it: the first one is always shown in the general way
_PART = 400  # messages put together at a time: larger strings leave the cache of the processor
_NO_LIMIT = 1 << 62


class CommonTexts(NamedTuple):
    """The texts that all messages have in common, with their colours."""

    after_time: str  # and in front of the packet number
    after_frames: str  # the number of frames
    after_octets: str
    relations: str
    after_relations: str
    body: str
    after_body: str
    cut: str  # behind a body of which not all octets are shown
    after_cut: str
    label: str = ""  # of a frame in a tree, up to its number
    after_label: str = ""
    delimiter: str = ""


class BatchWidths(NamedTuple):
    """The widths of columns, the most octets of a body (0: no limit), and whether a frame has a line of its own."""

    packet: int
    frames: int
    octets: int
    noun: int
    max_bytes: int
    is_tree: bool


class BatchText:
    """Makes the lines of batches of messages.

    A renderer shows all that is unusual: it is the specification. ``add`` adds the lines of a message, and ``begin``
    says how a line of the same second begins. ``body`` makes the lines of a body that is no plain text.
    """

    def __init__(
        self,
        texts: CommonTexts,
        widths: BatchWidths,
        add: Callable[[Message, list[str]], None],
        begin: Callable[[], str],
        body: Callable[[bytes, bool], list[str]],
    ) -> None:
        """Make them with these texts and widths."""
        self._texts = tuple(text.encode() for text in texts)
        self._widths = widths._replace(max_bytes=widths.max_bytes or _NO_LIMIT)
        self._add = add
        self._begin = begin
        self._body = body

    def takes(self, batch: MessageBatch) -> bool:
        """Whether it is worth it, and the core is there."""
        return core is not None and len(batch) >= SHORTEST

    def lines(self, batch: MessageBatch, sides: Iterable[str | None]) -> list[str]:
        """The lines of the messages of a batch, some together, without the last line end.

        ``sides`` are the texts of its senders, between the packet number and the number of frames; None if the
        renderer shows their messages.
        """
        given = tuple([None if side is None else side.encode() for side in sides])
        return [self._some(batch.part(begin, begin + _PART), given) for begin in range(0, len(batch), _PART)]

    def _some(self, batch: MessageBatch, sides: tuple[bytes | None, ...]) -> str:
        def message(place: int) -> tuple[bytes, bytes]:
            lines: list[str] = []
            self._add(batch.part(place, place + 1).messages()[0], lines)
            lines.append("")
            return "\n".join(lines).encode(), self._begin().encode()

        shown: bytes = core.told(  # type: ignore[union-attr]
            batch.octets, batch.carried, batch.rows, batch.first_packet, batch.columns, batch.frames,
            sides, self._texts, self._widths, self._shown_body, message,
        )  # fmt: skip
        return str(memoryview(shown)[:-1], "utf-8")

    def _shown_body(self, octets: bytes, columns: int, is_identity: bool) -> bytes:
        """The lines of a body, all but the first behind so many columns."""
        return f"\n{' ' * columns}".join(self._body(octets, is_identity)).encode()
