"""Which values an attribute has one after the other."""

from contextlib import suppress
from typing import Any


class SlotWatch:
    """Stands for a slot of a class; ``steps`` are the values that followed on each other, in any object."""

    def __init__(self, owner: type, name: str) -> None:
        self._slot = vars(owner)[name]
        self.steps: set[tuple[Any, Any]] = set()

    def __get__(self, one: object, owner: type) -> Any:
        return self._slot.__get__(one)

    def __set__(self, one: object, after: Any) -> None:
        with suppress(AttributeError):  # it has none yet while it is being made
            self.steps.add((self._slot.__get__(one), after))
        self._slot.__set__(one, after)
