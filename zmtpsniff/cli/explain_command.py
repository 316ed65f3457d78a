"""``zmtpsniff explain``."""

import textwrap

import click

from zmtpsniff.cli.help import CommandWithHelp
from zmtpsniff.cli.output import open_output

_WIDTH = 80  # columns of a text
_INDENT = "  "


@click.command(cls=CommandWithHelp, short_help="Explain the code of a problem or finding.")
@click.argument("codes", nargs=-1, metavar="[CODE]...")
def explain(codes: tuple[str, ...]) -> None:
    """Explain the codes of problems and findings, and what to do.

    A problem is one record that is wrong: read shows it. A finding is what diagnose concludes from many records.
    Without a code, list all of them, a line each.

    \b
    zmtpsniff explain no-delimiter
    zmtpsniff explain | grep subscri
    """
    from dissectors.problems import PROBLEMS
    from zmtpsniff.analysis.findings.catalogue import FINDINGS
    from zmtpsniff.check.mistakes import suggest

    for code in codes:
        if code not in PROBLEMS and code not in FINDINGS:
            near = suggest(code, [*PROBLEMS, *FINDINGS])
            raise click.UsageError(f"no problem and no finding has the code {code!r}{near}")
    from zmtpsniff.render.console import terminal_width
    from zmtpsniff.render.fit import fitted

    with open_output(None, binary=False) as stream:
        if codes:
            stream.write("\n".join(map(_explanation, codes)))
            return
        width = terminal_width(stream)
        for kinds, what in ((FINDINGS, "Findings"), (PROBLEMS, "Problems")):
            stream.write(f"{what}:\n")
            for code, kind in kinds.items():
                first = kind.meaning.partition(". ")[0].rstrip(".")
                stream.write(fitted(f"{_INDENT}{code:27} {first}", width) + "\n")


def _explanation(code: str) -> str:
    """The texts of a code, which a problem and a finding may share."""
    from dissectors.problems import PROBLEMS
    from zmtpsniff.analysis.findings.catalogue import FINDINGS, findings_of, problems_of

    parts = []
    if (problem := PROBLEMS.get(code)) is not None:
        said = ("What to do", problem.advice), ("diagnose says", _others(code, findings_of(code)))
        parts.append(_text(f"{code}: a problem ({problem.severity})", problem.meaning, *said))
    if (finding := FINDINGS.get(code)) is not None:
        known = ("How it is known", finding.known)
        said = ("What to do", finding.advice), ("read says", _others(code, problems_of(code)))
        parts.append(_text(f"{code}: a finding ({finding.severity})", finding.meaning, known, *said))
    return "\n".join(parts)


def _others(code: str, codes: list[str]) -> str:
    return ", ".join(each for each in codes if each != code)


def _text(title: str, meaning: str, *parts: tuple[str, str]) -> str:
    paragraphs = [meaning, *(f"{name}: {words}" for name, words in parts if words)]
    indented = [
        textwrap.fill(each, _WIDTH, initial_indent=_INDENT, subsequent_indent=_INDENT, break_on_hyphens=False)
        for each in paragraphs
    ]
    return "\n".join([title, *indented]) + "\n"
