"""Runs in the guest under pytest-xdist: each test checks one mutant in a fresh Python process."""
import os
import subprocess
import sys

import pytest

HERE = os.path.dirname(os.path.abspath(__file__))
MUTANTS = sorted(os.listdir(os.path.join(HERE, "mutants")))


@pytest.mark.parametrize("name", MUTANTS)
def test_mutant(name):
    path = os.path.join(HERE, "mutants", name)
    with open(path + ".out", "w") as out:
        try:
            subprocess.run([sys.executable, os.path.join(HERE, "guest.py"), path], stdout=out, check=True,
                           timeout=float(os.environ["LIMIT"]))
        except subprocess.TimeoutExpired:
            out.write("timeout\n")
