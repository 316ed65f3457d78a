"""Diagrams as text: the programs that draw them draw what was said, whatever that was."""

import html
import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from lxml import etree

from dissectors.events import AnyEvent, Message
from tests.render.test_output_safety import NASTY, conversations, shown
from tests.support.browser import CHROMIUM, MISSING, open_page
from zmtpsniff.render.steps import step_words

SIGNS = b'#35; a;b %%{init: x}%% <b>$$x$$</b> wrap: ``` end\\n "q" {x} : \\N'
TEXTS = {**NASTY, "signs": SIGNS, "ends": b"end", "wraps": b"nowrap:x"}
_MERMAID = Path(os.environ.get("NODE_PATH", "node_modules")) / "mermaid" / "dist" / "mermaid.min.js"


def _labels(events: list[AnyEvent]) -> list[str]:
    """The words at the arrows."""
    return [step_words(event, 32) or "" for event in events if isinstance(event, Message)]


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason=MISSING)
@pytest.mark.skipif(not _MERMAID.is_file(), reason="mermaid is not installed where NODE_PATH says: npm install mermaid")
def test_mermaid_draws_it(tmp_path: Path) -> None:
    diagrams = {name: shown(conversations(text), "mermaid") for name, text in TEXTS.items()}
    page = tmp_path / "mermaid.html"
    page.write_text(f"""<!DOCTYPE html><meta charset="utf-8"><pre id="drawn"></pre>
<script src="{_MERMAID.resolve().as_uri()}"></script>
<script type="application/json" id="data">{json.dumps(diagrams).replace("<", chr(92) + "u003c")}</script>
<script>
(async () => {{
  mermaid.initialize({{ startOnLoad: false, maxTextSize: 1e6 }});
  const drawn = {{}};
  for (const [name, text] of Object.entries(JSON.parse(document.getElementById("data").textContent))) {{
    const place = document.createElement("div");
    place.innerHTML = (await mermaid.render(`x${{Object.keys(drawn).length}}`, text)).svg;
    drawn[name] = [...place.querySelectorAll(".messageText, .noteText, .actor-box")].map((each) => each.textContent);
  }}
  document.getElementById("drawn").textContent = JSON.stringify(drawn);
}})();
</script>""")
    opened = open_page(page, tmp_path / "profile")
    assert opened.console == []
    found = re.search(r'id="drawn">(.*?)</pre>', opened.html, re.S)
    assert found is not None
    drawn = json.loads(html.unescape(found[1]))
    for name, text in TEXTS.items():
        # Mermaid makes one blank of several, and lines where <br> is.
        texts = {" ".join(each.split()) for each in drawn[name]}
        assert {" ".join(each.split()) for each in _labels(conversations(text))} <= texts, name


@pytest.mark.skipif(shutil.which("dot") is None, reason="there is no dot here: apt-get install graphviz")
def test_dot_draws_it() -> None:
    for text in TEXTS.values():
        graph = shown(conversations(text), "dot")
        done = subprocess.run(["dot", "-Tsvg"], input=graph, capture_output=True, text=True, check=True)
        tree = etree.fromstring(done.stdout.encode())
        kinds = [group.get("class") for group in tree.iter("{*}g")]
        assert kinds.count("node") == 4
        assert kinds.count("edge") >= 4  # hosts and sockets are the same, their types are not


def test_without_anything() -> None:
    assert shown([], "mermaid") == ""
    assert shown([], "dot").splitlines()[0::4] == ["digraph zmtp {", "}"]


def test_a_client_is_guessed_if_the_connections_record_does_not_pass() -> None:
    messages = [Message(1, 1, 1, "10.0.0.1:40000", "10.0.0.2:5555", [b"a"]),
                Message(2, 2, 1, "10.0.0.2:5555", "10.0.0.1:40000", [b"b"]),
                Message(3, 3, 2, "10.0.0.2:5555", "10.0.0.1:40001", [b"c"])]  # fmt: skip
    assert '"host 10.0.0.1" -> "10.0.0.2:5555" [label="1 / 2 messages\\n2 connections"' in shown(messages, "dot")
