"""The reference path says of every capture what `read` says, in one file and cut into several."""

import random
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from conftest import CAPTURES, FIXTURES

from zmtpsniff.decode_as import parse
from zmtpsniff.spark.options import Options

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.xdist_group("spark")
pytest.importorskip("pyarrow", reason="pyarrow is not installed: pip install 'zmtpsniff[spark]'")

from spark_tables import by_series, cut, expected, packets, read_tables  # noqa: E402

from zmtpsniff.spark.ingest import ingest  # noqa: E402

SUFFIXES = (".pcap", ".pcapng", ".pcap.gz", ".strace")
RULES = tuple(map(parse, ("udp.port==5556,zmtp", "udp.port==5557,zmtp")))


def captures() -> list[Path]:
    folders = [FIXTURES, *([CAPTURES] if CAPTURES.is_dir() else [])]
    return [path for folder in folders for path in sorted(folder.iterdir()) if path.name.endswith(SUFFIXES)]


def series(folder: Path, pieces: tuple[int, ...]) -> dict[str, list[Path]]:
    """Every capture, whole and cut into so many files at random places: a folder each, with its files."""
    random_places = random.Random(6)
    found: dict[str, list[Path]] = {}
    for path in captures():
        count = len(packets(path))
        for number in pieces:
            if number > 1 and count < 2:
                continue
            target = folder / f"{path.parent.name}-{path.name}-{number}"
            if number == 1:
                target.mkdir(parents=True)
                (target / path.name).write_bytes(path.read_bytes())
                found[str(target)] = [target / path.name]
            else:
                places = random_places.sample(range(1, count), min(number, count) - 1)
                found[str(target)] = cut(path, places, target)
    return found


@pytest.mark.parametrize("exact", [True, False])
def test_tables_equal_read(spark_session: "SparkSession", tmp_path: Path, exact: bool) -> None:
    wanted = series(tmp_path / "in", (1, 2, 5, 20))
    ingest(spark_session, [str(tmp_path / "in")], str(tmp_path / "out"), Options(rules=RULES), exact=exact)
    found = by_series(read_tables(tmp_path / "out"))
    assert found.keys() == wanted.keys()
    wrong = {}
    for name, files in wanted.items():
        records = expected(files, decode_as=RULES)
        if records != found[name]:
            wrong[Path(name).name] = (
                sorted((records - found[name]).elements()),
                sorted((found[name] - records).elements()),
            )
    assert not wrong, "\n".join(
        f"{name}: missing {len(a)} {a[:2]}, too many {len(b)} {b[:2]}" for name, (a, b) in wrong.items()
    )
    assert len(wanted) > 100
