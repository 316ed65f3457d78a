"""Policies: what they may say, and how mistakes in them are told."""

import re
from pathlib import Path

import pytest

from tests.support.check_program import check, hold_mistake
from tests.support.paths import FIXTURES, PROJECT
from zmtpsniff.check.builtin import SETS
from zmtpsniff.check.endpoint_reader import ENDPOINT_KEYS, RATE_KEYS
from zmtpsniff.check.formats import FORMATS
from zmtpsniff.check.model import PATTERNS
from zmtpsniff.check.policy import KINDS, LATENCY_KEYS, RULE_KEYS, parse_policy
from zmtpsniff.cli.check_command import FORMAT_NAMES

GOOD = """\
include = ["protocol", "complete"]        # built-in rule sets

[[rule]]
name = "no passwords in clear"
forbid = 'type == "command" && name == "HELLO" && mechanism == "PLAIN"'

[[rule]]
name = "orders flow"
expect = 'type == "message" && frames[0].text == "orders"'
min = 1

[[rule]]
name = "requests are answered fast"
latency = { pattern = "request-reply", p99_ms = 50 }

[[rule]]
name = "hello, then orders"
order = ['name == "READY"', 'type == "message"']
level = "warning"
"""


def test_the_policy_of_the_documentation_is_read() -> None:
    rules = parse_policy(GOOD, "policy.toml")
    assert [(rule.name, rule.kind, rule.line) for rule in rules[-4:]] == [
        ("no passwords in clear", "forbid", 3),
        ("orders flow", "expect", 7),
        ("requests are answered fast", "latency", 12),
        ("hello, then orders", "order", 16),
    ]
    assert [rule.bounds.most for rule in rules[-4:]] == [0, None, None, None]
    assert [rule.bounds.least for rule in rules[-4:]] == [None, 1, 1, 1]
    assert {rule.set_name for rule in rules[:-4]} == {"protocol", "complete"}
    assert [rule.level for rule in rules[-4:]] == ["error", "error", "error", "warning"]


def _documentation() -> str:
    return (PROJECT / "docs" / "check.md").read_text()


def test_what_the_documentation_shows_is_a_policy() -> None:
    policies = re.findall(r"```toml\n(.*?)```", _documentation(), re.DOTALL)
    kinds = {rule.kind for policy in policies for rule in parse_policy(policy, "policy.toml")}
    assert kinds == {*KINDS, "endpoint"}


def test_the_documentation_has_every_key_set_and_rule() -> None:
    for key in (*RULE_KEYS, *ENDPOINT_KEYS, *RATE_KEYS, *LATENCY_KEYS, *FORMATS, *PATTERNS):
        assert re.search(rf"`\"?{key}", _documentation()), key
    assert tuple(FORMAT_NAMES) == FORMATS
    for name, rules in SETS.items():
        assert f"| `{name}` |" in _documentation()
        for rule in rules:
            assert f" | {rule.name} | " in _documentation(), rule.name


