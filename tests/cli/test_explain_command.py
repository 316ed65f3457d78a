"""zmtpsniff explain: what each code means, for those who have no pages at hand."""

from dissectors.problems import PROBLEMS
from tests.support.runner import run
from zmtpsniff.analysis.findings.catalogue import FINDINGS


def test_every_code_is_explained_in_80_columns() -> None:
    done = run("explain", *PROBLEMS, *FINDINGS)
    assert done.returncode == 0
    words = " ".join(done.stdout.split())
    for code, problem in PROBLEMS.items():
        assert f"{code}: a problem ({problem.severity}) {problem.meaning}" in words
        assert f"What to do: {problem.advice}" in words
    for code, finding in FINDINGS.items():
        assert f"{code}: a finding ({finding.severity}) {finding.meaning} How it is known: {finding.known}" in words
        assert f"What to do: {finding.advice}" in words
    assert max(map(len, done.stdout.splitlines())) <= 80


def test_a_problem_and_a_finding_of_the_same_thing_name_each_other() -> None:
    for code, finding in FINDINGS.items():
        assert set(finding.problems) <= PROBLEMS.keys()
        for problem in finding.problems:
            assert f"diagnose says: {code}" in run("explain", problem).stdout
            assert "read says: " + ", ".join(finding.problems) in " ".join(run("explain", code).stdout.split())


def test_without_a_code_it_lists_all() -> None:
    lines = run("explain").stdout.splitlines()
    meanings = {code: kind.meaning for code, kind in FINDINGS.items()}
    meanings |= {code: kind.meaning for code, kind in PROBLEMS.items()}
    told = [line.split(maxsplit=1) for line in lines if line.startswith("  ")]
    assert [code for code, _ in told] == [*FINDINGS, *PROBLEMS]
    assert all(meanings[code].startswith(first) or code in FINDINGS for code, first in told)
    assert not any("…" in line for line in lines)


def test_a_code_that_is_nearly_one() -> None:
    done = run("explain", "nodelimiter")
    assert (done.returncode, done.stdout) == (2, "")
    assert "did you mean 'no-delimiter'?" in done.stderr
