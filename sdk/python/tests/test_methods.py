"""Methods that TypeScript has as well: their requests, and their ends over broken links. No VM is needed."""
from __future__ import annotations

import asyncio
import hashlib
import json
import os
import re
import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import forkd
import pytest
from forkd.errors import InvalidRequestError
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags, TraceState, use_span
from test_links import TOKEN, answer, client, layout, server

Requests = list[tuple[str, str, Any]]
PARENT = "00-0123456789abcdef0123456789abcdef-0123456789abcdef-01"


def request(c: socket.socket, data: bytes) -> tuple[str, str, bytes]:
    """Returns method, path and body of a request that has begun."""
    head, _, body = data.partition(b"\r\n\r\n")
    want = re.search(rb"content-length: (\d+)", head.lower())
    while want and len(body) < int(want[1]):
        body += c.recv(65536)
    method, path = head.decode().split(" ")[:2]
    return method, path, body


def recorded(seen: Requests, reply: object) -> Callable[[socket.socket, bytes], None]:
    """Returns a handler that notes requests."""
    def handle(c: socket.socket, data: bytes) -> None:
        method, path, body = request(c, data)
        seen.append((method, path, json.loads(body) if body else None))
        c.sendall(answer(200, reply))
    return handle


def test_each_method_sends_its_request() -> None:
    seen: Requests = []

    def sent() -> tuple[str, str, Any]:
        return seen[-1]

    last = {"id": "sb-1", "digest": "sha256:1", "stdout": "", "stderr": "", "exit_code": 0, "tag": "b", "children": []}
    with server(recorded(seen, last)) as url, client(url) as f:
        sandbox = f.sandbox("x")
        sandbox.extend(60)
        assert sent() == ("PATCH", "/v1/sandboxes/x/life", {"ttl_secs": 60})
        assert sandbox.run(["true"], timeout_secs=5).exit_code == 0
        assert sent() == ("POST", "/v1/sandboxes/x/exec", {"args": ["true"], "timeout_secs": 5})
        sandbox.set_life(filesystem_only=True)
        assert sent()[2] == {"filesystem_only": True}
        sandbox.eval_raw("1", measure=True)
        assert sent()[2] == {"code": "1", "measure": True}
        sandbox.console(tail=9)
        assert sent()[1] == "/v1/sandboxes/x/console?tail=9"
        with sandbox.branch(force=True) as branch:
            assert branch.children == [] and sent()[2] == {"force": True}
        assert f.images.digest("i") == "sha256:1"
        assert [f.images.has("i", d) for d in ("sha256:1", "sha256:2", "")] == [True, False, False]
        list(f.audit(changes=True))
        assert sent()[1] == "/v1/audit?changes=true"
        f.workspaces.create("w", "py", per_child_netns=True)
        assert sent()[2] == {"name": "w", "snapshot_tag": "py", "per_child_netns": True}


def test_no_image_has_no_digest() -> None:
    with server(lambda c, d: c.sendall(answer(404, {"error": "no", "code": "not_found"}))) as url, client(url) as f:
        assert f.images.digest("i") is None


def frames(*messages: object) -> bytes:
    body = b""
    for i, message in enumerate(messages):
        data = json.dumps(message).encode()
        body += struct.pack(">BI", 2 if i == len(messages) - 1 else 0, len(data)) + data
    return body


STARTED = {"event": {"start": {"pid": 7}}}


def test_a_signal() -> None:
    seen: list[bytes] = []

    def handle(c: socket.socket, d: bytes) -> None:
        seen.append(request(c, d)[2])
        kind = "application/connect+json" if b"/Start" in d else "application/json"
        c.sendall(answer(200, frames(STARTED, {}) if b"/Start" in d else b"{}", kind))

    with server(handle) as url, client(url) as f:
        process = f.sandbox("x").spawn("true")
        assert (process.pid, process.sandbox_id) == (7, "x")
        process.signal("SIGTERM")
    assert b"SIGNAL_SIGTERM" in seen[-1]


def test_a_watch_is_ready() -> None:
    change = {"event": {"filesystem": {"type": "EVENT_TYPE_CREATE", "name": "f"}}}
    body = frames({"event": {"start": {}}}, change, {})
    ready: list[int] = []
    with server(lambda c, d: c.sendall(answer(200, body, "application/connect+json"))) as url, client(url) as f:
        got = list(f.sandbox("x").files.watch("/", on_ready=lambda: ready.append(1)))
    assert (ready, [c.name for c in got]) == ([1], ["f"])


