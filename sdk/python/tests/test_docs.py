"""Runs the examples of docs/use/python.md against a daemon with VMs: see test_live.py."""
from __future__ import annotations

import doctest
import os
from pathlib import Path

import forkd
import pytest

PAGE = Path(__file__).parents[3] / "docs" / "use" / "python.md"


@pytest.mark.skipif(not os.environ.get("FORKD_TEST_SNAPSHOT"), reason="FORKD_TEST_SNAPSHOT is not set")
def test_the_page() -> None:
    text = PAGE.read_text().replace('"py"', repr(os.environ.get("FORKD_TEST_SNAPSHOT", "")))
    text = text.replace("doc-python", f"doc-python-{os.getpid()}")
    page = doctest.DocTestParser().get_doctest(text, {}, PAGE.name, str(PAGE), 0)
    assert len(page.examples) > 30
    report: list[str] = []
    result = doctest.DocTestRunner(optionflags=doctest.REPORT_NDIFF).run(page, out=report.append)
    with forkd.Forkd() as client:
        for sandbox in client.sandboxes():
            if sandbox.snapshot_tag == f"doc-python-{os.getpid()}":
                client.sandbox(sandbox.id).kill()
    assert result.failed == 0, "".join(report)
