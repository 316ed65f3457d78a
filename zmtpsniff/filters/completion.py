"""Completions of display filters, for shells and for browse."""

import re

from dissectors.payloads.registry import built_in
from zmtpsniff.filters.filter_fields import FieldInfo, list_fields, payload_fields

_WORD = re.compile(r"(?<![\w.-])[A-Za-z_][\w.-]*$")  # not the unit of a number
_VALUE = re.compile(r'\b(type)\s*==\s*"(\w*)$')


class FieldCompletion:
    """Completes the last word of a filter."""

    def __init__(self) -> None:
        """Know all fields."""
        self._fields: tuple[FieldInfo, ...] = ()

    def candidates(self, text: str) -> list[str]:
        """Completions of the last word of a filter, the shortest first."""
        if not self._fields:
            self._fields = (*list_fields(), *payload_fields(built_in()))
        if value := _VALUE.search(text):
            kinds = dict.fromkeys(kind for info in self._fields for kind in info.records)
            return [kind for kind in kinds if kind.startswith(value[2])]
        word = _WORD.search(text)
        if word is None:
            return []
        names = {info.name for info in self._fields if info.name.startswith(word[0])}
        return sorted(names, key=lambda name: (name.count("."), len(name), name))

    def completions(self, text: str) -> list[str]:
        """The whole texts that a filter may become, the shortest first."""
        value = _VALUE.search(text)
        word = None if value else _WORD.search(text)
        typed = value[2] if value else word[0] if word else ""
        end = '"' if value else ""
        return [f"{text[: len(text) - len(typed)]}{found}{end}" for found in self.candidates(text)]

    def complete(self, text: str) -> str | None:
        """The text with its last word completed, None if there is no way, or nothing to complete."""
        completed = next(iter(self.completions(text)), None)
        return None if completed == text else completed
