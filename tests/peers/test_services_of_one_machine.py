"""Live, the process of each socket is known: so is whose request a service asks another one for."""

import itertools
import subprocess
import sys
from collections import Counter

from tests.support.live_program import Record, silent
from tests.support.namespaces import Side, needs_namespaces
from tests.support.two_services import DATABASE, SERVICES

_WAYS = 20  # of each service, once the processes of its sockets are known

pytestmark = needs_namespaces


def test_the_question_of_a_service_is_a_part_of_the_request_that_it_has(side: Side) -> None:
    shop = side.command(sys.executable, "-m", "tests.support.two_services")
    whole: Counter[int] = Counter()

    def are_enough(ways: list[Record]) -> bool:
        whole.update([_port(way) for way in ways[-1:] if _is_whole(way)])
        return all(whole[port] >= _WAYS for port in SERVICES)

    # The shop stays open until then: how soon the processes are found is not what is tested.
    with silent(side, "trace") as program, subprocess.Popen(shop, stdin=subprocess.PIPE):
        ways = program.read_until(are_enough)
    for port in SERVICES:
        mine = [way for way in ways if _port(way) == port]
        later = list(itertools.dropwhile(lambda way: not _is_whole(way), mine))
        assert len({way["legs"][1]["src"] for way in later}) == 1  # each service has one connection to the database
        for way in later:
            request, question, row, reply = way["legs"]
            assert question["dst"] == row["src"] == f"127.0.0.1:{DATABASE}"
            assert question["src"] == row["dst"]
            assert request["src"] == reply["dst"]
            assert all(leg.get("certain", True) for leg in way["legs"])


def _is_whole(way: Record) -> bool:
    """Whether the way leads to the database, as the processes show."""
    return [leg.get("joined") for leg in way["legs"][1:2]] == ["process"]


def _port(way: Record) -> int:
    return int(way["legs"][0]["dst"].rpartition(":")[2])
