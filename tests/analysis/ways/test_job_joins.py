"""Jobs that workers pass on, and their results."""

import pytest

from tests.analysis.ways.scenes import Scene


@pytest.mark.parametrize("said", [b"tick", b"measurement 0001"])
@pytest.mark.parametrize("clients", [1, 2])
def test_jobs_that_come_to_one_socket_are_not_passed_on_from_there(clients: int, said: bytes) -> None:
    """On a host with several programs: neither what one says again, nor what two say alike."""
    scene = Scene()
    for flow in range(clients):
        scene.connect(1 + flow, f"127.0.0.1:{40_000 + flow}", "127.0.0.1:5555", types=("PUSH", "PULL"))
    for number in range(3 * clients):
        scene.say(1 + number % clients, said)
    assert [len(way.legs) for way in scene.ways()] == [1] * 3 * clients


@pytest.mark.parametrize(("hosts", "unsure"), [(["10.0.0.1", "10.0.0.2", "10.0.0.3"], 0), (["127.0.0.1"] * 3, 15)])
def test_an_id_shows_on_loopback_only_in_time_that_one_program_took_and_sent_it(hosts: list[str], unsure: int) -> None:
    """There another program may know the id as well."""
    scene = Scene()
    for flow in (1, 2):
        client, server = f"{hosts[flow - 1]}:4000{flow}", f"{hosts[flow]}:500{flow}"
        scene.connect(flow, client, server, types=("PUSH", "PULL"))
    for number in range(20):
        scene.say(1, b"job-%04d" % number)
        scene.say(2, b"done: job-%04d" % number)
    ways = scene.ways()
    assert [[leg.flow for leg in way.legs] for way in ways] == [[1, 2]] * 20
    assert [way.legs[1].certain for way in ways] == [False] * unsure + [True] * (20 - unsure)
