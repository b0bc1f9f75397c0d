"""The client over real sandboxes."""
from __future__ import annotations

import asyncio
import os
import socket
import sys
import threading
import time
import urllib.request
from pathlib import Path
from urllib.parse import urlsplit

import forkd
import pytest
from forkd import original


def test_values(sandbox: forkd.Sandbox) -> None:
    assert sandbox.eval("6 * 7") == "42"
    assert sandbox.eval("{'a': [1, None, 'ü']}", as_="json") == {"a": [1, None, "ü"]}
    assert sandbox.eval("x = 3\n{x: b'\\0'}", as_="pickle") == {3: b"\0"}
    with pytest.raises(forkd.EvalError, match="ZeroDivisionError") as e:
        sandbox.eval("1 / 0")
    assert "Traceback" in e.value.traceback and not isinstance(e.value, TimeoutError)


def test_programs(sandbox: forkd.Sandbox) -> None:
    got = sandbox.exec("echo out; echo err >&2; exit 3")
    assert (got.stdout, got.stderr, got.exit_code, got.ok) == ("out\n", "err\n", 3, False)
    assert sandbox.exec("cat", stdin=bytes(range(256))).stdout_bytes == bytes(range(256))
    assert sandbox.exec(["printf", "%s", "a b; $c"]).stdout == "a b; $c"
    assert sandbox.exec("kill -9 $$").exit_code == 137
    with pytest.raises(forkd.ProgramError, match="ended with 3"):
        got.check()
    with pytest.raises(forkd.ForkdError):
        sandbox.exec(["no-such-program"])


def test_large_output(sandbox: forkd.Sandbox) -> None:
    seen = 0

    def count(piece: bytes) -> None:
        nonlocal seen
        seen += len(piece)

    sandbox.exec("head -c 8000000 /dev/zero", on_stdout=count)
    assert seen == 8_000_000
    with pytest.raises(forkd.TooLargeError, match="more than 1000 bytes"):
        sandbox.exec("head -c 100000 /dev/zero", on_stderr=print, max_output=1000)


def test_a_limit_ends_the_children_too(sandbox: forkd.Sandbox) -> None:
    got = sandbox.exec("sleep 600 & sleep 601", timeout=1)
    assert got.timed_out
    got = sandbox.exec("echo begun; sleep 600 & sleep 601", timeout=5, stdin=b"")
    assert got.timed_out and got.stdout == "begun\n"
    time.sleep(0.5)
    assert sleepers(sandbox) == 0


def sleepers(sandbox: forkd.Sandbox) -> int:
    """Returns the number of sleep programs in the guest, which has no pgrep."""
    return int(sandbox.exec("cat /proc/[0-9]*/comm 2>/dev/null | grep -cx sleep").stdout)


def test_terminal(sandbox: forkd.Sandbox) -> None:
    with sandbox.spawn("sh", pty=(81, 24)) as p:
        p.write("stty size; exit 5\n")
        text = b"".join(o.data for o in p).decode()
    assert "24 81" in text and p.exit_code == 5


def test_a_closed_program_ends(sandbox: forkd.Sandbox) -> None:
    with sandbox.spawn(["sleep", "777"]):
        assert sleepers(sandbox) == 1
    for _ in range(50):
        if sleepers(sandbox) == 0:
            return
        time.sleep(0.1)
    pytest.fail("the program runs on")


def test_files(sandbox: forkd.Sandbox, tmp_path: Path) -> None:
    files = sandbox.files
    name = "/tmp/sdk/привет 世界 &?#%.bin"
    files.write(name, bytes(range(256)), mode=0o750)
    assert files.read(name) == bytes(range(256))
    assert files.stat(name).mode == 0o750
    assert [e.name for e in files.list("/tmp/sdk")] == ["привет 世界 &?#%.bin"]
    files.rename(name, "/tmp/sdk/b")
    assert files.exists("/tmp/sdk/b") and not files.exists(name)
    with pytest.raises(forkd.TooLargeError):
        files.read("/tmp/sdk/b", max_bytes=10)
    files.mkdir("/tmp/sdk/d", exist_ok=True)
    files.remove("/tmp/sdk")
    with pytest.raises(forkd.NotFoundError):
        files.read("/tmp/sdk/b")


