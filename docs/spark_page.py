"""Makes what is made of spark.md and of the notebook: ``python docs/spark_page.py`` writes both anew.

The page's part between the two marks tells the tables as :mod:`zmtpsniff.spark.tables` has them. The notebook is
spark_notebook.py with its cells, which begin with ``# %%``, ``# %% [markdown]`` for text.
"""

import json
from pathlib import Path
from typing import Any

from zmtpsniff.spark.tables import TABLES

FOLDER = Path(__file__).parent
PAGE = FOLDER / "spark.md"
SOURCE = FOLDER / "spark_notebook.py"
NOTEBOOK = FOLDER / "spark-notebook.ipynb"
BEGIN, END = "<!-- tables: made by docs/spark_page.py -->\n", "<!-- end of tables -->\n"


def page(text: str) -> str:
    """The page with its tables made anew."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{_tables()}\n{END}{after}"


def _tables() -> str:
    lines = []
    for table, columns in TABLES.items():
        lines += [f"### {table}", "", "| column | type | null | what |", "| :-- | :-- | :-- | :-- |"]
        for name, sql, nullable, meaning in columns:
            lines.append(f"| `{name}` | {sql} | {'yes' if nullable else ''} | {meaning} |")
        lines.append("")
    return "\n".join(lines)


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
    PAGE.write_text(page(PAGE.read_text()))
    NOTEBOOK.write_text(notebook(SOURCE.read_text()))
