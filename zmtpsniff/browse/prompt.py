"""Lines to type in: the display filter with completion, and questions below the panes."""

from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.events import Key
from textual.message import Message
from textual.suggester import Suggester
from textual.widgets import Input

from zmtpsniff.filters.completion import FieldCompletion


class FieldSuggester(Suggester):
    """Suggests, behind the cursor, the rest of a filter."""

    def __init__(self, completion: FieldCompletion) -> None:
        """Ask this."""
        super().__init__(use_cache=False, case_sensitive=True)
        self._completion = completion

    async def get_suggestion(self, value: str) -> str | None:
        """The whole text as it may become."""
        return self._completion.complete(value)


class Prompt(Input):
    """A line to type in. Tab completes, the arrows up and down go through earlier lines, Escape leaves."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "leave", show=False),
        Binding("tab", "complete", show=False),
        Binding("up", "earlier(-1)", show=False),
        Binding("down", "earlier(1)", show=False),
    ]

    class Departure(Message):
        """Posted when the user leaves the prompt."""

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
        self.last_key: Key | None = None  # that came here

    def on_key(self, event: Key) -> None:
        """Remember a key, before it does anything."""
        self.last_key = event

    def propose(self, text: str) -> None:
        """Propose an answer as file dialogs do: typing replaces it, and the arrows left and right edit it."""
        self.value = text
        self.select_all()

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
