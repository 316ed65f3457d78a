"""Lines to type in: the display filter with completion, and questions below the panes."""

import re
from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.message import Message
from textual.suggester import Suggester
from textual.widgets import Input

from zmtpsniff.filters.fields import FieldInfo, list_fields

_WORD = re.compile(r"[A-Za-z_][\w.]*$")
_VALUE = re.compile(r'\b(type)\s*==\s*"(\w*)$')


class FieldCompletion:
    """How a display filter may go on."""

    def __init__(self) -> None:
        """Know all fields."""
        self._fields: tuple[FieldInfo, ...] = ()

    def candidates(self, text: str) -> list[str]:
        """What the last word of a filter may become, the shortest first."""
        if not self._fields:
            self._fields = list_fields()
        if value := _VALUE.search(text):
            kinds = dict.fromkeys(kind for info in self._fields for kind in info.records)
            return [kind for kind in kinds if kind.startswith(value[2])]
        word = _WORD.search(text)
        if word is None:
            return []
        names = [info.name for info in self._fields if info.name.startswith(word[0])]
        return sorted(names, key=lambda name: (name.count("."), len(name), name))

    def complete(self, text: str) -> str | None:
        """The text with its last word completed, None if there is no way, or nothing to complete."""
        found = self.candidates(text)
        if not found:
            return None
        typed = _VALUE.search(text)
        word = typed[2] if typed else _WORD.search(text)[0]  # type: ignore[index]  # there are candidates for it
        whole = found[0] + ('"' if typed else "")
        return None if whole == word else text[: len(text) - len(word)] + whole


class FieldSuggester(Suggester):
    """Shows, behind the cursor, how a filter may go on."""

    def __init__(self, completion: FieldCompletion) -> None:
        """Ask this."""
        super().__init__(use_cache=False, case_sensitive=True)
        self._completion = completion

    async def get_suggestion(self, value: str) -> str | None:
        """The whole text as it may become."""
        return self._completion.complete(value)


class Prompt(Input):
    """A line to type in; Tab completes, the arrows up and down go through what was typed before, Escape leaves."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "leave", show=False),
        Binding("tab", "complete", show=False),
        Binding("up", "earlier(-1)", show=False),
        Binding("down", "earlier(1)", show=False),
    ]

    class Departure(Message):
        """Somebody wants no more of it."""

        def __init__(self, prompt: "Prompt") -> None:
            """Of that line."""
            super().__init__()
            self.prompt = prompt

    def __init__(self, *, id: str, completion: FieldCompletion | None = None) -> None:  # noqa: A002
        """Complete by ``completion``, if there is any."""
        suggester = None if completion is None else FieldSuggester(completion)
        super().__init__(id=id, compact=True, suggester=suggester, select_on_focus=False)
        self._completion = completion
        self._history: list[str] = []
        self._at = 0

    def remember(self, text: str) -> None:
        """Keep what was typed, for later."""
        if text and (not self._history or self._history[-1] != text):
            self._history.append(text)
        self._at = len(self._history)

    def action_leave(self) -> None:
        """Type no more."""
        self.post_message(self.Departure(self))

    def action_complete(self) -> None:
        """Complete the last word."""
        completed = None if self._completion is None else self._completion.complete(self.value)
        if completed is not None:
            self.value = completed
            self.cursor_position = len(completed)

    def action_earlier(self, step: int) -> None:
        """Take what was typed before, or after that."""
        if not self._history:
            return
        self._at = min(max(self._at + step, 0), len(self._history))
        self.value = self._history[self._at] if self._at < len(self._history) else ""
        self.cursor_position = len(self.value)