# what is wrong, the line, and words that the message must have
MISTAKES = [
    ("", 1, ["no rule"]),
    ("include = []", 1, ["no rule"]),
    ('include = ["protocoll"]', 1, ["'protocoll'", "did you mean 'protocol'", "modern"]),
    ('\ninclude = "protocol"', 2, ["list"]),
    ("include = [1]", 1, ["list"]),
    ('include = ["protocol"]\n\nrules = 1', 3, ["'rules'", "did you mean 'rule'"]),
    ('include = ["protocol"]\nincludes = []', 2, ["'includes'", "did you mean 'include'"]),
    ('[rule]\nname = "a"', 1, ["[[rule]]"]),
    ("[[rule]]\nname = a", 2, ["Invalid value", "column 8"]),
    ('[[rule]]\nname = "a"\nexpect = "x', 3, ["string"]),
    ('[[rule]]\nname = "a"\nname = "b"', 3, ["overwrite"]),
    ('[[rule]]\nexpect = "type"', 1, ["rule 1", "no name"]),
    ('# one\n[[rule]]\nname = 5\nexpect = "type"', 3, ["rule 1", "name must be text"]),
    ('[[rule]]\nname = " "\nexpect = "type"', 2, ["name must be text"]),
    ('[[rule]]\nname = "a"', 1, ["rule 'a'", "expect, forbid, latency, order", "none of them"]),
    ('[[rule]]\nname = "a"\nexpect = "type"\nforbid = "type"', 4, ["expect and forbid"]),
    ('[[rule]]\nname = "a"\nexpct = "type"', 3, ["'expct'", "did you mean 'expect'"]),
    ('[[rule]]\nname = "a"\nexpect = "type"\nzzz = 1', 4, ["unknown key 'zzz'"]),
    ('no_findings = ["error"]', 1, ["'no_findings' belongs to a rule", "[[rule]]"]),
    ('[[rule]]\nname = "a"\nexpect = 5', 3, ["expect", "filter in quotes"]),
    ('[[rule]]\nname = "a"\nexpect = ""', 3, ["expect", "filter in quotes"]),
    ('[[rule]]\nname = "a"\n\nexpect = \'typ == "message"\'', 4, ["expect: column 1", "type"]),
    ('[[rule]]\nname = "a"\nforbid = \'type == "message" &&\'', 3, ["forbid: column"]),
    ('[[rule]]\nname = "a"\nexpect = "type"\nmin = -1', 4, ["min", "0 or more", "-1"]),
    ('[[rule]]\nname = "a"\nexpect = "type"\nmin = 1.5', 4, ["min", "whole number"]),
    ('[[rule]]\nname = "a"\nexpect = "type"\nmax = true', 4, ["max", "True"]),
    ('[[rule]]\nname = "a"\nexpect = "type"\nmax = "3"', 4, ["max", "'3'"]),
    ('[[rule]]\nname = "a"\nexpect = "type"\nmin = 3\nmax = 2', 4, ["min (3) is more than max (2)"]),
    ('[[rule]]\nname = "a"\nexpect = "type"\ncount = 3\nmax = 2', 4, ["count is an exact number"]),
    ('[[rule]]\nname = "a"\nforbid = "type"\nmin = 3', 4, ["min contradicts forbid"]),
    ('[[rule]]\nname = "a"\nexpect = "type"\nper = "flow"', 4, ["'flow'", "connection, second"]),
    ('[[rule]]\nname = "a"\nexpect = "type"\nmean = true', 4, ['mean needs per = "second"']),
    ('[[rule]]\nname = "a"\nexpect = "type"\nper = "second"\nmean = 3', 5, ["true or false"]),
    ('[[rule]]\nname = "a"\nexpect = "type"\nconnections = "type"', 4, ['per = "connection"']),
    ('[[rule]]\nname = "a"\nexpect = "type"\nper = "connection"\nconnections = "x y"', 5, ["connections: column"]),
    ('[[rule]]\nname = "a"\nexpect = "type"\nlevel = "note"', 4, ["'note'", "error, warning"]),
    ('[[rule]]\nname = "a"\nlatency = 50', 3, ["pattern", "p99_ms"]),
    ('[[rule]]\nname = "a"\nlatency = { p99_ms = 5 }', 3, ["pattern is missing", "request-reply"]),
    ('[[rule]]\nname = "a"\nlatency = { pattern = "request", p99_ms = 5 }', 3, ["did you mean 'request-reply'"]),
    ('[[rule]]\nname = "a"\nlatency = { pattern = "heartbeats" }', 3, ["no limit", "p50_ms"]),
    ('[[rule]]\nname = "a"\nlatency = { pattern = "heartbeats", p98_ms = 1 }', 3, ["'p98_ms'", "did you mean"]),
    ('[[rule]]\nname = "a"\nlatency = { pattern = "heartbeats", p99_ms = 0 }', 3, ["p99_ms", "above 0"]),
    ('[[rule]]\nname = "a"\nlatency = { pattern = "heartbeats", p99_ms = 1 }\nmax = 1', 4, ["max", "latency"]),
    ('[[rule]]\nname = "a"\nlatency = { pattern = "heartbeats", p99_ms = 1, where = "(" }', 3, ["where: column"]),
    ('[[rule]]\nname = "a"\norder = ["type"]', 3, ["two filters"]),
    ('[[rule]]\nname = "a"\norder = ["type", "("]', 3, ["filter 2: column"]),
    ('[[rule]]\nname = "a"\norder = ["type", "type"]\nper = "second"', 4, ["order"]),
    ('[[rule]]\nname = "a"\nexpect = "type"\n[[rule]]\nname = "a"\nexpect = "type"', 4, ["'a'", "x.toml:1"]),
    ('include = ["protocol"]\n[[rule]]\nname = "no errors"\nexpect = "type"', 2, ["built-in set protocol"]),
    # Lines are found behind strings that look like rules.
    ('[[rule]]\nname = "a"\nexpect = """\ntype\n"""\n[[rule]]\nname = "b"\nmn = 1', 8, ["rule 2", "'mn'"]),
    ("[[rule]]\nname = '''\n[[rule]]\n'''\nexpect = 'type'\n[[rule]]\nmn = 1", 7, ["rule 2", "'mn'"]),
    ('[[rule]]\nname = "a" # [[rule]]\norder = [\n  "type", # ]\n  "type",\n]\nlevl = 1', 7, ["'levl'"]),
    ('rule = [\n  { name = "a", expct = "type" },\n]', 1, ["'expct'"]),
    ('[[rule]]\nname = "a"\nexpect = "type"\n[rule.bounds]\nmin = 1', 1, ["'bounds'"]),
    *(
        (f'[[rule]]\nname = "it"\n{rule}', line, [words])
        for rule, line, words in (
            ("sequence = 5", 3, "must be text"),
            ('sequence = "frame[1]"', 3, "names no number"),
            ('sequence = "frames[1]"\nby = "host"', 4, "by must be one of sender, connection, topic"),
            ('sequence = "frames[1]"\nwhere = "("', 4, "where: column"),
            ('sequence = "frames[1]"\nmin = 1', 4, "min says nothing about sequence"),
            ('expect = "type"\nwhere = "type"', 4, "where belongs to a sequence"),
            ("no_findings = []", 3, "list of codes"),
            ('no_findings = ["subscriber-slo"]', 3, "did you mean 'subscriber-slow'"),
            ('no_findings = ["error"]\nmax = 1', 4, "max says nothing about no_findings"),
        )
    ),
]