def test_trees(sandbox: forkd.Sandbox, tmp_path: Path) -> None:
    source = tmp_path / "source"
    (source / "deep" / "er").mkdir(parents=True)
    (source / "deep" / "er" / "big").write_bytes(os.urandom(600_000))
    (source / "empty").touch()
    os.link(source / "deep" / "er" / "big", source / "twin")
    os.symlink("deep/er/big", source / "link")
    os.chmod(source / "empty", 0o640)
    sandbox.files.copy_to(source, "/tmp/tree")
    assert sandbox.exec("cd /tmp/tree && stat -c %h twin && readlink link").stdout == "2\ndeep/er/big\n"
    sandbox.files.copy_from("/tmp/tree", tmp_path / "back")
    back = tmp_path / "back"
    assert (back / "deep" / "er" / "big").read_bytes() == (source / "twin").read_bytes()
    assert (back / "twin").stat().st_nlink == 2 and os.readlink(back / "link") == "deep/er/big"
    assert (back / "empty").stat().st_mode & 0o777 == 0o640
    with pytest.raises(FileExistsError):
        sandbox.files.copy_from("/tmp/tree", back)


def test_branch_and_rollback(snapshot: forkd.Snapshot, client: forkd.Forkd) -> None:
    with snapshot.fork(ttl=600) as s:
        s.files.write("/tmp/state", "before")
        branch = s.branch(2)
        try:
            with forkd.Forks(branch.children) as children:
                assert [c.files.read_text("/tmp/state") for c in children] == ["before"] * 2
                assert not branch.errors and branch.pause_ms is not None
                s.files.write("/tmp/state", "after")
                s.rollback(branch.tag)
                assert s.files.read_text("/tmp/state") == "before"
        finally:
            s.kill()
            client.snapshot(branch.tag).delete()


def test_pause_and_life(snapshot: forkd.Snapshot) -> None:
    with snapshot.fork(ttl=600) as s:
        s.eval("kept = 7")
        assert s.pause().status == "paused"
        with pytest.raises(forkd.ConflictError) as e:
            s.exec("true")
        assert e.value.reason == "sandbox_paused" and s.id in e.value.hint
        assert s.resume().status == "running"
        assert s.eval("kept") == "7"


def test_ports(sandbox: forkd.Sandbox) -> None:
    with pytest.raises(forkd.GuestTimeoutError) as e:
        sandbox.wait_for_port(9, timeout=0.3)
    assert isinstance(e.value, TimeoutError)
    with sandbox.spawn("python3 -m http.server 8123 --bind 127.0.0.1 -d /etc".split()):
        sandbox.wait_for_port(8123, timeout=60)
        with sandbox.forward_port(8123) as (host, port):
            assert b"localhost" in urllib.request.urlopen(f"http://{host}:{port}/hosts", timeout=30).read()
        if not os.environ["FORKD_URL"].startswith("unix:"):
            name = urlsplit(sandbox.url(8123))
            request = urllib.request.Request(f"{os.environ['FORKD_URL']}/hosts", headers={"Host": name.netloc})
            assert b"localhost" in urllib.request.urlopen(request, timeout=30).read()


def test_watch_and_events(client: forkd.Forkd, snapshot: forkd.Snapshot) -> None:
    with snapshot.fork(ttl=600) as s:
        changes = s.files.watch("/tmp")
        first = next(iter(client.events(after=0, sandbox=s.id)))
        assert first.sandbox == s.id
        changes.close()  # type: ignore[attr-defined]


def test_a_snapshot_goes_through_a_file(client: forkd.Forkd, sandbox: forkd.Sandbox, tmp_path: Path) -> None:
    sandbox.eval("kept = 41")
    branch, sent = sandbox.branch(), [0]
    snapshot, file = client.snapshot(branch.tag), tmp_path / "snapshot.tar"
    try:
        snapshot.export(file, progress=sent.append)
        assert sent[-1] == file.stat().st_size and os.listdir(tmp_path) == ["snapshot.tar"]
        with pytest.raises(forkd.ConflictError):
            client.import_snapshot(file)
        made = client.import_snapshot(file, tag=branch.tag[:50] + "-back")
        with made.fork(ttl=60) as child:
            assert child.eval("kept + 1") == "42"
        made.delete()
    finally:
        snapshot.delete()
    broken = tmp_path / "broken"
    broken.write_bytes(file.read_bytes()[:100_000])
    with pytest.raises(forkd.InvalidRequestError, match="no file of a snapshot"):
        client.import_snapshot(broken)


