"""Sandboxes."""
from __future__ import annotations

import codecs
import json
import pickle
import socket
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Literal
from urllib.parse import quote

from .. import _aio, models
from .._codes import GuestTimeoutError, NotFoundError, PortClosedError
from .._decode import decode, encode
from .._base import EvalError, ForkdError
from .._porturl import port_url
from .._results import ExecResult
from ..errors import of_object
from ._run import run
from .connection import AsyncConnection, clean, sandbox_path
from .files import AsyncFiles
from .ports import AsyncPortForward, connect, probe, request
from .process import MAX_OUTPUT, AsyncProcess

Value = Literal["repr", "json", "pickle"]


class AsyncSandbox:
    """A virtual machine forked from a snapshot. As a context manager it is killed at the end."""

    def __init__(self, connection: AsyncConnection, sandbox: str, info: models.SandboxInfo | None = None) -> None:
        self._connection = connection
        self.id = sandbox
        self.last_info = info

    def __repr__(self) -> str:
        return f"<Sandbox {self.id}>"

    async def __aenter__(self) -> AsyncSandbox:
        return self

    async def __aexit__(self, *_: object) -> None:
        try:
            await self.kill()
        except NotFoundError:
            pass

    @property
    def files(self) -> AsyncFiles:
        """The files of the sandbox."""
        return AsyncFiles(self._connection, self.id)

    # State and life.

    async def info(self) -> models.SandboxInfo:
        """Describes the sandbox. Raises NotFoundError if it has ended."""
        self.last_info = decode(models.SandboxInfo, await self._call("GET"))
        return self.last_info

    async def kill(self, *, tree: bool = False) -> None:
        """Ends the sandbox. ``tree`` also ends the sandboxes that its guest forked."""
        await self._call("DELETE", params={"tree": tree})

    async def ping(self) -> models.PingResponse:
        """Asks the guest for an answer."""
        return decode(models.PingResponse, await self._call("POST", "/ping"))

    async def pause(self, *, filesystem_only: bool = False) -> models.SandboxInfo:
        """Turns the sandbox into a snapshot under its own id. It uses no memory until resume()."""
        body = {"filesystem_only": True} if filesystem_only else {}
        return decode(models.SandboxInfo, await self._call("POST", "/pause", body, timeout=600))

    async def resume(self, *, peers: Iterable[str] = ()) -> models.SandboxInfo:
        """Resumes a paused sandbox. A running one stays as it is.

        With ``peers``, a list of URLs, a sandbox paused at another daemon is taken from the first that has it. The
        operator of this daemon allows peers with ``forkd serve --peer``.
        """
        urls = list(peers)
        if not urls:
            return decode(models.SandboxInfo, await self._call("POST", "/resume", timeout=600))
        return decode(models.SandboxInfo, await self._call("POST", "/resume", {"peers": urls}, timeout=1800))

    async def set_life(self, *, ttl: float | None = None, idle: float | None = None,
                       at_end: Literal["kill", "pause"] | None = None, auto_resume: bool | None = None,
                       restart_on_hang: bool | None = None,
                       filesystem_only: bool | None = None) -> models.SandboxInfo:
        """Changes the lifetime: ttl and idle in seconds (0: no limit), and the action at the end."""
        body = clean({"ttl_secs": ttl, "idle_secs": idle, "at_end": at_end, "auto_resume": auto_resume,
                      "restart_on_hang": restart_on_hang, "filesystem_only": filesystem_only})
        return decode(models.SandboxInfo, await self._call("PATCH", "/life", body))

    async def extend(self, ttl: float) -> models.SandboxInfo:
        """Lets the sandbox live that many seconds from now. 0 means without a limit."""
        return await self.set_life(ttl=ttl)

    async def label(self, labels: Mapping[str, str] | None = None, *,
                    remove: Iterable[str] = ()) -> models.SandboxInfo:
        """Adds or replaces labels, and removes those with the keys ``remove``. Other labels stay."""
        body = clean({"set": dict(labels) if labels else None, "remove": list(remove) or None})
        return decode(models.SandboxInfo, await self._call("PATCH", "/labels", body))

    async def receipt(self) -> models.Receipt:
        """Returns the record of how the sandbox came to be."""
        return decode(models.Receipt, await self._call("GET", "/receipt"))

    async def memory(self) -> models.MemoryUse:
        """Returns how the sandbox's memory is shared."""
        return decode(models.MemoryUse, await self._call("GET", "/memory"))

    async def console(self, *, tail: int | None = None) -> str:
        """Returns the console's text, or its last ``tail`` bytes."""
        return str(await self._call("GET", "/console", params={"tail": tail}) or "")

    async def follow_console(self, *, tail: int | None = None) -> AsyncIterator[str]:
        """Yields the console's text as it comes, until the sandbox ends."""
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        async with self._connection.stream("GET", sandbox_path(self.id, "/console"),
                                           params={"follow": True, "tail": tail}) as answer:
            async for chunk in answer.aiter_bytes():
                yield decoder.decode(chunk)

    # Services.

    async def services(self, *, wait: float | None = None) -> list[models.Service]:
        """Lists the services. ``wait`` seconds at most until each is ready, failed or stopped."""
        rows = await self._call("GET", "/services", params={"wait_secs": wait}, timeout=(wait or 0) + 120)
        return [decode(models.Service, s) for s in rows or []]

    async def declare_service(self, name: str, command: Sequence[str], **spec: Any) -> models.Service:
        """Starts a service, or replaces one with another declaration. ``spec`` takes the fields of the API."""
        body = {"command": list(command), **spec}
        return decode(models.Service, await self._call("PUT", _service(name), body, timeout=120))

    async def change_service(self, name: str, action: Literal["stop", "start", "restart"]) -> models.Service:
        """Stops, starts or restarts a service."""
        return decode(models.Service, await self._call("POST", _service(name), {"action": action}, timeout=120))

    async def remove_service(self, name: str) -> None:
        """Stops a service, and removes it with its log."""
        await self._call("DELETE", _service(name), timeout=120)

    async def service_log(self, name: str, *, tail: int | None = None) -> str:
        """Returns the end of a service's output, or its last ``tail`` lines."""
        return str(await self._call("GET", _service(name, "/log"), params={"tail": tail}) or "")

    async def follow_service_log(self, name: str, *, tail: int | None = None) -> AsyncIterator[str]:
        """Yields a service's output as it comes, until the sandbox ends."""
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        async with self._connection.stream("GET", sandbox_path(self.id, _service(name, "/log")),
                                           params={"follow": True, "tail": tail}) as answer:
            async for chunk in answer.aiter_bytes():
                yield decoder.decode(chunk)

    # Programs and code.

    async def exec(self, *command: str | Sequence[str], stdin: _aio.Input | None = None,
                   env: Mapping[str, str] | None = None, cwd: str | None = None, user: str | None = None,
                   timeout: float | None = None, check: bool = False, max_output: int | None = None,
                   on_stdout: Callable[[bytes], Any] | None = None,
                   on_stderr: Callable[[bytes], Any] | None = None) -> ExecResult:
        """Runs a program and waits for its end.

        One string is a shell command; several strings, or a list, are a program and its arguments.
        ``timeout`` is in seconds; the program and its children are then killed, and ``timed_out`` is set.
        With callbacks, max_output, or other input than text, output arrives while the program runs.
        The output is whole: raises TooLargeError if it exceeds max_output bytes, by default 8 MiB a stream,
        or 64 MiB while it runs.
        Raises ProgramError with ``check`` if the program ends with another code than 0.
        """
        args = arguments(command)
        one_answer = on_stdout is None and on_stderr is None and max_output is None
        if one_answer and (stdin is None or isinstance(stdin, str)):
            result = await run(self._connection, self.id, args, stdin=stdin, env=env, cwd=cwd, user=user,
                               timeout=timeout)
        else:
            result = await self._follow(args, stdin, env, cwd, user, timeout,
                                        MAX_OUTPUT if max_output is None else max_output, on_stdout, on_stderr)
        return result.check() if check else result

    async def _follow(self, args: list[str], stdin: _aio.Input | None, env: Mapping[str, str] | None,
                      cwd: str | None, user: str | None, timeout: float | None, max_output: int,
                      on_stdout: Callable[[bytes], Any] | None, on_stderr: Callable[[bytes], Any] | None) -> ExecResult:
        process = await self.spawn(args, env=env, cwd=cwd, user=user, stdin=stdin is not None, timeout=timeout)
        feeder = _aio.Task(process.feed, stdin) if stdin is not None else None
        try:
            return await process.wait(max_output=max_output, on_stdout=on_stdout, on_stderr=on_stderr)
        finally:
            await process.aclose()
            if feeder is not None:
                await feeder.stop()

    async def spawn(self, *command: str | Sequence[str], env: Mapping[str, str] | None = None, cwd: str | None = None,
                    user: str | None = None, stdin: bool = True, pty: tuple[int, int] | None = None,
                    timeout: float | None = None) -> AsyncProcess:
        """Starts a program and returns it while it runs.

        ``pty`` is the size of a terminal in columns and rows. ``timeout`` in seconds is the
        limit of its run; iteration then raises GuestTimeoutError.
        """
        args = arguments(command)
        config: dict[str, Any] = {"process": clean({"cmd": args[0], "args": args[1:], "envs": dict(env or {}),
                                                    "cwd": cwd}), "stdin": stdin}
        if pty is not None:
            config["pty"] = {"size": {"cols": pty[0], "rows": pty[1]}}
        return await AsyncProcess(self._connection, self.id, config, user, timeout)._start()

    async def run(self, args: Sequence[str], **more: Any) -> models.ExecResponse:
        """Runs a program by one request, and returns the API's answer. ``more`` takes the other fields of the API.

        The daemon keeps the first 8 MiB of each stream; ``dropped_bytes`` has the rest.
        """
        body = clean({"args": [str(a) for a in args], **more})
        limit = more.get("timeout_secs")
        wait = limit + 30 if limit is not None else 24 * 3600
        return decode(models.ExecResponse, await self._call("POST", "/exec", body, timeout=wait))

    async def eval(self, code: str, *, as_: Value = "repr", language: str | None = None,
                   timeout: float | None = None) -> Any:
        """Runs code in the warmed interpreter and returns the value of its last expression.

        ``as_`` is the form of the value: ``repr`` (text), ``json``, or ``pickle`` for sandboxes whose code you trust:
        unpickling runs code on this host. Raises EvalError with the traceback if the code fails.
        """
        if as_ != "repr":
            code = _wrapped(code, as_)
        got = await self.eval_raw(code, language=language, timeout=timeout)
        if got.error:
            raise EvalError(got.error, got.stdout or "", got.stderr or "")
        if as_ == "repr" or got.result is None:
            return got.result
        return _value(got.result, as_)

    async def eval_raw(self, code: str, *, language: str | None = None, measure: bool | None = None,
                       timeout: float | None = None) -> models.EvalResponse:
        """Runs code in the warmed interpreter and returns the whole answer, with its output.

        ``measure`` measures ``guest_ms`` by the VMM's clock, for one request at a time.
        """
        body = clean({"code": code, "language": language, "measure": measure, "timeout_secs": timeout})
        wait = timeout + 30 if timeout is not None else 24 * 3600
        return decode(models.EvalResponse, await self._call("POST", "/eval", body, timeout=wait))

    # Ways to other guests.

    async def branch(self, n: int = 0, *, tag: str | None = None, mode: Literal["live", "diff", "full"] | None = None,
                     max_pause_ms: float | None = None, wait: bool | None = None, force: bool | None = None,
                     network: models.NetworkPolicy | Mapping[str, Any] | None = None,
                     labels: Mapping[str, str] | None = None,
                     secrets: Sequence[Mapping[str, str]] | None = None) -> Branch:
        """Captures the sandbox at one instant as a snapshot, and forks n children of it.

        The sandbox keeps running. The snapshot and the children have its labels, and ``labels``. Raises
        ConflictError (``pause_too_long``) if the pause would exceed max_pause_ms. ``force`` branches even if the
        disk has lost writes; the snapshot may then be incomplete. ``secrets`` are given to the children, such as
        ``[{"name": "TOKEN", "env": "GITHUB_TOKEN"}]``.
        """
        body = clean({"n": n or None, "tag": tag, "mode": mode, "max_pause_ms": max_pause_ms, "wait": wait,
                      "force": force, "network": encode(network), "labels": dict(labels) if labels else None,
                      "secrets": [dict(s) for s in secrets] if secrets else None})
        got = await self._call("POST", "/branch", body, timeout=600)
        return Branch(self._connection, decode(models.BranchResult, got))

    async def rollback(self, tag: str) -> models.SandboxInfo:
        """Puts the sandbox back to a snapshot of its own ancestry. Its id and its ports stay."""
        return decode(models.SandboxInfo, await self._call("POST", "/rollback", {"snapshot_tag": tag}, timeout=600))

    async def promote(self, *, place: str | None = None, tag: str | None = None,
                      discard: bool = False) -> models.PromoteResult:
        """Puts the sandbox in the place of its parent: id, ports, policy and deadline are the parent's.

        ``place`` names another ancestor. A snapshot with the name ``tag`` keeps the parent's old state, unless
        ``discard`` is set. The id of this object ends: go on with the parent's. Raises ConflictError (``no_place``).
        """
        body = clean({"place": place, "tag": tag, "parent": "kill" if discard else None})
        return decode(models.PromoteResult, await self._call("POST", "/promote", body, timeout=600))

    async def merge(self, theirs: str | AsyncSandbox, *, dry_run: bool = False,
                    resolve: Literal["ours", "theirs"] | None = None, base: str | None = None,
                    paths: Mapping[str, str] | None = None) -> models.MergeResult:
        """Merges the changed files of a sibling or a snapshot into this running sandbox.

        With conflicts left, no file is changed: ``applied`` is false and ``conflicts`` lists them. ``resolve``
        decides all of them, ``paths`` single ones. A merge is not atomic: branch first to be able to go back.
        """
        name = theirs.id if isinstance(theirs, AsyncSandbox) else theirs
        body = clean({"theirs": name, "dry_run": dry_run or None, "resolve": resolve, "base": base,
                      "paths": dict(paths) if paths else None})
        return decode(models.MergeResult, await self._call("POST", "/merge", body, timeout=1800))

    # Network.

    async def network(self) -> models.SandboxNetwork:
        """Returns the network policy."""
        return decode(models.SandboxNetwork, await self._call("GET", "/network"))

    async def set_network(self, policy: Literal["none", "public"] | models.NetworkPolicy | Mapping[str, Any],
                          ) -> models.SandboxNetwork:
        """Replaces the network policy: ``none``, ``public`` or rules."""
        body = {"net": policy} if isinstance(policy, str) else {"network": encode(policy)}
        return decode(models.SandboxNetwork, await self._call("PUT", "/network", body))

    async def flows(self) -> list[models.NetworkFlow]:
        """Lists the open connections."""
        return [decode(models.NetworkFlow, f) for f in await self._call("GET", "/network/flows") or []]

    async def network_log(self, *, follow: bool = False) -> AsyncIterator[dict[str, Any]]:
        """Yields the decisions about connections, oldest first."""
        async for line in self._connection.lines("GET", sandbox_path(self.id, "/network/log"),
                                                 params={"follow": follow}):
            yield line

    async def url(self, port: int) -> str:
        """Returns the URL of a server in the sandbox, for browsers and other clients.

        Raises UnsupportedError if the daemon cannot be reached by such names from here. A sandbox with private ports
        also needs the token ``info().traffic_token`` as a Bearer token.
        """
        version = decode(models.VersionInfo, await self._connection.call("GET", "/version"))
        info = self.last_info if self.last_info and self.last_info.dns_id else await self.info()
        return port_url(self._connection.address.shown, version.domain, info.dns_id, port)

    async def dial(self, port: int) -> socket.socket:
        """Connects to a TCP port of the guest. Returns a connected socket, which the caller closes.

        It is a blocking socket, also in AsyncForkd. At https:// it is one of the module ssl.
        """
        return await connect(self._connection, self.id, port)

    async def request_port(self, port: int, data: str | bytes, *, timeout: float = 30,
                           max_bytes: int = 256 << 20) -> bytes:
        """Sends data to a TCP port of the guest, and returns the whole answer.

        Raises GuestTimeoutError after ``timeout`` seconds without a byte, and TooLargeError beyond ``max_bytes``.
        """
        raw = data.encode() if isinstance(data, str) else data
        return await request(self._connection, self.id, port, raw, timeout, max_bytes)

    @asynccontextmanager
    async def forward_port(self, port: int, *, local_port: int = 0) -> AsyncIterator[tuple[str, int]]:
        """Forwards a port of this host's loopback to the guest's port. Yields the local address.

            with sandbox.forward_port(8000) as (host, port): ...
        """
        forward = AsyncPortForward(self._connection, self.id, port)
        try:
            yield await forward.listen(local_port)
        finally:
            await forward.aclose()

    # Waiting.

    async def wait_for_port(self, port: int, *, timeout: float = 30) -> None:
        """Waits until a server in the guest accepts connections. Raises GuestTimeoutError."""
        async def ready() -> bool:
            try:
                await probe(self._connection, self.id, port)
            except PortClosedError:
                return False
            return True
        await self._until(ready, timeout, f"nothing listens on port {port} of {self.id}")

    async def wait_for_text(self, text: str, path: str, *, timeout: float = 30) -> None:
        """Waits until a file of the guest contains a text. Raises GuestTimeoutError."""
        async def ready() -> bool:
            try:
                return text.encode() in await self.files.read(path)
            except NotFoundError:
                return False
        await self._until(ready, timeout, f"{path} of {self.id} does not contain {text!r}")

    async def wait_for_status(self, status: str, *, timeout: float = 60) -> models.SandboxInfo:
        """Waits for a status such as running or paused. Raises GuestTimeoutError."""
        async def ready() -> bool:
            return (await self.info()).status == status
        await self._until(ready, timeout, f"{self.id} is not {status}")
        assert self.last_info is not None
        return self.last_info

    async def _until(self, ready: Callable[[], Any], timeout: float, otherwise: str) -> None:
        end, wait = time.monotonic() + timeout, 0.02
        while not await ready():
            if time.monotonic() > end:
                raise GuestTimeoutError(f"{otherwise} after {timeout:g} s")
            await _aio.sleep(wait)
            wait = min(wait * 1.5, 1)

    async def _call(self, method: str, rest: str = "", body: Any = None, **more: Any) -> Any:
        return await self._connection.call(method, sandbox_path(self.id, rest), body=body, **more)


