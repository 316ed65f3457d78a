"""A report as a page: one file of HTML that loads nothing and has no script.

All text goes through ``html.escape``; what gets past that could still do nothing, for the page's own
Content-Security-Policy allows nothing but its style.
"""

from collections.abc import Sequence
from html import escape

from zmtpsniff.spark.report.plots import plots
from zmtpsniff.spark.report.records import AnyRecord, TotalRow
from zmtpsniff.spark.report.sections import Section, headline, sections

POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
_STYLE = """
:root { color-scheme: light dark; --text: #1d232a; --dim: #5b6672; --grid: #c9d0d8; --back: #ffffff; --line: #e3e7eb;
  --color-0: #2f6db3; --color-1: #d98a00; --color-2: #2f8f5b; --color-3: #c0392b; --color-4: #7d55b5;
  --color-5: #16808c; --color-6: #a6566f; --color-7: #77818c; }
@media (prefers-color-scheme: dark) { :root { --text: #e4e8ec; --dim: #9aa5b1; --grid: #4a545f; --back: #15191e;
  --line: #2b323a; --color-0: #6ea8e6; --color-1: #f0b04a; --color-2: #62c48f; --color-3: #ef7a6d; --color-4: #b394e0;
  --color-5: #5cc0cb; --color-6: #dd93aa; --color-7: #a6b0ba; } }
body { margin: 0 auto; max-width: 72rem; padding: 1rem; background: var(--back); color: var(--text);
  font: 15px/1.45 system-ui, sans-serif; }
h1 { font-size: 1.5rem; margin: 0.5rem 0; }
h2 { font-size: 1.15rem; margin: 2rem 0 0.5rem; }
p { margin: 0.2rem 0; }
.dim { color: var(--dim); }
.table { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-size: 0.87rem; font-variant-numeric: tabular-nums; }
th, td { text-align: left; vertical-align: top; padding: 0.3rem 1rem 0.3rem 0; border-bottom: 1px solid var(--line);
  white-space: pre-line; }
th { color: var(--dim); font-weight: 600; }
td { overflow-wrap: anywhere; min-width: 7.5rem; }
td.number { min-width: 3.5rem; }
td.time { white-space: pre; }
summary { cursor: pointer; font-size: 1.15rem; font-weight: 600; margin: 1.5rem 0 0.5rem; }
.number { text-align: right; white-space: nowrap; }
.long { min-width: 15rem; }
.error { color: var(--color-3); font-weight: 600; }
.warning { color: var(--color-1); font-weight: 600; }
svg { display: block; width: 100%; height: auto; margin: 0.5rem 0; stroke-linejoin: round; }
svg text { font-family: system-ui, sans-serif; }
.narrow { display: none; }
@media (max-width: 640px) { .wide { display: none; } .narrow { display: block; } body { padding: 0.75rem; } }
"""


def page(records: Sequence[AnyRecord], title: str) -> str:
    """The page; ``title`` says what it is of."""
    drawn = plots(records)
    shown = escape(title)
    parts = [
        f'<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{escape(POLICY)}">\n'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{shown}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n<h1>{shown}</h1>\n"
    ]
    for record in records:
        if isinstance(record, TotalRow):
            parts += [f"<p>{escape(line)}</p>\n" for line in headline(record)]
    if "timeline" in drawn:
        parts.append(f"<h2>Messages</h2>\n{_drawing(drawn['timeline'])}")
    for section in sections(records):
        if section.name == "hours":  # long, and drawn above
            parts.append(f"<details><summary>{escape(section.title)}</summary>\n{_table(section)}</details>\n")
            continue
        parts.append(f'<h2 id="{section.name}">{escape(section.title)}</h2>\n')
        if section.name in drawn:
            parts.append(_drawing(drawn[section.name]))
        parts.append(_table(section))
    parts.append('<p class="dim">Made by zmtpsniff spark report; times are UTC.</p>\n</body>\n</html>\n')
    return "".join(parts)


def _drawing(drawn: dict[str, str]) -> str:
    return "".join(f'<div class="{width}">{svg}</div>\n' for width, svg in drawn.items())


def _table(section: Section) -> str:
    numbers = [column.startswith(">") for column in section.columns]
    head = "".join(
        f'<th scope="col"{_class("number" if number else "")}>{escape(column.lstrip(">"))}</th>'
        for column, number in zip(section.columns, numbers, strict=True)
    )
    body = "".join(
        "<tr>"
        + "".join(
            f"<td{_class('number' if number else _kind(column, cell))}>{escape(cell)}</td>"
            for column, number, cell in zip(section.columns, numbers, row, strict=True)
        )
        + "</tr>\n"
        for row in section.rows
    )
    note = f'<p class="dim">{escape(section.note)}</p>\n' if section.note else ""
    return f'<div class="table"><table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{body}</tbody></table></div>\n{note}'


def _kind(column: str, cell: str) -> str:
    if column == "Problem":
        return cell.partition(" ")[0]
    if column in ("Hour", "Begin", "First", "Last"):
        return "time"
    return "long" if column == "What" else ""


def _class(name: str) -> str:
    return f' class="{name}"' if name else ""
