"""The notebook of the Python interface: its cells run, and print what stands in it."""

import json
from pathlib import Path

import pytest

from docs.make_notebook import NOTEBOOK, cells, notebook


def test_its_cells_print_what_stands_in_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(NOTEBOOK.target.parent)
    assert NOTEBOOK.target.read_text() == notebook(NOTEBOOK), "python docs/make_notebook.py makes it"
    outputs = [cell["outputs"] for cell in json.loads(NOTEBOOK.target.read_text())["cells"] if "outputs" in cell]
    assert len(outputs) > 5
    assert all(outputs)


def test_a_cell_that_fails_is_seen(tmp_path: Path) -> None:
    source = tmp_path / "source.py"
    source.write_text("# %%\nimport zmtpsniff\n\n# %%\nzmtpsniff.nothing\n")
    assert [kind for kind, _ in cells(source.read_text())] == ["code", "code"]
    with pytest.raises(AttributeError):
        notebook(NOTEBOOK._replace(source=source))
