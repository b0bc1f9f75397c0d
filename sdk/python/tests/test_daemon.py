"""Requests to a small HTTP server in the daemon's place: the original's names, map, uploads, cancelled waits."""
from __future__ import annotations

import asyncio
import io
import json
import pickle
import re
import threading
import tracemalloc
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import forkd
import pytest

TOKEN = "secret-token-0123456789"


class Daemon(ThreadingHTTPServer):
    """Keeps sandboxes and their files. Its interpreter runs the calls of map in this process."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.files: dict[tuple[str, str], bytes] = {}
        self.alive: set[str] = set()
        self.made = self.most = 0
        self.dropped = 0
        self.lock = threading.Lock()
        self.hung = threading.Event()
        self.gone = threading.Event()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Daemon

    def log_message(self, *_: Any) -> None:
        pass

    def body(self) -> bytes:
        if self.headers.get("Transfer-Encoding") == "chunked":
            out = b""
            while size := int(self.rfile.readline(), 16):
                out += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
            return out
        return self.rfile.read(int(self.headers.get("Content-Length") or 0))

    def reply(self, status: int, value: Any, kind: str = "application/json") -> None:
        data = value if isinstance(value, bytes) else json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def handle_one(self) -> None:
        body = self.body()
        if self.headers.get("Authorization") != f"Bearer {TOKEN}":
            return self.reply(401, {"error": "the token is wrong", "code": "unauthorized"})
        d, path = self.server, self.path.partition("?")[0]
        if path == "/v1/sandboxes":
            with d.lock:
                d.made += 1
                sandbox = f"sb-{d.made}"
                d.alive.add(sandbox)
                d.most = max(d.most, len(d.alive))
            return self.reply(200, [{"id": sandbox, "index": 1, "snapshot_tag": "py"}])
        sandbox = path.split("/")[3]
        if sandbox not in d.alive:
            return self.reply(404, {"error": f"no sandbox {sandbox}", "code": "not_found"})
        if self.command == "DELETE":
            d.alive.remove(sandbox)
            return self.reply(200, {})
        if path.endswith("/files"):
            at = (sandbox, self.path)
            if self.command == "POST":
                d.files[(sandbox, re.sub("&mode=.*", "", self.path))] = body
                return self.reply(200, {})
            return self.reply(200, d.files.pop(at), "application/octet-stream")
        if path.endswith("/eval"):
            code = json.loads(body)["code"]
            (at,) = [k for k in d.files if k[0] == sandbox and k[1].endswith(code.split(".forkd-call-")[1].split("'")[0])]
            f = io.BytesIO(d.files[at])
            pickle.load(f)
            fn, item = pickle.load(f)
            d.files[at] = pickle.dumps(("value", fn(item)))
            return self.reply(200, {"result": "None", "exit_code": 0})
        if path.endswith("/exec") and json.loads(body)["args"][-1] == "hang":
            d.hung.set()
            while self.connection.recv(1):
                pass
            d.gone.set()
            self.close_connection = True
            return None
        if path.endswith("/exec"):
            return self.reply(200, {"stdout": "hi\n", "stderr": "", "exit_code": 0, "dropped_bytes": d.dropped})
        return self.reply(200, {"pong": True})

    do_GET = do_POST = do_DELETE = handle_one


@pytest.fixture
def daemon() -> Iterator[Daemon]:
    with Daemon() as d:
        threading.Thread(target=d.serve_forever, args=(0.02,), daemon=True).start()
        yield d
        d.shutdown()


def test_the_names_of_the_original(daemon: Daemon) -> None:
    with forkd.Controller(daemon.url, TOKEN) as c:
        (child,) = c.spawn_sandboxes("py", n=1, per_child_netns=True, prewarm=True)
        assert c.exec_command(child["id"], ["echo", "hi"])["stdout"] == "hi\n"
        assert c.ping_sandbox(child["id"])["pong"] is True
        c.kill_sandbox(child["id"])
        with pytest.raises(forkd.ControllerError) as e:
            c.kill_sandbox(child["id"])
        assert e.value.status == 404 and child["id"] in e.value.body["error"]
        assert isinstance(e.value.__cause__, forkd.NotFoundError)


def test_a_wrong_token(daemon: Daemon) -> None:
    with forkd.Forkd(daemon.url, "wrong-wrong-wrong-wrong") as c, pytest.raises(forkd.UnauthorizedError) as e:
        c.snapshot("py").fork()
    assert e.value.hint and "wrong-wrong" not in str(e.value) + repr(e.value)
    with pytest.raises(forkd.ControllerError) as o:
        forkd.Controller(daemon.url, "wrong-wrong-wrong-wrong").list_snapshots()
    assert o.value.status == 401


def padded(n: int) -> tuple[int, bytes]:
    return n * n, bytes(100_000)


def test_map_keeps_order_ends_children_and_its_memory_is_flat(daemon: Daemon) -> None:
    pytest.importorskip("cloudpickle")
    with forkd.Forkd(daemon.url, TOKEN) as c:
        results = forkd.map(padded, range(300), "py", client=c, concurrency=4)
        assert [next(results)[0] for _ in range(10)] == [n * n for n in range(10)]  # type: ignore[index]
        assert daemon.made <= 14
        tracemalloc.start()
        before = tracemalloc.get_traced_memory()[0]
        for n, got in enumerate(results, 10):
            assert got[0] == n * n  # type: ignore[index]
        grown = tracemalloc.get_traced_memory()[0] - before
        tracemalloc.stop()
    assert daemon.made == 300 and not daemon.alive and daemon.most <= 4
    assert grown < 5_000_000, grown


def test_map_that_is_left_early_ends_its_children(daemon: Daemon) -> None:
    with forkd.Forkd(daemon.url, TOKEN) as c:
        results = forkd.map(padded, range(1000), "py", client=c, concurrency=4)
        next(results)
        results.close()  # type: ignore[attr-defined]
    assert not daemon.alive and daemon.made <= 6


def test_map_of_an_item_that_cannot_be_sent(daemon: Daemon) -> None:
    with forkd.Forkd(daemon.url, TOKEN) as c:
        got = list(forkd.map(str, [1, threading.Lock(), 3], "py", client=c, errors="return"))
    assert got[0] == "1" and got[2] == "3" and not daemon.alive
    assert isinstance(got[1], forkd.InvalidRequestError) and "lock" in str(got[1])


def test_an_open_file_is_sent_in_pieces(daemon: Daemon) -> None:
    class File(io.BytesIO):
        def read(self, size: int | None = -1) -> bytes:
            assert size is not None and 0 < size <= 1 << 20
            return super().read(size)

    content = bytes(range(256)) * 20_000
    with forkd.Forkd(daemon.url, TOKEN) as c, c.snapshot("py").fork() as s:
        s.files.write("/ü b", File(content))
        assert s.files.read("/ü b") == content


def test_output_that_was_cut_is_an_error(daemon: Daemon) -> None:
    daemon.dropped = 7
    with forkd.Forkd(daemon.url, TOKEN) as c, c.snapshot("py").fork() as s:
        with pytest.raises(forkd.TooLargeError, match="7 bytes") as e:
            s.exec("true")
    assert "max_output" in e.value.hint


def test_a_cancelled_wait_leaves_no_connection(daemon: Daemon) -> None:
    async def main() -> None:
        async with forkd.AsyncForkd(daemon.url, TOKEN) as c, await c.snapshot("py").fork() as s:
            task = asyncio.ensure_future(s.exec("hang"))
            assert await asyncio.to_thread(daemon.hung.wait, 10)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert await asyncio.to_thread(daemon.gone.wait, 10)
            assert (await s.exec("echo hi")).stdout == "hi\n"
            assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(main())
