"""Runs kernels while their sandbox, their daemon or their snapshot fails."""
import contextlib
import os
import socket
import subprocess
import sys
import threading
import time
from queue import Empty
from urllib.parse import urlsplit

import pytest
from jupyter_client.manager import KernelManager

import forkd
from forkd_jupyter import branches, relay


class Link:
    """A TCP proxy in front of the daemon, which can be cut."""

    def __init__(self, url):
        parts = urlsplit(url)
        self._to = parts.hostname, parts.port
        self._open, self._cut = set(), False
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            near, _ = self._listener.accept()
            if self._cut:
                near.close()
                continue
            far = socket.create_connection(self._to)
            self._open |= {near, far}
            for pair in ((near, far), (far, near)):
                threading.Thread(target=self._copy, args=pair, daemon=True).start()

    @staticmethod
    def _copy(source, target):
        try:
            while data := source.recv(65536):
                target.sendall(data)
            target.shutdown(socket.SHUT_WR)
        except OSError:
            pass

    def cut(self):
        """Ends all connections, and refuses new ones."""
        self._cut = True
        for s in list(self._open):
            try:
                s.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
        self._open.clear()

    def mend(self):
        """Lets connections through again."""
        self._cut = False


@pytest.fixture
def link(client, monkeypatch):
    """A link to the daemon that kernels of the test use."""
    if not client.url.startswith("http://"):
        pytest.fail("set FORKD_URL to the http:// URL of the daemon: this test cuts the connection")
    link = Link(client.url)
    monkeypatch.setenv("FORKD_TOKEN", os.environ.get("FORKD_TOKEN") or client._connection.address.token)
    monkeypatch.setenv("FORKD_URL", link.url)
    return link


def test_a_daemon_that_is_gone_is_an_error_of_the_cell(warm, start, link, monkeypatch, client):
    monkeypatch.setattr(relay, "PATIENCE", 3)
    with start(warm) as kernel:
        box = kernel.sandbox
        sent = kernel.client.execute("import time; time.sleep(600)")
        while kernel.client.get_iopub_msg(timeout=60)["msg_type"] != "execute_input":
            pass
        link.cut()
        reply = reply_to(kernel.client, sent)
        assert (reply["ename"], kernel.manager.is_alive()) == ("DaemonUnreachable", False)
        assert "daemon" in reply["evalue"]
        link.mend()
    # The kernel's end has ended the sandbox, if the link was mended by then.
    with contextlib.suppress(forkd.NotFoundError):
        client.sandbox(box).kill()


def test_a_connection_that_comes_back_loses_no_variables(warm, start, link):
    with start(warm) as kernel:
        kernel.run("x = 1")
        sent = kernel.client.execute("import time; time.sleep(4); x = 2")
        while kernel.client.get_iopub_msg(timeout=60)["msg_type"] != "execute_input":
            pass
        link.cut()
        time.sleep(6)  # elapses: the cell ends without a connection
        link.mend()
        assert reply_to(kernel.client, sent)["ename"] == "ConnectionLost"
        drain(kernel.client)
        assert kernel.run("x").result == "2"
        assert kernel.run("print('out')").text == "out\n"


def reply_to(client, sent):
    """Returns the content of the reply to a request."""
    while True:
        m = client.get_shell_msg(timeout=120)
        if m["parent_header"]["msg_id"] == sent:
            return m["content"]


def drain(client):
    """Takes all output that has arrived."""
    try:
        while True:
            client.get_iopub_msg(timeout=2)
    except Empty:
        pass


def test_the_end_of_the_sandbox_is_the_end_of_the_kernel(warm, start, client):
    with start(warm) as kernel:
        client.sandbox(kernel.sandbox).kill()
        wait_for_death(kernel)


def wait_for_death(kernel):
    """Waits until Jupyter sees that the kernel has ended."""
    end = time.monotonic() + 90
    while kernel.manager.is_alive():
        assert time.monotonic() < end
        time.sleep(0.5)  # elapses: the relay asks the daemon


