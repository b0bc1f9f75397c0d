"""A sandbox for a test: each test gets its own fork of a warm snapshot.

    @pytest.mark.forkd(snapshot="postgres-fixture")
    def test_insert(sandbox):
        sandbox.exec("psql -c 'insert into t values (1)'", check=True)

A fork starts from the same instant for each test, so the fixture needs no clean-up, and pytest-xdist's workers do
not disturb each other. Without the marker, --forkd-snapshot or the ini option forkd_snapshot names the snapshot.
"""
from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest

import forkd

_KEPT = pytest.StashKey[bool]()


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("forkd")
    group.addoption("--forkd-snapshot", default=None, help="snapshot of tests whose marker names none")
    group.addoption("--forkd-keep", action="store_true", help="keep the sandboxes of tests that fail")
    parser.addini("forkd_snapshot", "snapshot of tests whose marker names none", default="")
    parser.addini("forkd_ttl", "seconds after which a sandbox that a killed run leaves behind ends", default="3600")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "forkd(snapshot=None, **options): the snapshot that the fixture sandbox forks, "
                                       "and options of Snapshot.fork such as network and memory_limit_mib")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Any:
    report = yield
    if report.when == "call" and report.failed:
        item.stash[_KEPT] = bool(item.config.getoption("--forkd-keep"))
    return report


def _options(request: pytest.FixtureRequest) -> tuple[str, dict[str, Any]]:
    """Returns the snapshot and the options of a test: its nearest marker first."""
    marker = request.node.get_closest_marker("forkd")
    options = dict(marker.kwargs) if marker else {}
    tag = options.pop("snapshot", None) or (marker.args[0] if marker and marker.args else None)
    tag = tag or request.config.getoption("--forkd-snapshot") or request.config.getini("forkd_snapshot")
    tag = tag or os.environ.get("FORKD_SNAPSHOT")
    if not tag:
        raise pytest.UsageError(f"{request.node.nodeid}: no snapshot is named: use @pytest.mark.forkd(snapshot=...), "
                                "--forkd-snapshot or the ini option forkd_snapshot")
    options.setdefault("ttl", float(request.config.getini("forkd_ttl")))
    return tag, options


@pytest.fixture(scope="session")
def forkd_client() -> Iterator[forkd.Forkd]:
    """The client of the daemon, which is found as the command line finds it."""
    with forkd.Forkd() as client:
        yield client


@pytest.fixture
def sandbox(request: pytest.FixtureRequest, forkd_client: forkd.Forkd) -> Iterator[forkd.Sandbox]:
    """A fork for this test. It ends with the test, unless the test failed and --forkd-keep is set."""
    tag, options = _options(request)
    made = forkd_client.snapshot(tag).fork(**options)
    try:
        yield made
    finally:
        if request.node.stash.get(_KEPT, False):
            request.node.add_report_section("teardown", "forkd", f"kept: forkd exec -it {made.id} sh")
        else:
            try:
                made.kill()
            except forkd.NotFoundError:
                pass