def _service(name: str, rest: str = "") -> str:
    return f"/services/{quote(name, safe='')}{rest}"


class Branch:
    """A snapshot of a running sandbox, with its children. As a context manager it ends them; the snapshot stays."""

    def __init__(self, connection: AsyncConnection, result: models.BranchResult) -> None:
        self.tag = result.tag
        self.pause_ms = result.pause_ms
        self.result = result
        rows = [decode(models.SandboxInfo, encode(c)) if not isinstance(c, models.SandboxInfo) else c
                for c in result.children or []]
        self.children = [AsyncSandbox(connection, c.id, c) for c in rows if not c.error]
        self.errors = [of_object({"error": c.error, "code": c.code, "reason": c.reason}) for c in rows if c.error]

    def __repr__(self) -> str:
        return f"<Branch {self.tag}, {len(self.children)} children>"

    async def __aenter__(self) -> Branch:
        return self

    async def __aexit__(self, *_: object) -> None:
        await kill_all(self.children)


async def kill_all(sandboxes: Sequence[AsyncSandbox]) -> None:
    """Ends sandboxes, 16 at a time, and then raises the first error. Those that have ended already are no error."""
    errors = [e async for e in _aio.in_order(_end, list(sandboxes), 16) if e is not None]
    if errors:
        raise errors[0]


