"""Measures the SDK's own time per call: the same request by http.client and by the SDK, in turn.

    python bench/overhead.py [calls]

It needs no daemon: a server in another process answers at once.
"""
from __future__ import annotations

import http.client
import json
import multiprocessing
import statistics
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from multiprocessing.connection import Connection

import forkd
import httpx

TOKEN = "0123456789abcdef"
ANSWER = json.dumps({"stdout": "", "stderr": "", "exit_code": 0}).encode()
PATH = "/v1/sandboxes/sb-1/exec"
BODY = json.dumps({"args": ["true"]})


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(ANSWER)))
        self.end_headers()
        self.wfile.write(ANSWER)

    def log_message(self, *_: object) -> None:
        pass


def serve(to: Connection) -> None:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    to.send(server.server_address[1])
    server.serve_forever()


def main() -> None:
    calls = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    here, there = multiprocessing.Pipe()
    process = multiprocessing.Process(target=serve, args=(there,), daemon=True)
    process.start()
    port = here.recv()
    raw = http.client.HTTPConnection("127.0.0.1", port)
    plain = httpx.Client(base_url=f"http://127.0.0.1:{port}")
    times: dict[str, list[float]] = {"http.client": [], "httpx": [], "forkd": []}
    headers = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"}

    def by_http() -> None:
        raw.request("POST", PATH, BODY, headers)
        json.loads(raw.getresponse().read())

    with forkd.Forkd(f"http://127.0.0.1:{port}", TOKEN) as client:
        sandbox = client.sandbox("sb-1")
        ways = {"http.client": by_http, "httpx": lambda: plain.post(PATH, content=BODY, headers=headers).json(),
                "forkd": lambda: sandbox.exec(["true"])}
        for _ in range(calls):
            for name, way in ways.items():
                begin = time.perf_counter()
                way()
                times[name].append((time.perf_counter() - begin) * 1000)
    process.terminate()
    for name, row in times.items():
        row.sort()
        print(f"{name:12} median {statistics.median(row):.2f} ms  p95 {row[int(len(row) * 0.95)]:.2f} ms")
    for name in ("http.client", "httpx"):
        more = statistics.median(times["forkd"]) - statistics.median(times[name])
        print(f"forkd over {name}: {more:.2f} ms a call")


if __name__ == "__main__":
    main()
