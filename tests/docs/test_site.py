"""The documentation as a site: built strictly, and every link in what was built leads somewhere."""

import re
import shutil
import subprocess
import sys
from pathlib import Path
from urllib.parse import unquote, urlsplit

import lxml.html
import pytest

from tests.support.paths import PROJECT

DOCS = PROJECT / "docs"


# Sphinx as it is with the extra "docs" alone, which does not bring pytest.
_SPHINX = """
import sys
from sphinx.cmd.build import main

class Missing:
    def find_spec(name, path=None, target=None):
        if name.partition(".")[0] in ("pytest", "_pytest"):
            raise ModuleNotFoundError(f"No module named {name!r}")

sys.meta_path.insert(0, Missing)
sys.exit(main(sys.argv[1:]))
"""


def _build(source: Path, target: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", _SPHINX, "-W", "--keep-going", "-q", *options, "-b", "html"]
    return subprocess.run(
        [*command, str(source), str(target)], capture_output=True, text=True, check=False, timeout=300
    )


# The whole site is built for these two; that a dead link fails a build is tested quickly below.
@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("site") / "html"
    done = _build(DOCS, target)
    assert done.returncode == 0, done.stderr
    return target


@pytest.mark.slow
@pytest.mark.xdist_group("site")
def test_every_page_is_in_it(site: Path) -> None:
    pages = list(DOCS.rglob("*.md"))
    assert pages
    for page in pages:
        assert (site / page.relative_to(DOCS).with_suffix(".html")).exists(), page


@pytest.mark.slow
@pytest.mark.xdist_group("site")
def test_every_link_in_it_leads_somewhere(site: Path) -> None:
    made = {page: lxml.html.parse(str(page)).getroot() for page in site.rglob("*.html")}
    places = {page: {element.get("id") for element in root.iter() if element.get("id")} for page, root in made.items()}
    links = 0
    for page, root in made.items():
        for element, attribute, link, _ in root.iterlinks():
            parts = urlsplit(link)
            if parts.scheme == "https" and element.tag == "a":
                continue
            assert not parts.scheme, f"{page.name}: {link} is fetched from elsewhere"
            target = (page.parent / unquote(parts.path)).resolve() if parts.path else page
            assert target.exists(), f"{page.name}: {link}"
            if attribute == "href" and parts.fragment and target in places:
                assert parts.fragment in places[target], f"{page.name}: {link}"
                links += 1
    assert links > 100


_DEAD = {"no-such-page.md": "no-such-page", "live.md#no-such-heading": "no-such-heading", "#no-heading": "no-heading"}


def test_dead_links_fail_the_build(tmp_path: Path) -> None:
    source = tmp_path / "docs"
    source.mkdir()
    shutil.copy(DOCS / "conf.py", source)
    text = re.sub(r"\]\((?!live)[\w/-]+\.md(#[\w-]+)?\)", "](live.md)", (DOCS / "live.md").read_text())
    (source / "live.md").write_text(text)
    words = "\n".join(f"[words]({link})" for link in _DEAD)
    (source / "index.md").write_text(f"# Index\n\n{words}\n\n```{{toctree}}\nlive\n```\n")
    dead = _build(source, tmp_path / "html")
    assert dead.returncode != 0
    for name in _DEAD.values():
        assert re.search(rf"index\.md.*{name}", dead.stderr), name
    assert dead.stderr.count("WARNING: ") == len(_DEAD), dead.stderr  # and nothing else fails it
