"""Requests to one daemon: JSON, lines, streams, and the agent's Connect protocol."""
from __future__ import annotations

import base64
import json
import struct
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import quote

import httpx

from .. import _aio
from .._address import Address, tls
from .._codes import ConnectionBrokenError, UnreachableError
from .._trace import Trace
from .._version import VERSION
from ..errors import of_answer, of_object

#: Longest answer that is read at once, in bytes.
MAX_ANSWER = 256 << 20
#: Longest message of the agent, in bytes.
MAX_MESSAGE = 64 << 20


class AsyncConnection:
    """Sends requests to one daemon. Errors are ForkdError of the code's class."""

    def __init__(self, address: Address, timeout: float, retry_for: float = 3, trace: Trace | None = None) -> None:
        self.address = address
        self.timeout = timeout
        self.trace = trace or Trace(None)
        self._retry_for = retry_for
        headers = {"User-Agent": f"forkd-python/{VERSION}"}
        if address.token:
            headers["Authorization"] = f"Bearer {address.token}"
        limits = httpx.Limits(max_connections=256, max_keepalive_connections=32, keepalive_expiry=30)
        url = address.url
        if url.startswith("unix://"):
            transport = httpx.AsyncHTTPTransport(uds=url[len("unix://"):], limits=limits)
            base = "http://forkd"
        else:
            base = "http://" + url[len("tcp://"):] if url.startswith("tcp://") else url
            verify = tls(address) if base.startswith("https://") else True
            transport = httpx.AsyncHTTPTransport(verify=verify, limits=limits)
        self._http = httpx.AsyncClient(base_url=base, transport=transport, headers=headers, trust_env=False,
                                       timeout=httpx.Timeout(timeout, connect=10),
                                       event_hooks={"request": [self._traced]})

    def __repr__(self) -> str:
        return f"<forkd {self.address.shown}>"

    async def aclose(self) -> None:
        """Closes all connections."""
        await self._http.aclose()

    async def _traced(self, request: httpx.Request) -> None:
        """Adds the caller's trace to a request."""
        request.headers.update(self.trace.headers())

    async def call(self, method: str, path: str, *, body: Any = None, params: dict[str, Any] | None = None,
                   timeout: float | None = None) -> Any:
        """Sends one request and returns the decoded answer, or None if it has no body."""
        answer = await self._send(method, path, json=body, params=params, timeout=timeout)
        if not answer.content:
            return None
        if answer.headers.get("Content-Type", "").startswith("application/json"):
            return self._decoded(answer.content, path)
        return answer.text

    async def raw(self, method: str, path: str, *, content: Any = None, params: dict[str, Any] | None = None,
                  headers: dict[str, str] | None = None, timeout: float | None = None) -> bytes:
        """Sends one request and returns the bytes of the answer."""
        answer = await self._send(method, path, content=content, params=params, headers=headers, timeout=timeout)
        return answer.content

    async def _send(self, method: str, path: str, *, timeout: float | None, **request: Any) -> httpx.Response:
        limit = httpx.Timeout(timeout, connect=10) if timeout is not None else httpx.USE_CLIENT_DEFAULT
        wait, end = 0.1, time.monotonic() + self._retry_for
        while True:
            try:
                answer = await self._http.request(method, path, timeout=limit, **clean(request))
                break
            except httpx.HTTPError as e:
                # A GET changes nothing, so it is repeated while a daemon restarts.
                if method != "GET" or isinstance(e, httpx.TimeoutException) or time.monotonic() + wait > end:
                    raise self._broken(method, path, e) from e
            await _aio.sleep(wait)
            wait *= 2
        if answer.status_code >= 400:
            raise of_answer(answer.status_code, answer.content, own=_own(path, answer))
        return answer

    @asynccontextmanager
    async def stream(self, method: str, path: str, *, timeout: float | None = None,
                     **request: Any) -> AsyncIterator[httpx.Response]:
        """Sends a request and leaves the answer open. ``timeout`` limits the silence between its bytes."""
        limit = httpx.Timeout(self.timeout, read=timeout, connect=10)
        try:
            async with self._http.stream(method, path, timeout=limit, **clean(request)) as answer:
                if answer.status_code >= 400:
                    raise of_answer(answer.status_code, await answer.aread(), own=_own(path, answer))
                yield answer
        except httpx.HTTPError as e:
            raise self._broken(method, path, e) from e

    async def lines(self, method: str, path: str, **request: Any) -> AsyncIterator[dict[str, Any]]:
        """Yields the objects of an answer in lines of JSON. An older daemon answers with one object."""
        request.setdefault("headers", {"Accept": "application/x-ndjson, application/json"})
        async with self.stream(method, path, **request) as answer:
            if not answer.headers.get("Content-Type", "").startswith("application/x-ndjson"):
                yield self._decoded(await answer.aread(), path)
                return
            async for line in answer.aiter_lines():
                if line.strip():
                    yield self._decoded(line, path)

    async def agent(self, sandbox: str, method: str, body: dict[str, Any], user: str | None = None,
                    timeout: float | None = None) -> dict[str, Any]:
        """Calls a method of the agent, such as ``filesystem.Filesystem/Stat``."""
        got = await self._send("POST", agent_path(sandbox, method), json=body, headers=agent_user(user), timeout=timeout)
        decoded = got.json()
        return decoded if isinstance(decoded, dict) else {}

    async def agent_stream(self, sandbox: str, method: str, body: dict[str, Any], user: str | None = None,
                           timeout: float | None = None,
                           more: dict[str, str] | None = None) -> AsyncIterator[dict[str, Any]]:
        """Calls a method of the agent with a stream of answers."""
        data = json.dumps(body).encode()
        headers = {"Content-Type": "application/connect+json", "Connect-Protocol-Version": "1", **agent_user(user),
                   **(more or {})}
        async with self.stream("POST", agent_path(sandbox, method), timeout=timeout, headers=headers,
                               content=struct.pack(">BI", 0, len(data)) + data) as answer:
            buffer = bytearray()
            async for chunk in answer.aiter_bytes():
                buffer += chunk
                while len(buffer) >= 5:
                    flags, size = struct.unpack(">BI", buffer[:5])
                    if size > MAX_MESSAGE:
                        raise ConnectionBrokenError(f"the agent of {sandbox} sent a message of {size} bytes")
                    if len(buffer) < 5 + size:
                        break
                    message = self._decoded(bytes(buffer[5:5 + size]) or b"{}", sandbox)
                    del buffer[:5 + size]
                    if not flags & 2:
                        yield message
                        continue
                    if message.get("error"):
                        raise of_answer(0, json.dumps(message["error"]).encode(), own=False)
                    return
        raise ConnectionBrokenError(f"the stream from {sandbox} broke off")

    def _decoded(self, data: str | bytes, of: str) -> Any:
        try:
            return json.loads(data)
        except ValueError as e:
            raise ConnectionBrokenError(f"{of}: the answer is no JSON: {data[:100]!r}") from e

    def _broken(self, method: str, path: str, e: Exception) -> Exception:
        text = str(e) or type(e).__name__
        if isinstance(e, (httpx.ConnectError, httpx.ConnectTimeout)):
            return of_object({"error": f"no daemon answers at {self.address.shown}: {text}", "code": UnreachableError.code})
        reason = "" if method == "GET" else "maybe_done"
        return of_object({"error": f"{method} {path}: the connection to {self.address.shown} broke: {text}",
                          "code": ConnectionBrokenError.code, "reason": reason})


def _own(path: str, answer: httpx.Response) -> bool:
    """Reports whether the daemon made the error, rather than the agent of a guest."""
    return "/agent/" not in path or "Forkd-Error" in answer.headers


def clean(request: dict[str, Any]) -> dict[str, Any]:
    """Removes absent parts of a request, and absent parameters."""
    out = {k: v for k, v in request.items() if v is not None}
    if "params" in out:
        out["params"] = {k: str(v).lower() if isinstance(v, bool) else v
                         for k, v in out["params"].items() if v is not None and v is not False}
    return out


def sandbox_path(sandbox: str, rest: str = "") -> str:
    """Returns the path of a sandbox's route."""
    return f"/v1/sandboxes/{quote(sandbox, safe='')}{rest}"


def agent_path(sandbox: str, rest: str) -> str:
    """Returns the path of a route of a sandbox's agent."""
    return sandbox_path(sandbox, "/agent/" + rest)


def agent_user(user: str | None) -> dict[str, str]:
    """Returns the header that chooses the user in the guest."""
    if not user:
        return {}
    return {"Forkd-Agent-User": user}


def text64(data: bytes) -> str:
    """Returns bytes as the agent's JSON has them."""
    return base64.b64encode(data).decode()
