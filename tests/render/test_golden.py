"""The output for people and programs, word for word, as tcpdump tests it: capture and options in, expected file out.

``pytest tests/render --renew-golden`` writes the expected files anew; read their diff before committing it.
"""

import contextlib
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.support.golden import hold
from tests.support.paths import FIXTURES
from zmtpsniff.cli.main import cli
from zmtpsniff.render import FORMATS

GOLDEN = Path(__file__).parent / "golden"

# name of the expected file, capture, options
CASES = [
    ("req_rep.tree", "m31_req_rep.pcap", ""),
    ("req_rep.color.tree", "m31_req_rep.pcap", "--color always -c 20"),
    ("req_rep.summary", "m31_req_rep.pcap", "-T summary"),
    ("req_rep.json", "m31_req_rep.pcap", "-T json"),
    ("req_rep.dump", "m31_req_rep.pcap", "-T dump"),
    ("push_pull.tree", "m31_push_pull.pcap", ""),
    ("push_pull.verbose.tree", "m31_push_pull.pcap", "-v"),
    ("push_pull.whole.tree", "m31_push_pull.pcap", "--max-bytes 0"),
    ("push_pull.short.json", "m31_push_pull.pcap", "-T json --max-bytes 5"),
    ("push_pull.dump", "m31_push_pull.pcap", "-T dump"),
    ("pub_sub.tree", "m31_pub_sub.pcap", ""),
    ("pub_sub.summary", "m31_pub_sub.pcap", "-T summary"),
    ("heartbeat.tree", "m31_heartbeat.pcap", ""),
    ("heartbeat.json", "m31_heartbeat.pcap", "-T json"),
    ("pcapng.summary", "m31_pcapng_file.pcapng", "-T summary"),
    ("gzip.summary", "m31_pcap_gz_file.pcap.gz", "-T summary"),
    ("sll2.summary", "m31_linux_sll2.pcap", "-T summary"),
    ("ipv6.summary", "m31_ipv6.pcap", "-T summary"),
    ("vlan.summary", "m31_vlan_tag.pcap", "-T summary"),
    ("link_types.summary", "mix_link_types.pcapng", "-T summary"),
    ("zmtp1_downgrade.tree", "x_435_to_220.pcap", ""),
    ("zmtp1_downgrade.json", "x_435_to_220.pcap", "-T json --max-bytes 16"),
    ("zmtp1_garbage_flags.summary", "x_2111_xreq_xrep.pcap", "-T summary"),
    ("zmtp2_downgrade.tree", "x_325_to_435.pcap", "-v"),
    ("plain.tree", "sec_plain_ok_435_435.pcap", ""),
    ("plain.secrets.json", "sec_plain_ok_435_435.pcap", "-T json --show-secrets"),
    ("plain.json", "sec_plain_ok_435_435.pcap", "-T json"),
    ("plain_refused.tree", "sec_plain_refused_435.pcap", ""),
    ("curve.tree", "sec_curve_ps_435_435.pcap", ""),
    ("curve.verbose.tree", "sec_curve_ps_435_435.pcap", "-v"),
    ("curve_opened.tree", "sec_curve_keys.pcapng", ""),
    ("curve_opened.verbose.tree", "sec_curve_keys.pcapng", "-v"),
    ("curve_opened.verbose.summary", "sec_curve_keys.pcapng", "-T summary -v"),
    ("curve_opened.dump", "sec_curve_keys.pcapng", "-T dump"),
    ("curve_opened.json", "sec_curve_keys.pcapng", "-T json"),
    ("mechanism_mismatch.tree", "sec_mismatch_null_curve.pcap", ""),
    ("socket_types.tree", "sec_types_push_pub.pcap", ""),
    ("reserved_flags.tree", "bad_reserved_flags.pcap", ""),
    ("http_on_zmq_port.tree", "bad_http_on_zmq_port.pcap", ""),
    ("ready_truncated.json", "bad_ready_truncated.pcap", "-T json"),
    ("snaplen.summary", "net_snaplen96.pcap", "-T summary"),
    ("zmtp1_gap.summary", "net_zmtp1_gap.pcap", "-T summary"),
    ("sub_commands.json", "raw_sub_commands.pcap", "-T json"),
    ("radio_dish.tree", "draft_radio_dish_tcp.pcap", ""),
    ("radio_dish_udp.json", "draft_radio_dish_udp.pcap", "-T json -d udp.port==21405,zmtp"),
    ("radio_dish_udp_not_named.summary", "draft_radio_dish_udp.pcap", "-T summary"),
    ("epgm.summary", "epgm_pub_sub.pcap", "-T summary"),
    ("ws_plain.tree", "ws_plain.pcap", ""),
    ("ws_pub_sub.json", "ws_pub_sub.pcap", "-T json"),
    ("dealer_dealer_ipv6.summary", "rec_dealer_dealer_ipv6.pcap", "-T summary"),
    ("plain_wrong_password.tree", "rec_plain_wrong_password.pcap", "-v"),
    ("unanswered_request.tree", "rec_unanswered_request.pcap", ""),
    ("proxy.tree", "rec_proxy.pcap", "-c 50"),
    ("forwarder.summary", "rec_forwarder.pcap", "-T summary"),
    ("relaxed_request.json", "rec_relaxed_request_ok.pcap", "-T json"),
    ("unequal_work.summary", "rec_unequal_work.pcap", "-T summary"),
    ("frozen_peer.summary", "rec_frozen_peer.pcap", "-T summary"),
    ("zap.tree", "zap_over_tcp.pcap", ""),
    ("malamute.summary", "app_malamute.pcap", "-T summary"),
    ("malamute.verbose.tree", "app_malamute.pcap", "-v -c 40"),
    ("majordomo.json", "app_majordomo_mdp01.pcap", "-T json"),
    ("zre.tree", "app_zre.pcap", ""),
    ("zre.json", "app_zre.pcap", "-T json"),
    ("zre.summary", "app_zre.pcap", "-T summary"),
    ("salt.summary", "app_salt.pcap", "-T summary"),
    ("jupyter.tree", "app_jupyter.pcap", "-c 160"),
    ("proxy.mermaid", "rec_proxy.pcap", "-T mermaid"),
    ("messages.mermaid", "m31_req_rep.pcap", "-T mermaid -Y frames"),
    ("proxy.dot", "rec_proxy.pcap", "-T dot"),
    ("messages.dot", "m31_pub_sub.pcap", "-T dot -Y frames"),
    ("two_files.summary", "m31_req_rep.pcap m31_push_pull.pcap", "-T summary"),
]


