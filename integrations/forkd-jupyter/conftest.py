"""What the tests of kernels share."""
import contextlib
import os
import time
from dataclasses import dataclass, field

import pytest
from jupyter_client.manager import KernelManager

from forkd_jupyter import install

#: Seconds that a cell may take. The CPU may be emulated twice.
CELL = 180


@dataclass
class Ran:
    """What a cell did."""

    reply: dict
    text: str = ""
    error: str = ""
    result: str | None = None
    data: list = field(default_factory=list)


class Kernel:
    """A running kernel with a client."""

    def __init__(self, manager):
        self.manager = manager
        self.client = manager.client()
        self.client.start_channels()
        self.client.wait_for_ready(timeout=CELL)

    def run(self, code, timeout=CELL):
        """Runs a cell."""
        ran = Ran({})

        def hook(message):
            content = message["content"]
            if message["msg_type"] == "execute_result":
                ran.result = content["data"]["text/plain"]
            elif message["msg_type"] == "stream":
                ran.text += content["text"]
            elif message["msg_type"] == "error":
                ran.error = f"{content['ename']}: {content['evalue']}"
            if "data" in content:
                ran.data.append(content["data"])

        reply = self.client.execute_interactive(code, timeout=timeout, output_hook=hook, allow_stdin=False)
        ran.reply = reply["content"]
        return ran

    @property
    def sandbox(self):
        """The id of the sandbox."""
        return self.manager.provisioner._place.box.id


@pytest.fixture(scope="session")
def image():
    """The tag of a snapshot with ipykernel: `forkd snapshot create --image jupyter --tag jupyter`."""
    return os.environ.get("FORKD_TEST_JUPYTER_SNAPSHOT", "jupyter")


@pytest.fixture(scope="session")
def specs(tmp_path_factory):
    """Installs kernels where Jupyter looks: specs(ARGUMENTS...) returns the kernel's name."""
    prefix = tmp_path_factory.mktemp("prefix")

    def installed(*arguments):
        name = f"forkd-test-{len(list(prefix.rglob('kernel.json')))}"
        install([*arguments, "--name", name, "--prefix", str(prefix)])
        return name

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JUPYTER_PATH", str(prefix / "share" / "jupyter"))
        yield installed


@pytest.fixture(scope="session")
def warm(specs, image):
    """The name of a kernel whose snapshot has it running."""
    return specs("--snapshot", image, "--warm")


@contextlib.contextmanager
def started(spec):
    """Starts a kernel, and ends it."""
    manager = KernelManager(kernel_name=spec)
    manager.start_kernel()
    try:
        kernel = Kernel(manager)
        try:
            yield kernel
        finally:
            if kernel.client.channels_running:
                kernel.client.stop_channels()
    finally:
        if manager.has_kernel:
            manager.shutdown_kernel()


@pytest.fixture
def start():
    """Starts kernels: with start(SPEC) as kernel."""
    return started


@pytest.fixture(scope="module")
def kernel(warm):
    """A kernel that the tests of a module share."""
    with started(warm) as kernel:
        yield kernel


def listed(client):
    """Returns the sandboxes and the snapshots."""
    return {s.id for s in client.sandboxes()}, {s.tag for s in client.snapshots()}


@pytest.fixture(scope="module", autouse=True)
def nothing_stays(request, client):
    """Compares the sandboxes and the snapshots before and after a module."""
    if "test_wire" in request.node.name:
        yield
        return
    request.getfixturevalue("warm")
    before = listed(client)
    yield
    assert_same(client, before)


def assert_same(client, before):
    """Waits until the sandboxes and the snapshots are those of before."""
    end = time.monotonic() + 30
    while listed(client) != before and time.monotonic() < end:
        time.sleep(1)  # elapses: a sandbox ends after its kernel
    assert listed(client) == before