def test_the_console_as_it_comes() -> None:
    def handle(c: socket.socket, d: bytes) -> None:
        assert b"follow=true" in d
        c.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nab\xc3")
        time.sleep(0.05)  # elapses: a character arrives in two pieces
        c.sendall(b"\xa9")

    with server(handle) as url, client(url) as f:
        seen = []
        with pytest.raises(forkd.ConnectionBrokenError):
            for piece in f.sandbox("x").follow_console():
                seen.append(piece)
    assert "".join(seen) == "abé"


def test_errors_of_a_partial_fork() -> None:
    lines = [{"child": {"id": "sb-1", "index": 1}}, {"fork": {}},
             {"child": {"id": "", "index": 2, "error": "no", "code": "no_memory"}}]
    body = b"".join(json.dumps(v).encode() + b"\n" for v in lines)
    with server(lambda c, d: c.sendall(answer(200, body, "application/x-ndjson"))) as url, client(url) as f:
        forks = f.snapshot("py").fork(2, partial=True)
    assert [type(e) for e in forks.errors] == [forkd.NoMemoryError] and [s.id for s in forks] == ["sb-1"]


def test_a_fork_without_a_child() -> None:
    with server(lambda c, d: c.sendall(answer(200, b'{"fork":{}}\n', "application/x-ndjson"))) as url, client(url) as f:
        with pytest.raises(forkd.ConnectionBrokenError, match="has no child"):
            f.snapshot("py").fork()


def test_text_is_bounded() -> None:
    with server(lambda c, d: c.sendall(answer(200, b"12345"))) as url, client(url) as f:
        with pytest.raises(forkd.TooLargeError):
            f.sandbox("x").files.read_text("/f", max_bytes=4)


def test_retries_end_in_time() -> None:
    calls: list[bytes] = []
    with server(lambda c, d: calls.append(d)) as url:
        for retry_for, want in ((0, 1), (0.25, 2)):
            calls.clear()
            with forkd.Forkd(url, TOKEN, retry_for=retry_for) as f, pytest.raises(forkd.ConnectionBrokenError):
                f.version()
            assert len(calls) == want


def test_the_program_that_knows_the_address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FORKD_URL", raising=False)
    program = tmp_path / "own"
    program.write_text('#!/bin/sh\necho \'{"url":"http://127.0.0.1:1","token":"t"}\'\n')
    program.chmod(0o755)
    with forkd.Forkd(program=str(program)) as f:
        assert f.url == "http://127.0.0.1:1"