def test_a_crash_is_reported_and_a_branch_survives_it(warm, start):
    with start(warm) as kernel:
        kernel.run("x = 'kept'\n%branch")
        reply = kernel.run("import os; os._exit(1)").reply
        assert reply["ename"] == "KernelDied"
        wait_for_death(kernel)
        kernel.manager.restart_kernel()
        kernel.client.wait_for_ready(timeout=120)
        kernel.run("%rollback")
        assert kernel.run("x").result == "'kept'"


def test_a_paused_sandbox_continues_with_the_next_cell(warm, start, client):
    with start(warm) as kernel:
        kernel.run("x = 'kept'")
        client.sandbox(kernel.sandbox).pause()
        time.sleep(2)  # elapses: the relay sees the pause
        assert kernel.manager.is_alive()
        assert kernel.run("x").result == "'kept'"


def test_a_notebook_without_use_lets_its_sandbox_pause(specs, image, start, client):
    with start(specs("--snapshot", f"{image}-kernel", "--idle", "3", "--option", "idle=3")) as kernel:
        kernel.run("x = 'kept'")
        client.sandbox(kernel.sandbox).wait_for_status("paused", timeout=120)
        assert kernel.manager.is_alive()
        assert kernel.run("x").result == "'kept'"


def test_a_snapshot_without_ipykernel_says_what_to_do(specs, snapshot):
    manager = KernelManager(kernel_name=specs("--snapshot", snapshot))
    with pytest.raises(RuntimeError, match="has no ipykernel.*--interpreter"):
        manager.start_kernel()
    assert not manager.has_kernel


def test_a_missing_snapshot_is_named(specs):
    with pytest.raises(RuntimeError, match="no-such-snapshot"):
        KernelManager(kernel_name=specs("--snapshot", "no-such-snapshot")).start_kernel()


def test_a_fresh_kernel_starts_in_a_snapshot_without_one(specs, image, start):
    with start(specs("--snapshot", image)) as kernel:
        assert kernel.run("print('out')").text == "out\n"


def test_a_cell_cannot_make_endless_snapshots(warm, start, monkeypatch):
    monkeypatch.setattr(branches, "MAX_SNAPSHOTS", 2)
    with start(warm) as kernel:
        ran = kernel.run("for i in range(9):\n    %branch same")
        assert (ran.reply["status"], ran.text.count("same: branch-")) == ("error", 2)
        assert "limit" in ran.text
        assert kernel.run("i").result == "2"


def test_programs_in_the_guest_cannot_ask(warm, start, client):
    forged = ("import threading, time\nk = get_ipython().kernel\n"
              "threading.Timer(2, lambda: k.session.send(k.iopub_socket, 'forkd_request',"
              " {'id': 'x', 'do': 'snapshot', 'name': 'forged'}, parent={})).start()")
    with start(warm) as kernel:
        kernel.run(forged)
        time.sleep(4)  # elapses: the forged request is sent
        assert "forged" not in {s.tag for s in client.snapshots()}
        assert kernel.run("1 + 1").result == "2"


SERVER = """
import os, sys
from jupyter_client.manager import KernelManager
m = KernelManager(kernel_name=sys.argv[1])
m.start_kernel()
print(m.provisioner._place.box.id, flush=True)
if sys.argv[2] == "killed":
    os.kill(os.getpid(), 9)
"""


def serve(kernel, end):
    """Runs a server that starts a kernel and ends. Returns the sandbox."""
    got = subprocess.run([sys.executable, "-c", SERVER, kernel, end], capture_output=True, text=True, timeout=300)
    assert got.stdout.strip(), got.stderr
    return got.stdout.strip()


def test_a_server_that_ends_takes_its_sandboxes_along(warm, client):
    box = serve(warm, "ends")
    assert box not in {s.id for s in client.sandboxes()}


def test_a_killed_server_leaves_its_sandbox_paused(specs, image, client):
    box = client.sandbox(serve(specs("--snapshot", f"{image}-kernel", "--option", "idle=3"), "killed"))
    try:
        box.wait_for_status("paused", timeout=120)
    finally:
        box.kill()