def test_the_originals_sandbox(client: forkd.Forkd, snapshot: forkd.Snapshot) -> None:
    with original.Sandbox(snapshot.tag, timeout=60) as s:
        assert s.ping()["pong"] is True
        assert s.eval("6 * 7") == "42"
        assert s.commands.run("echo out; echo err >&2; exit 3") == original.CommandResult("out\n", "err\n", 3)
        assert s.commands.run(["echo", "a b"]).stdout == "a b\n"
        assert s.commands.run(["/nowhere"]).exit_code != 0
        with pytest.raises(RuntimeError, match="ZeroDivisionError"):
            s.eval("1 / 0")
        same = original.Sandbox(target=s.target, spawn=False)
        assert same.eval("2") == "2"
        same.kill()
        assert s.eval("3") == "3"
    with pytest.raises(forkd.NotFoundError):
        client.sandbox(s.target).info()


def test_map(client: forkd.Forkd, snapshot: forkd.Snapshot) -> None:
    def half(x: int) -> float:
        if x == 3:
            raise ValueError("three")
        return x / 2

    with snapshot.fork(ttl=600) as s:
        version = s.eval("import sys; list(sys.version_info[:2])", as_="json")
    if version != list(sys.version_info[:2]):
        with pytest.raises(forkd.InvalidRequestError, match="cannot be sent between them"):
            list(forkd.map(half, [1], snapshot.tag, client=client))
        return
    got = list(forkd.map(half, [1, 2, 3, 4], snapshot.tag, client=client, concurrency=3, errors="return"))
    assert got[:2] == [0.5, 1.0] and got[3] == 2.0
    assert isinstance(got[2], forkd.EvalError) and "ValueError: three" in got[2].traceback
    with pytest.raises(forkd.EvalError):
        list(forkd.map(half, [3], snapshot.tag, client=client))
    assert list(forkd.map(len, [b"x" * 300_000], snapshot.tag, client=client)) == [300_000]


def test_ended_meanwhile(snapshot: forkd.Snapshot) -> None:
    s = snapshot.fork(ttl=600)
    process = s.spawn("sleep 60")
    s.kill()
    with pytest.raises((forkd.GuestGoneError, forkd.ConnectionBrokenError, forkd.NotFoundError)):
        process.wait()
    with pytest.raises(forkd.NotFoundError) as e:
        s.exec("true")
    assert e.value.hint


def test_a_link_that_is_cut_while_a_program_runs(client: forkd.Forkd, sandbox: forkd.Sandbox) -> None:
    address = client._connection.address
    if not address.url.startswith("http://"):
        pytest.skip("the proxy needs a daemon at http://")
    host, port = address.url.removeprefix("http://").split(":")
    links: list[socket.socket] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:
        def forward(source: socket.socket, target: socket.socket) -> None:
            try:
                while data := source.recv(65536):
                    target.sendall(data)
            except OSError:
                pass

        def serve() -> None:
            near, _ = listener.accept()
            far = socket.create_connection((host, int(port)))
            links.extend((near, far))
            threading.Thread(target=forward, args=(near, far), daemon=True).start()
            threading.Thread(target=forward, args=(far, near), daemon=True).start()

        threading.Thread(target=serve, daemon=True).start()
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        with forkd.Forkd(url, address.token) as c:
            process = c.sandbox(sandbox.id).spawn("echo begun; sleep 778")
            output = iter(process)
            assert next(output).data == b"begun\n"
            for link in links:
                link.shutdown(socket.SHUT_RDWR)
            with pytest.raises(forkd.ConnectionBrokenError):
                next(output)
    assert sandbox.exec("echo alive").stdout == "alive\n"
    for _ in range(50):
        if sleepers(sandbox) == 0:
            return
        time.sleep(0.2)
    pytest.fail("the program runs on without its link")


def test_a_wrong_token(client: forkd.Forkd) -> None:
    if client._connection.address.url.startswith("unix://"):
        pytest.skip("a Unix socket needs no token")
    with forkd.Forkd(client._connection.address.url, "wrong-wrong-wrong-wrong") as c:
        assert c.health()
        with pytest.raises(forkd.UnauthorizedError) as e:
            c.sandboxes()
    assert e.value.hint and "wrong-wrong" not in str(e.value)


def test_asynchronous() -> None:
    async def main() -> None:
        async with forkd.AsyncForkd() as c:
            async with await c.snapshot(os.environ["FORKD_TEST_SNAPSHOT"]).fork(2, ttl=600) as forks:
                values = await asyncio.gather(*(f.eval("1 + 1") for f in forks))
                assert values == ["2", "2"]
                with pytest.raises(asyncio.TimeoutError):
                    await asyncio.wait_for(forks[0].exec("sleep 30"), 0.5)
                task = asyncio.ensure_future(forks[0].exec("sleep 30", on_stdout=print))
                await asyncio.sleep(0.5)
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
                assert (await forks[0].exec("echo alive")).stdout == "alive\n"
            assert len(asyncio.all_tasks()) == 1

    asyncio.run(main())