async def _end(sandbox: AsyncSandbox) -> ForkdError | None:
    try:
        await sandbox.kill()
    except NotFoundError:
        pass
    except ForkdError as e:
        return e
    return None


def arguments(command: tuple[str | Sequence[str], ...]) -> list[str]:
    """Returns a command as a list. One string is for the shell."""
    if len(command) == 1 and isinstance(command[0], str):
        return ["sh", "-c", command[0]]
    if len(command) == 1:
        return [str(a) for a in command[0]]
    return [str(a) for a in command]


_MARK = "forkd-value:"


def _wrapped(code: str, as_: str) -> str:
    """Returns code whose last expression is printed in another form."""
    encoder = ("import json as _j; _t=_j.dumps(_v)" if as_ == "json"
               else "import pickle as _p, base64 as _b; _t=_b.b64encode(_p.dumps(_v)).decode()")
    return (f"def _forkd_value(_v):\n    {encoder}\n    return {_MARK!r} + _t\n"
            f"import ast as _forkd_ast\n"
            f"_forkd_tree = _forkd_ast.parse({code!r})\n"
            f"_forkd_last = _forkd_tree.body.pop() if _forkd_tree.body and "
            f"isinstance(_forkd_tree.body[-1], _forkd_ast.Expr) else None\n"
            f"exec(compile(_forkd_tree, '<eval>', 'exec'), globals())\n"
            f"_forkd_value(eval(compile(_forkd_ast.Expression(_forkd_last.value), '<eval>', 'eval'), globals()) "
            f"if _forkd_last else None)")


def _value(result: str, as_: str) -> Any:
    """Returns the value that wrapped code printed."""
    import ast
    import base64
    text = ast.literal_eval(result)
    if not isinstance(text, str) or not text.startswith(_MARK):
        raise EvalError(f"the interpreter answered {result[:200]}, which is no value in the form {as_}")
    data = text[len(_MARK):]
    return json.loads(data) if as_ == "json" else pickle.loads(base64.b64decode(data))