@pytest.mark.parametrize(("text", "line", "words"), MISTAKES, ids=range(len(MISTAKES)))
def test_a_mistake_is_told_with_its_line(text: str, line: int, words: list[str]) -> None:
    hold_mistake(text, line, words)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b'[[rule]]\nname = "caf\xe9"\n', "policy.toml:2: not UTF-8"),
        (b"[[rule]]\nname = 'a'\nexpect = 'tpye == \"message\"'\n", "policy.toml:3: rule 'a': expect: column 1"),
    ],
    ids=["latin-1", "filter"],
)
def test_a_mistake_ends_the_program_with_2_and_one_line(tmp_path: Path, data: bytes, said: str) -> None:
    (tmp_path / "policy.toml").write_bytes(data)
    done = check(FIXTURES / "m31_req_rep.pcap", "--policy", "policy.toml", cwd=tmp_path)
    assert (done.status, done.out) == (2, "")
    assert len(done.err.splitlines()) == 1
    assert said in done.err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "CAPTURE"),
        (["a.pcap"], "--policy"),
        (["a.pcap", "--policy", "no-such.toml"], "zmtpsniff: no-such.toml: No such file"),
        (["a.pcap", "--policy", "."], "directory"),
        (["no-such.pcap", "--include", "protocol"], "no-such.pcap"),
        (["a.pcap", "--include", "protocl"], "did you mean 'protocol'"),
        (["a.pcap", "--include", "protocol", "-T", "xml"], "'xml'"),
        (["a.pcap", "--include", "protocol", "-T", "junit="], "name of a file"),
        (["a.pcap", "--include", "protocol", "-T", "junit", "-T", "text"], "same place"),
        (["a.pcap", "--include", "protocol", "-T", "junit=x", "-T", "sarif=./x"], "same place"),
        (["a.pcap", "--include", "protocol", "-T", "text", "-T", "text"], "same place"),
        (["fixtures/m31_req_rep.pcap", "--include", "protocol", "-o", "fixtures/m31_req_rep.pcap"], "files to read"),
        (["a.pcap", "--include", "protocol", "-i", "lo"], "only with --live"),
        (["--live", "a.pcap", "--include", "protocol"], "takes no captures"),
        (["--live", "--include", "protocol"], "-i INTERFACE"),
        (["--live", "--init"], "one of them only"),
        (["--baseline", "a.pcap", "b.pcap", "--factor", "2"], "--factor: only with --init"),
        (["--include", "protocol", "a.pcap", "--tolerance", "100"], "--tolerance: only with --baseline"),
        (["--init"], "CAPTURE"),
        (["--init", "a.pcap", "--include", "protocol"], "--init: takes no"),
        (["--baseline", "a.pcap"], "two captures"),
        (["a.pcap", "--include", "protocol", "--show-secrets"], "show-secrets"),
        (["-", "-", "--include", "protocol"], "more than once"),
    ],
)
def test_wrong_usage_ends_with_2_and_one_line(arguments: list[str], said: str) -> None:
    done = check(*arguments)
    assert (done.status, done.out) == (2, "")
    assert len(done.err.splitlines()) == 1
    assert said in done.err
