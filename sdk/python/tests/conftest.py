"""Fixtures. Tests with a sandbox need a daemon: FORKD_URL, FORKD_TOKEN, FORKD_TEST_SNAPSHOT."""
from __future__ import annotations

import os
from collections.abc import Iterator

import forkd
import pytest


@pytest.fixture(scope="session")
def client() -> Iterator[forkd.Forkd]:
    if "FORKD_TEST_SNAPSHOT" not in os.environ:
        pytest.skip("FORKD_TEST_SNAPSHOT names no snapshot")
    with forkd.Forkd() as c:
        yield c


@pytest.fixture(scope="session")
def snapshot(client: forkd.Forkd) -> forkd.Snapshot:
    return client.snapshot(os.environ["FORKD_TEST_SNAPSHOT"])


@pytest.fixture(scope="module")
def sandbox(snapshot: forkd.Snapshot) -> Iterator[forkd.Sandbox]:
    with snapshot.fork(ttl=600) as s:
        yield s