def _run(captures: str, options: str) -> bytes:
    """The output of the command; this process runs it, since another one takes longer to start than for the rest."""
    command = ["read", "--utc", *options.split(), *captures.split()]
    with contextlib.chdir(FIXTURES):
        done = CliRunner(charset="utf-8", env={"NO_COLOR": None}).invoke(cli, command)
    assert done.exit_code == 0, done.output
    is_sealed = captures == "sec_curve_ps_435_435.pcap"
    assert (" CURVE connection are encrypted" in done.stderr) is is_sealed
    assert is_sealed or not done.stderr  # nothing else is said
    return done.stdout_bytes


@pytest.mark.parametrize(("expected", "captures", "options"), CASES, ids=[case[0] for case in CASES])
def test_output_is_as_expected(expected: str, captures: str, options: str, request: pytest.FixtureRequest) -> None:
    hold(request, GOLDEN / expected, _run(captures, options).decode())


def test_no_expected_file_is_left_over() -> None:
    assert {path.name for path in GOLDEN.iterdir() if path.is_file()} == {case[0] for case in CASES}


def test_every_format_has_a_case() -> None:
    asked = {options.partition("-T ")[2].partition(" ")[0] or "tree" for _, _, options in CASES}
    missing = set(FORMATS) - asked
    assert not missing, "add a case to CASES, and write what it shows with --renew-golden"
