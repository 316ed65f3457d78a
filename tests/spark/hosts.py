"""Hosts that talk to each other and capture it, each by a clock of its own: made of fixtures, so that all is known.

A fixture is the conversation at its server. Packets of the client were on the network for some time before that, those
of the server reach the client some time later, and where the server would have answered to something that had not come,
all that follows is put off.
"""

from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from tests.support.paths import FIXTURES
from tests.world.tap import load, save_pcapng
from zmtpsniff.capture.block import Packet

BEGIN_NS = 1_790_000_000_000_000_000
_IP, _TCP = 14, 34  # where these headers begin behind Ethernet's

Place = tuple[bytes, int]
"""An address of four octets, and a port."""


@dataclass
class Host:
    """A host, its clock, and what it captured."""

    name: str
    address: bytes
    ahead_ns: int = 0
    drift_ppm: float = 0.0
    captured: list[Packet] = field(default_factory=list)

    def clock(self, time_ns: int) -> int:
        """The time that its clock shows at a time."""
        return time_ns + self.ahead_ns + round((time_ns - BEGIN_NS) * self.drift_ppm / 1e6)

    def write(self, folder: Path) -> Path:
        """Write its capture into a folder of its own."""
        target = folder / self.name / "0.pcapng"
        target.parent.mkdir(parents=True)
        return save_pcapng(target, sorted(self.captured, key=lambda packet: packet[0]))


def talk(
    fixture: str,
    client: Host,
    server: Host,
    start_ns: int,
    there_ns: int,
    back_ns: int,
    random: Random,
    *,
    port: int = 5555,
    client_at_server: Place | None = None,
    server_at_client: Place | None = None,
    service_ns: int = 0,
) -> None:
    """Have a client say to a server what it says in a fixture, from ``start_ns`` on, and both capture it.

    Packets take ``there_ns`` and ``back_ns``, the server ``service_ns`` longer to say anything. With NAT the server has
    the client as ``client_at_server``, the client the server as ``server_at_client``.
    """
    found = load(FIXTURES / fixture)
    first = found[0]
    asked_port = int.from_bytes(first[2][_TCP + 2 : _TCP + 4], "big")
    mine: Place = (client.address, random.randrange(1 << 15, 60_000))
    shown: Place = (server.address, port)
    shifts = {True: random.randrange(1 << 32), False: random.randrange(1 << 32)}  # of numbers, by who sends
    put_off_ns, last_by_client = 0, True
    for packet in found:
        time_ns, link, octets, size, comment = packet
        by_client = int.from_bytes(octets[_TCP + 2 : _TCP + 4], "big") == asked_port
        if by_client != last_by_client:
            put_off_ns += there_ns + back_ns if by_client else service_ns
        last_by_client = by_client
        at_server = start_ns + time_ns - first[0] + put_off_ns
        at_client = at_server - there_ns if by_client else at_server + back_ns
        for host, when, ends in (
            (client, at_client, (mine, server_at_client or shown)),
            (server, at_server, (client_at_server or mine, shown)),
        ):
            changed = _changed(octets, ends if by_client else ends[::-1], shifts[by_client], shifts[not by_client])
            host.captured.append((host.clock(when), link, changed, size, comment))


def _changed(octets: bytes, ends: tuple[Place, Place], shift: int, shift_of_other: int) -> bytes:
    """A packet of TCP between other ends, with other initial sequence numbers."""
    out = bytearray(octets)
    for at, (address, port) in enumerate(ends):
        out[_IP + 12 + 4 * at : _IP + 16 + 4 * at] = address
        out[_TCP + 2 * at : _TCP + 2 + 2 * at] = port.to_bytes(2, "big")
    for at, added in ((_TCP + 4, shift), (_TCP + 8, shift_of_other)):
        number = int.from_bytes(out[at : at + 4], "big")
        out[at : at + 4] = ((number + added) % (1 << 32)).to_bytes(4, "big")
    return bytes(out)
