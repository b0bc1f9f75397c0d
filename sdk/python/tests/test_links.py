"""Broken links, refusals and odd answers. A small server stands for the daemon; no VM is needed."""
from __future__ import annotations

import io
import json
import os
import socket
import tarfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import forkd
import pytest
from forkd import models
from forkd._decode import decode
from forkd._layout import Layout
from forkd._porturl import port_url
from forkd._tree import unpack

TOKEN = "secret-token-0123456789"


@contextmanager
def server(handle: Callable[[socket.socket, bytes], None]) -> Iterator[str]:
    """Answers each connection's first request with handle."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            try:
                conn, _ = listener.accept()
            except OSError:
                return
            with conn:
                data = conn.recv(65536)
                if data:
                    handle(conn, data)

    threading.Thread(target=serve, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        listener.close()


def answer(status: int, body: object, kind: str = "application/json") -> bytes:
    text = body if isinstance(body, bytes) else json.dumps(body).encode()
    head = f"HTTP/1.1 {status} X\r\nContent-Type: {kind}\r\nContent-Length: {len(text)}\r\nConnection: close\r\n\r\n"
    return head.encode() + text


def client(url: str) -> forkd.Forkd:
    return forkd.Forkd(url, TOKEN, timeout=5)


def test_errors_have_class_reason_and_hint() -> None:
    body = {"error": "sandbox sb-1 is paused", "code": "conflict", "reason": "sandbox_paused",
            "details": {"sandbox": "sb-1"}, "request_id": "abc"}
    with server(lambda c, d: c.sendall(answer(409, body))) as url, client(url) as f:
        with pytest.raises(forkd.ConflictError) as e:
            f.sandbox("sb-1").ping()
    got = e.value
    assert (got.code, got.reason, got.status, got.request_id) == ("conflict", "sandbox_paused", 409, "abc")
    assert "sb-1" in got.hint and "hint: " in str(got)


def test_a_code_of_a_newer_daemon() -> None:
    with server(lambda c, d: c.sendall(answer(418, {"error": "new", "code": "brand_new"}))) as url, client(url) as f:
        with pytest.raises(forkd.ForkdError) as e:
            f.version()
    assert type(e.value) is forkd.ForkdError and e.value.code == "brand_new"


@pytest.mark.parametrize("code, kind, reason", [
    ("resource_exhausted", forkd.NoSpaceError, ""), ("unauthenticated", forkd.InvalidRequestError, ""),
    ("data_loss", forkd.GuestGoneError, "sandbox_broken"), ("not_found", forkd.NotFoundError, ""),
])
def test_errors_of_the_agent(code: str, kind: type[forkd.ForkdError], reason: str) -> None:
    body = {"code": code, "message": "in the guest"}
    with server(lambda c, d: c.sendall(answer(400, body))) as url, client(url) as f, pytest.raises(kind) as e:
        f.sandbox("sb-1").files.stat("/x")
    assert e.value.reason == reason and "in the guest" in str(e.value)


def test_one_failure_does_not_spare_the_others() -> None:
    killed: list[bytes] = []

    def handle(c: socket.socket, d: bytes) -> None:
        killed.append(d.split(b" ")[1])
        c.sendall(answer(500, {"error": "no", "code": "internal"}) if b"sb-0" in d else answer(204, b""))

    with server(handle) as url, client(url) as f:
        with pytest.raises(forkd.InternalError):
            forkd.Forks(f.sandbox(f"sb-{i}") for i in range(20)).kill()
    assert len(killed) == 20


def test_a_proxy_in_between() -> None:
    with server(lambda c, d: c.sendall(answer(502, b"<html>bad gateway", "text/html"))) as url, client(url) as f:
        with pytest.raises(forkd.GuestGoneError, match="bad gateway"):
            f.version()


def test_nobody_listens() -> None:
    with socket.create_server(("127.0.0.1", 0)) as s:
        url = f"http://127.0.0.1:{s.getsockname()[1]}"
    with client(url) as f, pytest.raises(forkd.UnreachableError) as e:
        f.snapshot("py").fork()
    assert url in str(e.value) and "forkd serve" in e.value.hint


def test_a_change_is_not_repeated() -> None:
    calls: list[bytes] = []
    with server(lambda c, d: calls.append(d)) as url, client(url) as f:
        with pytest.raises(forkd.ConnectionBrokenError) as e:
            f.sandbox("sb-1").kill()
    assert len(calls) == 1 and e.value.reason == "maybe_done"


def test_a_read_is_repeated() -> None:
    calls: list[bytes] = []

    def handle(c: socket.socket, d: bytes) -> None:
        calls.append(d)
        if len(calls) > 2:
            c.sendall(answer(200, {"version": "1", "api": "v1", "more": {"unknown": 1}}))

    with server(handle) as url, client(url) as f:
        assert f.version().version == "1"
    assert len(calls) == 3


@pytest.mark.parametrize("sent", [b"", b"\x00\x00\x00", b"\x00\x00\x00\x00\x05{\"a\":"])
def test_a_stream_that_breaks_off(sent: bytes) -> None:
    def handle(c: socket.socket, d: bytes) -> None:
        c.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: application/connect+json\r\nConnection: close\r\n\r\n" + sent)

    with server(handle) as url, client(url) as f, pytest.raises(forkd.ConnectionBrokenError):
        f.sandbox("sb-1").spawn("true")


def test_a_fork_that_breaks_off() -> None:
    line = json.dumps({"child": {"id": "sb-1", "index": 1}}).encode() + b"\n"
    with server(lambda c, d: c.sendall(answer(200, line, "application/x-ndjson"))) as url, client(url) as f:
        with pytest.raises(forkd.ConnectionBrokenError) as e:
            f.snapshot("py").fork(2)
    assert e.value.reason == "maybe_done"


def test_some_children_fail() -> None:
    lines = [{"child": {"id": "sb-1", "index": 1}}, {"child": {"id": "", "index": 2, "error": "no", "code": "no_memory"}},
             {"fork": {}}]
    body = b"".join(json.dumps(v).encode() + b"\n" for v in lines)
    with server(lambda c, d: c.sendall(answer(200, body, "application/x-ndjson"))) as url, client(url) as f:
        with pytest.raises(forkd.ForkError) as e:
            f.snapshot("py").fork(2)
        assert len(f.snapshot("py").fork(2, partial=True)) == 1
    assert [type(x) for x in e.value.errors] == [forkd.NoMemoryError] and len(e.value.sandboxes) == 1


def test_a_message_of_the_agent_is_bounded() -> None:
    def handle(c: socket.socket, d: bytes) -> None:
        c.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: application/connect+json\r\n\r\n\x00\xff\xff\xff\xff")

    with server(handle) as url, client(url) as f, pytest.raises(forkd.ConnectionBrokenError, match="4294967295"):
        f.sandbox("sb-1").spawn("true")


def test_no_secret_is_shown() -> None:
    with client("http://user:hidden@127.0.0.1:1") as f:
        shown = repr(f) + repr(f._connection) + repr(f._connection.address) + repr(f.sandbox("x")) + f.url
        with pytest.raises(forkd.UnreachableError) as e:
            f.snapshot("py").fork()
    assert TOKEN not in shown + repr(e.value) + str(e.value)
    assert "hidden" not in shown + repr(e.value) + str(e.value)


def test_answers_of_other_versions() -> None:
    info = decode(models.SandboxInfo, {"id": "sb-1", "from_tomorrow": True, "network": {"policy": "none"}})
    assert info.id == "sb-1" and info.status is None and info.network is not None
    assert info.network.policy == "none"


def test_what_was_tried_is_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("FORKD_URL", "FORKD_BIN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", "/nonexistent")
    if os.path.exists("/run/forkd/forkd.sock"):
        pytest.skip("a daemon runs on this host")
    with pytest.raises(forkd.UnreachableError, match="FORKD_URL is not set"):
        forkd.Forkd()


def test_map_checks_its_arguments() -> None:
    with pytest.raises(ValueError, match="errors="):
        list(forkd.map(len, [], "py", errors="no"))


def test_generated_files_are_current() -> None:
    import subprocess
    import sys
    from pathlib import Path
    script = Path(__file__).parent.parent / "scripts" / "generate.py"
    done = subprocess.run([sys.executable, str(script), "--check"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(("daemon", "domain", "want"), [
    ("tcp://127.0.0.1:8889", "forkd.localhost", "http://80-sb1.forkd.localhost:8889/"),
    ("http://[::1]:8889", "forkd.localhost", "http://80-sb1.forkd.localhost:8889/"),
    ("https://api.example.com", "sb.example.com", "https://80-sb1.sb.example.com/"),
    ("http://192.0.2.1:8889", "forkd.localhost", ""),
    ("unix:///run/forkd/forkd.sock", "forkd.localhost", ""),
    ("http://127.0.0.1:8889", None, ""),
])
def test_url_of_a_port(daemon: str, domain: str | None, want: str) -> None:
    if want:
        assert port_url(daemon, domain, "sb1", 80) == want
        return
    with pytest.raises(forkd.UnsupportedError, match="port 80"):
        port_url(daemon, domain, "sb1", 80)


def test_a_file_that_the_guest_could_not_read_is_an_error(tmp_path: Path) -> None:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for name, note in (("secret", "failed"), ("end", "end")):
            info = tarfile.TarInfo(name)
            info.pax_headers = {"FORKD.note": note, "FORKD.text": "permission denied"}
            tar.addfile(info)
    stream.seek(0)
    with pytest.raises(forkd.PartialError, match="secret: permission denied"):
        unpack(stream, tmp_path / "target")


def layout(path: Path, files: dict[str, bytes]) -> Path:
    with tarfile.open(path, "w") as tar:
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return path


def test_files_that_are_no_snapshot(tmp_path: Path) -> None:
    digest = "sha256:" + "0" * 64
    index = json.dumps({"manifests": [{"digest": digest}]}).encode()
    manifest = json.dumps({"config": {"digest": "sha256:1"}, "layers": [], "annotations": {}}).encode()
    blob = "blobs/sha256/" + "0" * 64
    for files in ({}, {"index.json": b"[]"}, {"index.json": b"{"}, {"index.json": index},
                  {"index.json": index, blob: b"no JSON"}, {"index.json": b"{" + b" " * (5 << 20)}):
        with pytest.raises(forkd.InvalidRequestError, match="no file of a snapshot"):
            Layout(layout(tmp_path / "f", files))
    with pytest.raises(forkd.ConflictError, match="the daemon's reason"):
        Layout(layout(tmp_path / "f", {"forkd-failure": b"the daemon's reason"}))
    got = Layout(layout(tmp_path / "f", {"index.json": index, blob: manifest}))
    with pytest.raises(forkd.InvalidRequestError, match="has no blobs/sha256/1"):
        b"".join(got.stream())
    with pytest.raises(FileNotFoundError):
        Layout(tmp_path / "none")
