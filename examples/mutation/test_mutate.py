"""Runs the example with a few known mutants. FORKD_TEST_SNAPSHOT names a snapshot with a warm Python."""
from __future__ import annotations

import os
import sys
from pathlib import Path

import forkd
import pytest

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

from mutants import Mutant, mutants  # noqa: E402
from mutate import branched, test_in_forks, warm_sandbox  # noqa: E402
from packages import fetch  # noqa: E402

test_in_forks.__test__ = False  # type: ignore[attr-defined]
PACKAGES = HERE / ".." / ".." / ".cache" / "mutation"
SNAPSHOT = os.environ.get("FORKD_TEST_SNAPSHOT")

# Line, change and expected end.
KNOWN = [
    (37, r"'\\1i' -> '\\1iXX'", "killed"),
    (226, "number % 100 -> number * 100", "killed"),
    # Equivalent: the rule "$" matches every word, so this line is never reached.
    (306, "return word -> return None", "survived"),
]


def named(all_mutants: list[Mutant], line: int, change: str) -> Mutant:
    return next(m for m in all_mutants if m.line == line and str(m).endswith(change))


@pytest.mark.skipif(not SNAPSHOT, reason="FORKD_TEST_SNAPSHOT is not set")
def test_known_mutants() -> None:
    assert SNAPSHOT
    packages = fetch(PACKAGES)
    source = (packages / "inflection.py").read_text()
    everything = mutants(source)
    tests = [named(everything, line, change) for line, change, _ in KNOWN]
    endless = Mutant(1, "boolean", "", "", "while True: pass")
    with forkd.Forkd() as client:
        with warm_sandbox(client, SNAPSHOT, packages) as sandbox, branched(sandbox, client) as snapshot:
            results = test_in_forks(snapshot, tests, 2, 120)
            assert test_in_forks(snapshot, [endless], 1, 3) == ["timeout"]
        assert ["survived" if r == "survived" else "killed" for r in results] == [end for _, _, end in KNOWN], results
        assert "timeout" not in results
        assert not [s.id for s in client.sandboxes() if s.snapshot_tag == snapshot.tag or s.id == sandbox.id]
        assert snapshot.tag not in [s.tag for s in client.snapshots()]
