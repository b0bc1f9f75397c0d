"""Tests the tests of a package: runs them against mutants of its code, each in a fork of one warm sandbox.

    python mutate.py --snapshot py --every 10 --compare
"""
from __future__ import annotations

import argparse
import os
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import compare
import forkd
from mutants import Mutant, mutants
from packages import fetch

HERE = Path(__file__).parent
WORK = "/tmp/mutation"  # in the guest
WARM = f"""
import sys
sys.dont_write_bytecode = True
sys.path.insert(0, {WORK!r})
import guest
failed = guest.suite()  # imports and initialises all that a run of the tests needs
failed
"""


@contextmanager
def warm_sandbox(client: forkd.Forkd, snapshot: str, packages: Path) -> Iterator[forkd.Sandbox]:
    """Yields a sandbox whose interpreter has imported pytest and the package, and has run the tests once."""
    with tempfile.TemporaryDirectory() as folder, client.snapshot(snapshot).fork(ttl=3600) as sandbox:
        shutil.copytree(packages, folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copy(HERE / "guest.py", folder)
        shutil.copy(HERE / "cold_test.py", folder)
        sandbox.files.copy_to(folder, WORK)
        if (failed := sandbox.eval(WARM)) != "''":
            raise SystemExit(f"the tests of the package itself fail in the guest: {failed}")
        yield sandbox


@contextmanager
def branched(sandbox: forkd.Sandbox, client: forkd.Forkd) -> Iterator[forkd.Snapshot]:
    """Yields a snapshot of the sandbox at this instant, and deletes it at the end."""
    snapshot = client.snapshot(sandbox.branch(wait=True).tag)
    try:
        yield snapshot
    finally:
        snapshot.delete()


def test_in_forks(snapshot: forkd.Snapshot, tests: list[Mutant], parallel: int, limit: float) -> list[str]:
    """Returns for each mutant "survived", "timeout" or the name of the test that killed it."""
    def one(mutant: Mutant) -> str:
        with snapshot.fork(ttl=limit + 60) as child:
            try:
                return str(child.eval(f"guest.check({mutant.source!r})", as_="json", timeout=limit)) or "survived"
            except forkd.GuestTimeoutError:
                return "timeout"  # the end of the block ends the fork, with whatever still runs in it

    with ThreadPoolExecutor(parallel) as pool:
        return list(pool.map(one, tests))


def report(tests: list[Mutant], results: list[str]) -> None:
    """Prints the mutants with their ends, and the mutation score."""
    for mutant, result in zip(tests, results):
        print(f"{'SURVIVED' if result == 'survived' else 'killed':8} {mutant}"
              + (f"   [{result[:50]}]" if result != "survived" else ""))
    survived = results.count("survived")
    kinds = Counter(m.kind for m in tests)
    alive = Counter(m.kind for m, result in zip(tests, results) if result == "survived")
    print(f"\n{'kind':12} mutants  survived")
    for kind, n in sorted(kinds.items()):
        print(f"{kind:12} {n:7}  {alive[kind]:8}")
    print(f"score: {len(tests) - survived} of {len(tests)} killed, {100 * (1 - survived / len(tests)):.0f} %"
          f" ({results.count('timeout')} by the time limit)")


def main() -> None:
    """Parses the arguments and runs the example."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--snapshot", default="py", help="a snapshot with a warm Python 3.11 or later (py)")
    parser.add_argument("--every", type=int, default=1, metavar="N", help="test every Nth mutant only (1)")
    parser.add_argument("--parallel", type=int, default=2, help="forks, processes or containers at a time (2)")
    parser.add_argument("--timeout", type=float, default=60, help="limit for one mutant in seconds (60)")
    parser.add_argument("--compare", action="store_true", help="also time pytest-xdist and runc in a guest")
    parser.add_argument("--packages", type=Path, help="folder for the downloaded packages",
                        default=Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "forkd-mutation")
    args = parser.parse_args()

    packages = fetch(args.packages)
    tests = mutants((packages / "inflection.py").read_text())[::args.every]
    with forkd.Forkd() as client:
        start = time.monotonic()
        with warm_sandbox(client, args.snapshot, packages) as sandbox, branched(sandbox, client) as snapshot:
            warm = time.monotonic() - start
            start = time.monotonic()
            results = test_in_forks(snapshot, tests, args.parallel, args.timeout)
            took = time.monotonic() - start
            report(tests, results)
            print(f"\nwarm parent made in {warm:.1f} s; {args.parallel} at a time")
            rows = [("forks", took, results)]
            if args.compare:
                rows += compare.cold(sandbox, tests, args.parallel, args.timeout, WORK)
            compare.table(rows)


if __name__ == "__main__":
    main()
