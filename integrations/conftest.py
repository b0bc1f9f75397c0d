"""What the suites share: the daemon of FORKD_URL, and the snapshot of FORKD_TEST_SNAPSHOT."""
import os

import pytest

import forkd

#: Seconds after which a sandbox that a broken test leaves behind ends.
TTL = 600


@pytest.fixture(scope="session")
def snapshot() -> str:
    """The tag of a snapshot with a warm Python interpreter."""
    return os.environ.get("FORKD_TEST_SNAPSHOT", "py")


@pytest.fixture(scope="session")
def client():
    """A client of the daemon."""
    with forkd.Forkd() as client:
        yield client


@pytest.fixture
def fork(client, snapshot):
    """A sandbox that ends with the test."""
    with client.snapshot(snapshot).fork(ttl=TTL) as sandbox:
        yield sandbox


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """The event loop of asynchronous tests."""
    return "asyncio"