def test_a_client_certificate_that_is_missing(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        forkd.Forkd("https://127.0.0.1:1", tls_client_cert=str(tmp_path / "none"), tls_client_key=str(tmp_path / "k"))


# Ports.

UPGRADED = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: forkd-tcp\r\nConnection: Upgrade\r\n\r\n"


@contextmanager
def port(handle: Callable[[socket.socket], None], first: bytes = UPGRADED) -> Iterator[forkd.Sandbox]:
    """Serves the port of a sandbox: the answer to the request, and then the connection."""
    def upgraded(c: socket.socket, _: bytes) -> None:
        c.sendall(first)
        handle(c)

    with server(upgraded) as url, client(url) as f:
        yield f.sandbox("x")


def echo(c: socket.socket) -> None:
    while data := c.recv(65536):
        c.sendall(data.upper())


def test_a_request_to_a_port() -> None:
    with port(echo) as sandbox:
        assert sandbox.request_port(80, "hello") == b"HELLO"
        assert sandbox.request_port(80, b"") == b""
        large = b"x" * (8 << 20)  # more than the sockets keep, in both directions
        assert sandbox.request_port(80, large) == large.upper()


def test_the_ports_first_bytes_are_not_lost() -> None:
    with port(lambda c: None, UPGRADED + b"first") as sandbox, sandbox.dial(80) as s:
        assert s.recv(100) == b"first"


def endless(c: socket.socket) -> None:
    with suppress(OSError):
        while True:
            c.sendall(b"x" * 65536)


def reset(c: socket.socket) -> None:
    c.sendall(b"begin")
    c.recv(1)
    c.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def silent(c: socket.socket) -> None:
    while c.recv(65536):
        pass
    c.recv(1)
    time.sleep(0.5)  # elapses: the port sends nothing


@pytest.mark.parametrize(("handle", "kind"), [
    (endless, forkd.TooLargeError), (reset, forkd.ConnectionBrokenError), (silent, forkd.GuestTimeoutError),
])
def test_a_port_that_never_ends_breaks_or_is_silent(handle: Callable[[socket.socket], None],
                                                     kind: type[Exception]) -> None:
    with port(handle) as sandbox, pytest.raises(kind):
        sandbox.request_port(80, "x", timeout=0.2, max_bytes=1 << 20)


@pytest.mark.parametrize("first", [b"", b"HTTP/1.1 101", b"nonsense\r\n\r\n", b"HTTP/1.1 x\r\n\r\n", b"x" * 70000,
                                   b"HTTP/1.1 404 X\r\nContent-Length: x\r\n\r\n"])
def test_an_answer_to_the_upgrade_that_is_none(first: bytes) -> None:
    with port(lambda c: None, first) as sandbox, pytest.raises(forkd.ConnectionBrokenError):
        sandbox.dial(80)


def test_a_refusal_of_the_upgrade() -> None:
    with port(lambda c: None, answer(404, {"error": "gone", "code": "not_found"})) as sandbox:
        with pytest.raises(forkd.NotFoundError, match="gone"):
            sandbox.request_port(80, "x")


CERTIFICATE = Path(__file__).parents[2] / "typescript" / "test" / "testdata"


def test_a_port_over_tls() -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(CERTIFICATE / "cert.pem", CERTIFICATE / "key.pem")
    der = ssl.PEM_cert_to_DER_cert((CERTIFICATE / "cert.pem").read_text())

    def handle(near: socket.socket) -> None:
        with near, suppress(OSError), context.wrap_socket(near, server_side=True) as c:
            if c.recv(65536):  # other connections only compare the certificate
                c.sendall(UPGRADED)
                c.sendall(c.recv(65536).upper())

    with socket.create_server(("127.0.0.1", 0)) as listener:
        def serve() -> None:
            with suppress(OSError):
                while True:
                    handle(listener.accept()[0])
        threading.Thread(target=serve, daemon=True).start()
        with forkd.Forkd(f"https://127.0.0.1:{listener.getsockname()[1]}", TOKEN,
                         tls_fingerprint=hashlib.sha256(der).hexdigest()) as f:
            assert f.sandbox("x").request_port(80, "hello", timeout=5) == b"HELLO"
        listener.shutdown(socket.SHUT_RDWR)


@pytest.mark.parametrize("size", [1, 3 << 20])
def test_a_forwarded_port_over_tls(size: int) -> None:
    """Both directions are busy at the same time, with more data than any buffer holds."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(CERTIFICATE / "cert.pem", CERTIFICATE / "key.pem")
    der = ssl.PEM_cert_to_DER_cert((CERTIFICATE / "cert.pem").read_text())

    def echo(near: socket.socket) -> None:
        with near, suppress(OSError), context.wrap_socket(near, server_side=True) as c:
            if c.recv(65536):  # other connections only compare the certificate
                c.sendall(UPGRADED)
                while chunk := c.recv(65536):
                    c.sendall(chunk.upper())

    with socket.create_server(("127.0.0.1", 0)) as listener:
        def serve() -> None:
            with suppress(OSError):
                while True:
                    threading.Thread(target=echo, args=(listener.accept()[0],), daemon=True).start()
        threading.Thread(target=serve, daemon=True).start()
        with forkd.Forkd(f"https://127.0.0.1:{listener.getsockname()[1]}", TOKEN,
                         tls_fingerprint=hashlib.sha256(der).hexdigest()) as f:
            with f.sandbox("x").forward_port(80) as address, socket.create_connection(address, 20) as s:
                sender = threading.Thread(target=s.sendall, args=(b"x" * size,), daemon=True)
                sender.start()
                got = bytearray()
                while len(got) < size:
                    chunk = s.recv(1 << 20)
                    assert chunk, f"{len(got)} of {size} bytes came"
                    got += chunk
                sender.join()
                assert bytes(got) == b"X" * size
        listener.shutdown(socket.SHUT_RDWR)


# Files of snapshots.

def test_an_export_that_fails_keeps_the_old_file(tmp_path: Path) -> None:
    file = tmp_path / "py.tar"
    file.write_text("old")
    whole = layout(tmp_path / "failed", {"forkd-failure": b"the disk broke"}).read_bytes()
    os.unlink(tmp_path / "failed")
    cut = b"HTTP/1.1 200 OK\r\nContent-Length: 99999\r\n\r\n" + whole
    for sent, kind in ((cut, forkd.ConnectionBrokenError), (answer(200, whole), forkd.ConflictError),
                       (answer(200, b"<html>" * 300), InvalidRequestError)):
        with server(lambda c, d: c.sendall(sent)) as url, client(url) as f, pytest.raises(kind):
            f.snapshot("py").export(file)
        assert (file.read_text(), os.listdir(tmp_path)) == ("old", ["py.tar"])


# Traces.

def traced(seen: list[str]) -> Callable[[socket.socket, bytes], None]:
    """Returns a handler that notes the traceparent of requests."""
    def handle(c: socket.socket, d: bytes) -> None:
        seen.extend(h.decode() for h in re.findall(rb"(?i)\r\ntraceparent: ([^\r]*)", d) or [b""])
        if b"/connect HTTP" in d:
            c.sendall(UPGRADED)
        elif b"/Start" in d:
            c.sendall(answer(200, frames(STARTED, {}), "application/connect+json"))
        else:
            c.sendall(answer(200, {"version": "1", "api": "v1"}))
    return handle


def test_an_explicit_trace() -> None:
    seen: list[str] = []
    values = [PARENT[:-1] + "0", None, "x\r\nEvil: 1", PARENT]
    with server(traced(seen)) as url:
        with forkd.Forkd(url, TOKEN, trace_parent=PARENT) as f:
            f.version()
            f.sandbox("x").spawn("true").close()
            f.sandbox("x").request_port(80, "")
        assert seen == [PARENT] * 3
        seen.clear()
        with forkd.Forkd(url, TOKEN, trace_parent=lambda: values[len(seen)]) as f:
            for _ in values:
                f.version()
    assert seen == [values[0], "", "", PARENT]


def test_the_state_of_a_trace() -> None:
    seen: list[str] = []

    def handle(c: socket.socket, d: bytes) -> None:
        seen.extend(h.decode() for h in re.findall(rb"(?i)\r\ntracestate: ([^\r]*)", d) or [b""])
        c.sendall(answer(200, {"version": "1", "api": "v1"}))

    states = ["a=1,b=2", "", "x\r\nEvil: 1", "y" * 513]
    with server(handle) as url:
        carrier = lambda: {"traceparent": PARENT, "tracestate": states[len(seen)]}  # noqa: E731
        with forkd.Forkd(url, TOKEN, trace_parent=carrier) as f:
            for _ in states:
                f.version()
        assert seen == ["a=1,b=2", "", "", ""]
        context = SpanContext(1, 2, is_remote=True, trace_flags=TraceFlags(1), trace_state=TraceState([("c", "3")]))
        with forkd.Forkd(url, TOKEN) as f, use_span(NonRecordingSpan(context)):
            f.version()
        assert seen[-1] == "c=3"


@pytest.mark.parametrize("value", ["", "x", PARENT.upper(), PARENT + "\r\nEvil: 1", "00-" + PARENT, PARENT + "\n"])
def test_a_trace_of_another_form_is_refused(value: str) -> None:
    with pytest.raises(InvalidRequestError, match="no traceparent"):
        forkd.Forkd("http://127.0.0.1:1", trace_parent=value)


def test_the_current_span_of_opentelemetry() -> None:
    seen: list[str] = []
    tracer = TracerProvider().get_tracer("test")
    with server(traced(seen)) as url:
        with forkd.Forkd(url, TOKEN) as f:
            f.version()
            with tracer.start_as_current_span("work") as span:
                f.version()
                # Threads of the client are in the same span.
                forkd.Forks([f.sandbox("a"), f.sandbox("b")]).kill()
            f.version()

        async def both() -> None:
            async with forkd.AsyncForkd(url, TOKEN) as f:
                with tracer.start_as_current_span("other") as other:
                    await f.version()
                    await f.sandbox("x").request_port(80, "")
                assert seen[-2:] == [of(other), of(other)]
        first, *inside, last = seen
        assert (first, inside, last) == ("", [of(span)] * 3, "")
        asyncio.run(both())


def of(span: trace.Span) -> str:
    context = span.get_span_context()
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"


def test_a_broken_opentelemetry_breaks_no_request(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace, "get_current_span", lambda: 1 / 0)
    seen: list[str] = []
    with server(traced(seen)) as url, forkd.Forkd(url, TOKEN) as f:
        assert f.version().version == "1"
    assert seen == [""]
