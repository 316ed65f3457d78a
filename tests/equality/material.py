"""Captures to compare two versions by: those of real peers, those of the fuzz corpus, and simulated ones."""

from collections.abc import Iterator
from pathlib import Path

from tests.capture_point.families import FAMILIES, make
from tests.fuzz.octets import turns
from tests.fuzz.targets import conversation_packets
from tests.support.paths import PROJECT
from tests.world.tap import captured, save

_CORPUS = PROJECT / "tests" / "fuzz" / "corpus"
_FILES = ("pcap", "pcapng", "compressed")  # parts of the corpus whose inputs are capture files
_TURNS = ("zmtp1", "zmtp2", "zmtp3", "greetings", "halves", "websocket", "upgrades", "payloads", "deflate")
_ARRIVED = 2  # bit of a mark of `conversation_packets`


def real(folders: list[Path]) -> Iterator[Path]:
    """Captures in these folders, by name."""
    for folder in folders:
        yield from sorted(path for path in folder.glob("*.pcap*") if path.is_file())


def of_corpus(folder: Path) -> Iterator[Path]:
    """Captures made of the inputs of the fuzz corpus, written to ``folder``."""
    for name in _FILES:
        yield from sorted((_CORPUS / name).iterdir())
    for name in (*_TURNS, "everything"):
        for path in sorted((_CORPUS / name).iterdir()):
            said = list(turns(path.read_bytes()))
            if name != "everything":
                said = [(mark & 1 | _ARRIVED, octets) for mark, octets in said]
            capture = folder / f"{name}-{path.name}.pcap"
            save(capture, conversation_packets(said))
            yield capture


def simulated(folder: Path, cases: int, seed: int) -> Iterator[list[Path]]:
    """The files of ``cases`` simulated captures of each family, from ``seed`` on, written to ``folder``."""
    for name in FAMILIES:
        for number in range(seed, seed + cases):
            files = []
            for place, file in enumerate(make(name, number).files):
                files.append(folder / f"{name}-{number}-{place}.pcap")
                save(files[-1], captured(file))
            yield files
