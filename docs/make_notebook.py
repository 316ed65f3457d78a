"""Makes the notebooks of their sources: ``python docs/make_notebook.py``.

Cells of a source begin with ``# %%``, ``# %% [markdown]`` those of text. The cells of notebook.py are run, and what
they print stands below them; those of spark_notebook.py need tables, and are not.
"""

import contextlib
import io
import json
from pathlib import Path
from typing import Any, NamedTuple

FOLDER = Path(__file__).parent


class Notebook(NamedTuple):
    """A notebook and what it is made of."""

    source: Path
    target: Path
    is_run: bool


NOTEBOOK = Notebook(FOLDER / "notebook.py", FOLDER / "notebook.ipynb", is_run=True)
SPARK_NOTEBOOK = Notebook(FOLDER / "spark_notebook.py", FOLDER / "spark-notebook.ipynb", is_run=False)


def cells(source: str) -> list[tuple[str, str]]:
    """The cells of the notebook's source: ``markdown`` or ``code``, and their text."""
    found = []
    for part in source.split("# %%")[1:]:
        head, _, body = part.partition("\n")
        if head.strip() == "[markdown]":
            text = "\n".join(line.removeprefix("#").removeprefix(" ") for line in body.strip().splitlines())
            found.append(("markdown", text))
        else:
            found.append(("code", body.strip()))
    return found


def notebook(which: Notebook) -> str:
    """The notebook of a source, as JSON; its cells are run if they are to be."""
    made: list[dict[str, Any]] = []
    names: dict[str, Any] = {}
    for number, (kind, text) in enumerate(cells(which.source.read_text())):
        cell: dict[str, Any] = {"cell_type": kind, "id": f"cell-{number}", "metadata": {}}
        if kind == "code":
            cell |= {"execution_count": None, "outputs": []}
            if which.is_run and (printed := _run(text, names)):
                lines = printed.splitlines(keepends=True)
                cell["outputs"] = [{"name": "stdout", "output_type": "stream", "text": lines}]
        made.append({**cell, "source": text.splitlines(keepends=True)})
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    metadata = {"kernelspec": kernel, "language_info": {"name": "python"}}
    made_of = {"cells": made, "metadata": metadata, "nbformat": 4, "nbformat_minor": 5}
    return json.dumps(made_of, indent=1) + "\n"


def _run(text: str, names: dict[str, Any]) -> str:
    """Run a cell after those that left ``names``; returns what it prints."""
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        exec(compile(text, "cell", "exec"), names)
    return printed.getvalue()


if __name__ == "__main__":
    for each in (NOTEBOOK, SPARK_NOTEBOOK):
        each.target.write_text(notebook(each))
