"""Runs kernels in sandboxes with the real Jupyter client: cells, magics, interrupts, restarts."""
import os
import time
from concurrent.futures import ThreadPoolExecutor
from queue import Empty

import nbclient
import nbformat
import pytest
from jupyter_client.blocking import BlockingKernelClient

PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="

#: Kernels that run at the same time.
MANY = 10

CELLS = [
    "import base64\nfrom IPython.display import HTML, Image, display\nprint('out')",
    f"display(Image(base64.b64decode('{PNG}')))\nHTML('<b>bold</b>')",
    "1 / 0",
]


def test_a_notebook_has_its_output(warm):
    cells = [nbformat.v4.new_code_cell(c) for c in CELLS]
    book = nbformat.v4.new_notebook(cells=cells)
    client = nbclient.NotebookClient(book, timeout=180, allow_errors=True, kernel_name=warm)
    client.execute()
    out = [c.outputs for c in book.cells]
    assert out[0][0].text == "out\n"
    assert out[1][0].data["image/png"].strip() == PNG
    assert out[1][1].data["text/html"] == "<b>bold</b>"
    assert out[2][0].ename == "ZeroDivisionError"
    assert any("1" in line and "0" in line for line in out[2][0].traceback)


def test_the_kernel_runs_in_the_sandbox(kernel, client):
    assert kernel.sandbox in {s.id for s in client.sandboxes()}
    assert kernel.run("import os, socket; print(os.path.exists('/home/user'), os.getcwd())").text == "True /home/user\n"


def test_variables_of_the_server_stay_outside(warm, start, monkeypatch):
    monkeypatch.setenv("SECRET_OF_THE_SERVER", "1")
    with start(warm) as kernel:
        assert kernel.run("import os; 'SECRET_OF_THE_SERVER' in os.environ").result == "False"


def test_all_output_arrives(kernel):
    # Each is a message of its own: more than the 1000 that ZeroMQ keeps for a slow reader.
    ran = kernel.run("k = get_ipython().kernel\nfor i in range(1500):\n"
                     "    k.send_response(k.iopub_socket, 'stream', {'name': 'stdout', 'text': f'{i} '})")
    assert ran.text.split() == [str(i) for i in range(1500)]


def test_a_large_result_arrives(kernel):
    assert len(kernel.run("print('x' * 5_000_000)").text) == 5_000_001


def test_input_reaches_the_cell(kernel):
    kernel.client.execute("print(input('name? '))", allow_stdin=True)
    assert kernel.client.get_stdin_msg(timeout=60)["content"]["prompt"] == "name? "
    kernel.client.input("answer")
    assert "answer" in texts(kernel.client)


def texts(client):
    """Returns the output until the next idle."""
    text = ""
    while True:
        m = client.get_iopub_msg(timeout=120)
        if m["msg_type"] == "stream":
            text += m["content"]["text"]
        if m["msg_type"] == "status" and m["content"]["execution_state"] == "idle":
            return text


def test_a_second_front_end_shares_the_kernel(kernel):
    kernel.run("shared = 41")
    other = BlockingKernelClient(connection_file=kernel.manager.connection_file)
    other.load_connection_file()
    other.start_channels()
    try:
        other.wait_for_ready(timeout=60)
        reply = other.execute_interactive("shared + 1", timeout=60, output_hook=lambda m: None)
        assert reply["content"]["status"] == "ok"
    finally:
        other.stop_channels()


def test_a_stranger_without_the_key_is_not_heard(kernel):
    other = BlockingKernelClient(connection_file=kernel.manager.connection_file)
    other.load_connection_file()
    other.session.key = b"guessed"
    other.start_channels()
    try:
        other.execute("stranger = 1")
        with pytest.raises(Empty):
            other.get_shell_msg(timeout=5)
    finally:
        other.stop_channels()
    assert kernel.run("'stranger' in globals()").result == "False"


def test_rollback_brings_back_variables_files_and_processes(kernel):
    assert "has no branch" in kernel.run("%rollback").text
    ran = kernel.run("import subprocess\nx = 'before'\nopen('f', 'w').write(x)\n"
                     "p = subprocess.Popen(['sleep', '9999'])\n%branch first\nx = 'after the branch'")
    assert ran.text.startswith("first: branch-"), ran
    assert kernel.run("x").result == "'after the branch'"
    kernel.run("x = 'after'; open('f', 'w').write(x); p.kill(); p.wait()")
    box = kernel.sandbox
    assert kernel.run("%rollback").text == "back at first\n"
    assert kernel.run("x + open('f').read(), p.poll()").result == "('beforebefore', None)"
    assert kernel.sandbox == box
    assert "there is no branch 'second'" in kernel.run("%rollback second").text
    assert kernel.run("%branches").text.startswith("first: ")
    assert box in kernel.run("%sandbox").text


