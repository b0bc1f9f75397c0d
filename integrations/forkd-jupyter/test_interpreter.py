"""Runs the kernel for warm interpreters with the real Jupyter client."""
import os
import time
from queue import Empty

import pytest
from jupyter_client.kernelspec import KernelSpecManager
from jupyter_client.manager import KernelManager

from forkd_jupyter import install
from forkd_jupyter.install import SNAPSHOT


@pytest.fixture(scope="module")
def manager(tmp_path_factory, snapshot):
    prefix = tmp_path_factory.mktemp("prefix")
    install(["--interpreter", "--snapshot", snapshot, "--name", "forkd-test", "--prefix", str(prefix)])
    specs = KernelSpecManager(kernel_dirs=[str(prefix / "share" / "jupyter" / "kernels")])
    manager = KernelManager(kernel_name="forkd-test", kernel_spec_manager=specs)
    manager.start_kernel(env={**os.environ, SNAPSHOT: snapshot})
    yield manager
    manager.shutdown_kernel()


@pytest.fixture(scope="module")
def kernel(manager):
    client = manager.client()
    client.start_channels()
    client.wait_for_ready(timeout=60)
    yield client
    client.stop_channels()


def run(kernel, code, timeout=120):
    """Runs a cell. Returns its reply, its result, and its output."""
    result, output = None, ""

    def hook(message):
        nonlocal result, output
        content = message["content"]
        if message["msg_type"] == "execute_result":
            result = content["data"]["text/plain"]
        elif message["msg_type"] == "stream":
            output += content["text"]

    reply = kernel.execute_interactive(code, timeout=timeout, output_hook=hook, allow_stdin=False)
    return reply["content"], result, output


def test_cells_share_variables(kernel):
    assert run(kernel, "x = 20\nprint('out')")[2] == "out\n"
    assert run(kernel, "x + 1")[1] == "21"
    assert run(kernel, "import os; os.uname().sysname")[1] == "'Linux'"


def test_errors_have_the_traceback(kernel):
    reply = run(kernel, "1 / 0")[0]
    assert (reply["status"], reply["ename"]) == ("error", "ZeroDivisionError")
    assert any("division" in line for line in reply["traceback"])


def test_branch_and_rollback(kernel):
    assert "no branch" in run(kernel, "%rollback")[0]["evalue"]
    out = run(kernel, "x = 'before'\nopen('/tmp/f', 'w').write('before')\n%branch first")[2]
    assert out.startswith("first: branch-"), out
    run(kernel, "x = 'after'; open('/tmp/f', 'w').write('after')")
    assert run(kernel, "%rollback")[2] == "back at first\n"
    assert run(kernel, "x + open('/tmp/f').read()")[1] == "'beforebefore'"
    assert "there is no branch 'second'" in run(kernel, "%rollback second")[0]["evalue"]
    assert run(kernel, "%branches")[2].startswith("first: ")


def test_an_interrupt_ends_the_cell(kernel, manager):
    kernel.execute("import time; time.sleep(600)")
    time.sleep(3)
    manager.interrupt_kernel()
    while True:
        reply = kernel.get_shell_msg(timeout=60)["content"]
        if reply["status"] == "error":
            break
    assert reply["ename"] == "KeyboardInterrupt"
    drain(kernel)
    assert run(kernel, "x")[1] == "'before'"


def drain(kernel):
    try:
        while True:
            kernel.get_iopub_msg(timeout=1)
    except Empty:
        pass


def test_a_restart_is_a_fresh_fork(kernel, manager, client):
    first = run(kernel, "%sandbox")[2].split()[0]
    tag = run(kernel, "%branches")[2].split()[1]
    manager.restart_kernel()
    kernel.wait_for_ready(timeout=60)
    assert run(kernel, "x")[0]["ename"] == "NameError"
    assert run(kernel, "%sandbox")[2].split()[0] != first
    ids = [s.id for s in client.sandboxes()]
    assert first not in ids
    assert tag not in [s.tag for s in client.snapshots()]
