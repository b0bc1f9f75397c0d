"""Runs in the guest: checks one mutant, in the warm interpreter or in a fresh process."""
from __future__ import annotations

import contextlib
import io
import os
import sys
import types

import inflection  # the module under test, imported once
import pytest

HERE = os.path.dirname(os.path.abspath(__file__))


class FirstFailure:
    """Is a pytest plugin that keeps the name of the first test that failed."""

    name = ""

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed and not self.name:
            self.name = report.nodeid.partition("::")[2]


def suite() -> str:
    """Runs the tests up to the first failure. It returns that test's name, or an empty string."""
    first = FirstFailure()
    args = ["-q", "-x", "--tb=no", "--capture=sys", "-p", "no:cacheprovider", "-p", "no:faulthandler", "-p", "no:xdist",
            "--rootdir", HERE, os.path.join(HERE, "test_inflection.py")]
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        code = pytest.main(args, plugins=[first])
    if code not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
        raise RuntimeError(f"pytest ended with {code!r}: {out.getvalue()}")
    return first.name


def check(source: str) -> str:
    """Replaces the module by a mutant and runs the tests. It returns the test that killed the mutant, or ""."""
    fresh = types.ModuleType("inflection")
    try:
        exec(compile(source, "inflection.py", "exec"), fresh.__dict__)
    except Exception as e:
        return f"import: {type(e).__name__}"
    # The tests hold the module itself, so its contents change.
    inflection.__dict__.update(fresh.__dict__)
    return suite()


if __name__ == "__main__":
    with open(sys.argv[1]) as f:
        print("killed by " + name if (name := check(f.read())) else "survived")
