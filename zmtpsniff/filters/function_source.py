"""The Python source that a filter becomes.

Nothing that a user wrote gets into the source. Constants are passed beside it, in a namespace, under names that are
made here.
"""

from types import CodeType
from typing import Any


class SourceCode:
    """Functions and the constants that they use."""

    def __init__(self, names: dict[str, Any]) -> None:
        """``names`` is what the source may use beside its constants."""
        self.namespace: dict[str, Any] = {"__builtins__": {"bytes": bytes, "len": len, "type": type}, **names}
        self._lines: list[str] = []
        self._count = 0

    def name(self) -> str:
        """A new name for a variable."""
        self._count += 1
        return f"v{self._count}"

    def constant(self, value: object) -> str:
        """A name that stands for a value."""
        self._count += 1
        name = f"k{self._count}"
        self.namespace[name] = value
        return name

    def function(self, body: list[str]) -> str:
        """A function of the event ``e``; returns the source that calls it."""
        self._count += 1
        name = f"f{self._count}"
        self._lines += [f"def {name}(e):", *(f" {line}" for line in body)]
        return f"{name}(e)"

    def now(self, expression: str) -> object:
        """The value of an expression in which no event occurs."""
        return eval(expression, self.namespace)

    def build(self, name: str, body: list[str]) -> Any:
        """Compile everything; returns the function of the event ``e`` with this body."""
        lines = [*self._lines, f"def {name}(e):", *(f" {line}" for line in body)]
        code: CodeType = compile("\n".join(lines), f"<{name}>", "exec")
        exec(code, self.namespace)
        return self.namespace[name]
