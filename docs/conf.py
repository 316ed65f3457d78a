"""How Sphinx builds the site out of these pages: CONTRIBUTING.md says how to run it."""

from zmtpsniff import __version__

project = "zmtpsniff"
author = "the zmtpsniff developers"
version = release = __version__
extensions = ["myst_parser", "sphinx.ext.autodoc"]
exclude_patterns = ["man", "completion", "debian"]
root_doc = "index"
html_theme = "furo"
html_title = f"zmtpsniff {__version__}"
html_static_path: list[str] = []
html_copy_source = False
html_show_sourcelink = False
html_show_copyright = False
html_last_updated_fmt = None
html_theme_options: dict[str, list[str]] = {"top_of_page_buttons": []}
# Links to headings, on this page and on others, must lead to one.
myst_heading_anchors = 3
myst_enable_extensions = ["colon_fence"]
nitpicky = True
autodoc_typehints = "signature"
autodoc_member_order = "bysource"
autodoc_mock_imports = ["pytest"]  # which the extra "docs" does not bring
# The reference of the Python interface names types that have no page of their own.
nitpick_ignore_regex = [("py:.*", r".*")]
smartquotes = False  # what is quoted is to be copied
suppress_warnings = ["misc.highlighting_failure"]  # JSON with jq's or our own dots in it
