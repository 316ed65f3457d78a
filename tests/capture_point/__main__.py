"""Run cases for as long as one likes: ``python -m tests.capture_point``, from the top of the repository.

A line for each family says how many cases failed, and which was the first; ``--case FAMILY:SEED`` runs one of them
again and says what is wrong, ``--save FILE.pcap`` keeps its packets.
"""

import argparse
import time
from collections import Counter
from pathlib import Path

from tests.world.tap import captured, save

from .families import FAMILIES, make
from .oracle import judge


def main() -> int:
    """Do what the options say; returns the exit status."""
    options = _options()
    if options.case:
        return _one(options.case, options.save)
    names = options.family or list(FAMILIES)
    failed = False
    for name in names:
        failed = not _family(name, options) or failed
    return failed


def _one(case_name: str, save_as: Path | None) -> int:
    family, seed = case_name.split(":")
    case = make(family, int(seed))
    for session in case.sessions:
        print(f"{session.talk.name}, {session.address(0)} to {session.address(1)}")
    print(case.how, f"batches of {case.batch}", *["live"] * case.live, sep=", ")
    if save_as is not None:
        for number, file in enumerate(case.files):
            path = save_as if len(case.files) == 1 else save_as.with_stem(f"{save_as.stem}-{number}")
            save(path, captured(file))
            print(path)
    verdict = judge(case)
    for fault in verdict.faults:
        print(f"  {fault}")
    print(dict(verdict.count))
    return bool(verdict.faults)


def _family(name: str, options: argparse.Namespace) -> bool:
    seconds = options.seconds / len(options.family or FAMILIES)
    start = time.monotonic()
    seed, cases, failures = options.seed, 0, []
    count: Counter[str] = Counter()
    kinds: Counter[str] = Counter()
    while time.monotonic() - start < seconds and (options.cases is None or cases < options.cases):
        verdict = judge(make(name, seed))
        cases += 1
        count += verdict.count
        if verdict.faults:
            failures.append((seed, verdict.faults))
            kinds.update({_kind(fault) for fault in verdict.faults})
        seed += 1
    first = f", first --case {name}:{failures[0][0]}: {failures[0][1][0]}" if failures else ""
    said = ", ".join(f"{number} {what}" for what, number in sorted(count.items()))
    print(f"{name:10} {cases:6} cases, {len(failures):5} fail{first}")
    if options.verbose:
        print(f"           {said}")
        for kind, number in kinds.most_common(12):
            example = next(seed for seed, faults in failures if any(_kind(fault) == kind for fault in faults))
            print(f"           {number:6} {kind} ({name}:{example})")
    return not failures


def _kind(fault: str) -> str:
    """A fault without its numbers."""
    return " ".join("N" if word.strip(",:-.").isdigit() else word for word in fault.split(": ")[0].split())[:100]


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.capture_point", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60, help="for all families together (60)")
    parser.add_argument("--cases", type=int, help="so many of each family at most")
    parser.add_argument("--seed", type=int, default=0, help="the first seed; each case has the next one (0)")
    parser.add_argument("--family", action="append", choices=list(FAMILIES), help="only this one; can be repeated")
    parser.add_argument("--case", metavar="FAMILY:SEED", help="one case, and all that is wrong with it")
    parser.add_argument("--save", metavar="FILE.pcap", type=Path, help="with --case: write its packets, too")
    parser.add_argument("-v", "--verbose", action="store_true", help="what is wrong how often")
    return parser.parse_args()


if __name__ == "__main__":
    raise SystemExit(main())
