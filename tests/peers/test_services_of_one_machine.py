"""Live, the process of each socket is known: so is whose request a service asks another one for."""

import json
import signal
import subprocess
import sys

from tests.support.live_program import wait_for
from tests.support.namespaces import Side, is_capturing, needs_namespaces
from tests.support.two_services import DATABASE, SERVICES

REQUESTS = 40
_LEARNT = 20  # of a service: the last ones, when its processes are known

pytestmark = needs_namespaces


def test_the_question_of_a_service_is_a_part_of_the_request_that_it_has(side: Side) -> None:
    trace = [sys.executable, "-m", "zmtpsniff", "trace", "--live", "-i", "lo", "-T", "json"]
    with subprocess.Popen(side.command(*trace), stdout=subprocess.PIPE, text=True) as program:
        wait_for(lambda: is_capturing(side) or program.poll() is not None)
        shop = [sys.executable, "-m", "tests.support.two_services", str(REQUESTS)]
        subprocess.run(side.command(*shop), check=True, timeout=60)
        program.send_signal(signal.SIGINT)
        said, _ = program.communicate(timeout=60)
    ways = [json.loads(line) for line in said.splitlines()]
    for port in SERVICES:
        mine = [way for way in ways if way["legs"][0]["dst"] == f"127.0.0.1:{port}"][-_LEARNT:]
        assert len(mine) == _LEARNT
        for way in mine:
            request, question, row, reply = way["legs"]
            assert question["dst"] == row["src"] == f"127.0.0.1:{DATABASE}"
            assert question["joined"] == "process"
            assert question["src"] == row["dst"]
            assert request["src"] == reply["dst"]
            assert all(leg.get("certain", True) for leg in way["legs"])
        assert len({way["legs"][1]["src"] for way in mine}) == 1  # each service has one connection to the database
