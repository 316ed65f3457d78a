"""Makes spark-notebook.ipynb of spark_notebook.py: ``python docs/make_notebook.py``.

Cells of the source begin with ``# %%``, ``# %% [markdown]`` those of text.
"""

import json
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent
SOURCE = FOLDER / "spark_notebook.py"
NOTEBOOK = FOLDER / "spark-notebook.ipynb"


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


def notebook(source: str) -> str:
    """The notebook of a source, as JSON."""
    made: list[dict[str, Any]] = []
    for number, (kind, text) in enumerate(cells(source)):
        cell: dict[str, Any] = {"cell_type": kind, "id": f"cell-{number}", "metadata": {}}
        if kind == "code":
            cell |= {"execution_count": None, "outputs": []}
        made.append({**cell, "source": text.splitlines(keepends=True)})
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    metadata = {"kernelspec": kernel, "language_info": {"name": "python"}}
    return json.dumps({"cells": made, "metadata": metadata, "nbformat": 4, "nbformat_minor": 5}, indent=1) + "\n"


if __name__ == "__main__":
    NOTEBOOK.write_text(notebook(SOURCE.read_text()))
