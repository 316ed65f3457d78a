"""``zmtpsniff diff``: its output, and its errors."""

import json
import shutil
from pathlib import Path

import pytest

from tests.support.paths import FIXTURES
from tests.support.runner import run

SHOP = FIXTURES / "shop"
BEFORE = SHOP / "none.pcap.gz"
TOLD = {
    "no-archive": """
127.0.0.1:5563
  worse    clients        4 → 3
  gone     subscription   ""

2 differences: 2 worse; 6 of 7 services alike
""",
    "open-vault": """
127.0.0.1:5566
  worse    mechanism      CURVE → NULL

1 difference: 1 worse; 6 of 7 services alike
""",
    "new-client": """
127.0.0.1:5563
  changed  clients        4 → 5

1 difference: 1 other; 6 of 7 services alike
""",
    "dead-server": """
127.0.0.1:5567 is gone (DEALER > ROUTER)

1 difference: 1 worse; 6 of 6 services alike
""",
    "none": """
no difference; 7 of 7 services alike
""",
}


@pytest.mark.parametrize("way", TOLD)
def test_a_change_is_told_and_nothing_else(way: str) -> None:
    """The shop was recorded each time anew: what differs by chance is not told."""
    done = run("diff", BEFORE, SHOP / f"{way}.pcap.gz")
    assert (done.returncode, done.stderr) == (0, "")
    titles, _, told = done.stdout.partition("\n\n")
    assert titles.startswith("before  ")
    assert "\nafter   " in titles
    assert f"\n{told}" == TOLD[way]


def test_the_other_way_around_worse_is_better_and_gone_is_new() -> None:
    assert "127.0.0.1:5567 is new (DEALER > ROUTER)" in run("diff", SHOP / "dead-server.pcap.gz", BEFORE).stdout
    assert "  better   mechanism      NULL → CURVE" in run("diff", SHOP / "open-vault.pcap.gz", BEFORE).stdout
    assert '  new      subscription   ""' in run("diff", SHOP / "no-archive.pcap.gz", BEFORE).stdout


def test_a_service_at_another_address_is_found_again() -> None:
    done = run("diff", FIXTURES / "rec_proxy_ok.pcap", FIXTURES / "rec_proxy.pcap")
    assert done.stdout.partition("\n\n")[2] == (
        "127.0.0.1:5574 → 127.0.0.1:5572\n"
        "  changed  address        taken for the same service, by its socket types\n"
        "  worse    problems       request-unanswered: 0 → 1\n\n"
        "127.0.0.1:5575 → 127.0.0.1:5573\n"
        "  changed  address        taken for the same service, by its socket types\n"
        "  worse    problems       request-unanswered: 0 → 1\n\n"
        "4 differences: 2 worse, 2 other; 0 of 2 services alike\n"
    )


def test_a_new_service_that_nobody_gets_through_to() -> None:
    done = run("diff", FIXTURES / "rec_reconnect_storm_ok.pcap", FIXTURES / "rec_reconnect_storm.pcap")
    assert "  new      handshakes     all of 7 connections failed" in done.stdout


def test_captures_that_have_nothing_in_common() -> None:
    done = run("diff", FIXTURES / "m31_req_rep.pcap", FIXTURES / "m31_pub_sub.pcap")
    assert done.stdout.partition("\n\n")[2] == (
        "127.0.0.1:20205 is gone (REQ > REP)\n\n127.0.0.1:20209 is new (SUB > PUB)\n\n"
        "2 differences: 1 worse, 1 other; no service is in both captures\n"
    )
    silent = FIXTURES / "app_zbeacon.pcap"
    assert run("diff", silent, silent).stdout.splitlines()[-1] == "no difference; no service is in both captures"


def test_a_client_is_named_by_its_identity() -> None:
    done = run("diff", FIXTURES / "rec_same_identity_ok.pcap", FIXTURES / "rec_same_identity.pcap")
    assert '  changed  clients        "other worker" gone\n' in done.stdout


def test_exit_status() -> None:
    other = SHOP / "new-client.pcap.gz"
    assert run("diff", BEFORE, other).returncode == 0
    assert run("diff", "--fail", BEFORE, other).returncode == 1
    assert run("diff", "--fail", BEFORE, BEFORE).returncode == 0
    done = run("diff", "--fail", "--worse", BEFORE, other)
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "no difference; 7 of 7 services alike")


def test_json() -> None:
    done = run("diff", "-T", "json", BEFORE, SHOP / "null.pcap.gz")
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert [(row["type"], row.get("aspect")) for row in rows] == [
        ("difference", "handshakes"),
        ("difference", "problems"),
        ("difference", "clients"),
        ("comparison", None),
    ]
    assert rows[2] == {
        "type": "difference", "effect": "worse", "change": "changed", "aspect": "clients", "service": "127.0.0.1:5566",
        "summary": "127.0.0.1:5566 had at least 1 client, has none", "before": 1, "after": 0, "unit": "clients",
    }  # fmt: skip
    assert rows[-1]["not_compared"] == ["no handshake with 127.0.0.1:5566 is in the new capture"]


def test_folders_globs_and_standard_input(tmp_path: Path) -> None:
    for day, names in (("monday", ("none",)), ("tuesday", ("no-archive", "open-vault"))):
        (tmp_path / day).mkdir()
        for name in names:
            shutil.copy(SHOP / f"{name}.pcap.gz", tmp_path / day)
    days = run("diff", "monday", "tuesday", cwd=tmp_path).stdout
    assert "26 ZMTP connections" not in days.splitlines()[0]
    assert "127.0.0.1:5566\n  worse    mechanism      CURVE → NULL" in days
    assert (
        run("diff", "monday/*.gz", "tuesday/*.gz", cwd=tmp_path).stdout.partition("\n\n")[2]
        == (days.partition("\n\n")[2])
    )
    piped = run("diff", BEFORE, "-", octets=(SHOP / "open-vault.pcap.gz").read_bytes())
    assert "CURVE → NULL" in piped.stdout


def test_colour_width_and_file(tmp_path: Path) -> None:
    null = SHOP / "null.pcap.gz"
    assert "\x1b[" in run("diff", "--color", "always", BEFORE, null).stdout
    assert max(map(len, run("diff", BEFORE, null).stdout.splitlines())) <= 80
    assert run("diff", "-o", tmp_path / "out", BEFORE, null).stdout == ""
    assert (tmp_path / "out").read_text().endswith("services alike\n")


def test_the_output_is_none_of_the_captures(tmp_path: Path) -> None:
    copy = tmp_path / "copy.pcap.gz"
    shutil.copy(BEFORE, copy)
    assert run("diff", "-o", copy, BEFORE, tmp_path).returncode == 2