def test_a_loop_can_branch(kernel):
    kernel.run("for i in range(2):\n    %branch step{i}")
    kernel.run("%rollback step0")
    assert kernel.run("i").result == "0"


def test_random_values_differ_after_a_rollback(kernel):
    kernel.run("import random\n%branch dice")
    first = kernel.run("random.random()").result
    kernel.run("%rollback dice")
    assert kernel.run("random.random()").result != first


def test_cells_that_wait_are_no_part_of_a_branch(kernel):
    kernel.run("log = []")
    sent = [kernel.client.execute(c) for c in ("%branch here", "log.append(1)", "log.append(2)")]
    assert statuses(kernel.client, sent) == ["ok"] * 3
    sent = [kernel.client.execute(c) for c in ("%rollback here", "log.append(3)")]
    assert statuses(kernel.client, sent) == ["ok"] * 2
    drain(kernel.client)
    assert kernel.run("log").result == "[3]"


def statuses(client, ids):
    """Returns the statuses of the replies to requests."""
    got = {}
    while set(ids) - set(got):
        m = client.get_shell_msg(timeout=180)
        got[m["parent_header"]["msg_id"]] = m["content"]["status"]
    return [got[i] for i in ids]


def drain(client):
    """Takes all output that has arrived."""
    try:
        while True:
            client.get_iopub_msg(timeout=2)
    except Empty:
        pass


def test_an_error_aborts_the_cells_that_wait(kernel):
    sent = [kernel.client.execute(c) for c in ("1 / 0", "aborted = 1", "aborted = 2")]
    assert statuses(kernel.client, sent) == ["error", "aborted", "aborted"]
    sent = [kernel.client.execute("1 / 0", stop_on_error=False), kernel.client.execute("goes_on = 1")]
    assert statuses(kernel.client, sent) == ["error", "ok"]
    drain(kernel.client)
    assert kernel.run("'aborted' in globals(), goes_on").result == "(False, 1)"


@pytest.mark.parametrize("cell", ["import time; print('now'); time.sleep(600)",
                                  "print('now'); get_ipython().system('sleep 600')"])
def test_an_interrupt_ends_a_long_cell(kernel, cell):
    sent = kernel.client.execute(cell)
    while kernel.client.get_iopub_msg(timeout=60)["msg_type"] != "stream":
        pass
    started = time.monotonic()
    kernel.manager.interrupt_kernel()
    statuses(kernel.client, [sent])
    assert time.monotonic() - started < 60
    drain(kernel.client)
    assert kernel.run("6 * 7").result == "42"


def test_a_restart_is_a_fresh_fork_with_the_same_branches(warm, start, client):
    with start(warm) as kernel:
        kernel.run("x = 'kept'\n%branch saved")
        old = kernel.sandbox
        kernel.manager.restart_kernel()
        kernel.client.wait_for_ready(timeout=120)
        assert kernel.sandbox != old
        assert old not in {s.id for s in client.sandboxes()}
        assert kernel.run("x").error.startswith("NameError")
        assert kernel.run("%rollback saved").text == "back at saved\n"
        assert kernel.run("x").result == "'kept'"


def test_a_branch_gives_a_second_kernel(warm, specs, start):
    with start(warm) as first:
        tag = first.run("x = [1]\n%branch fork").text.split()[1].rstrip(",")
        with start(specs("--snapshot", tag)) as second:
            assert second.sandbox != first.sandbox
            second.run("x.append(2)")
            first.run("x.append(3)")
            assert (first.run("x").result, second.run("x").result) == ("[1, 3]", "[1, 2]")


def test_a_snapshot_outlives_the_notebook(warm, specs, start, client):
    tag = f"jupyter-test-{os.getpid()}"
    try:
        with start(warm) as first:
            assert tag in first.run(f"data = 'loaded'\n%snapshot {tag}").text
            assert "tag" in first.run("%snapshot").text
        with start(specs("--snapshot", tag)) as second:
            assert second.run("data").result == "'loaded'"
    finally:
        client.snapshot(tag).delete()


def test_ten_kernels_at_once(warm, start):
    def one(i):
        with start(warm) as kernel:
            return kernel.run(f"x = {i}\nprint('kernel {i}')").text, kernel.run("print(x)").text, kernel.sandbox

    with ThreadPoolExecutor(MANY) as pool:
        got = list(pool.map(one, range(MANY)))
    assert [g[:2] for g in got] == [(f"kernel {i}\n", f"{i}\n") for i in range(MANY)]
    assert len({g[2] for g in got}) == MANY


def test_a_kill_ends_the_sandbox(warm, start, client):
    with start(warm) as kernel:
        box = kernel.sandbox
        kernel.client.execute("import signal, time; signal.signal(signal.SIGINT, signal.SIG_IGN); time.sleep(600)")
        kernel.client.stop_channels()
        kernel.manager.shutdown_kernel(now=True)
        assert box not in {s.id for s in client.sandboxes()}
