"""Controller and Sandbox, with the methods and the plain dictionaries of the original forkd's Python client.

Programs that use its Controller run unchanged. Those that use its Sandbox import it from here, because forkd.Sandbox is
a class of this package. New programs use Forkd: its answers have types, and its errors have a class per code.
"""
from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal
from urllib.parse import quote

from ._base import EvalError, ForkdError
from ._codes import NotFoundError
from ._sync.client import Forkd
from ._sync.connection import clean, sandbox_path


class ControllerError(RuntimeError):
    """A refusal of the daemon: ``status`` of the answer, and its ``body`` with ``error``, ``code`` and ``hint``.

    ``status`` is 0 if no answer came. ``__cause__`` is the ForkdError.
    """

    def __init__(self, cause: ForkdError) -> None:
        super().__init__(f"HTTP {cause.status}: {cause.message}" if cause.status else cause.message)
        self.status = cause.status
        self.body: dict[str, Any] = {"error": cause.message, "code": cause.code}
        for name in ("reason", "hint", "request_id"):
            if getattr(cause, name):
                self.body[name] = getattr(cause, name)


class Controller:
    """A client of one daemon. Without arguments it finds the daemon as Forkd does."""

    def __init__(self, url: str | None = None, token: str | None = None, timeout: float = 60) -> None:
        self._forkd = Forkd(url, token, timeout=timeout)

    def __repr__(self) -> str:
        return f"<Controller {self._forkd.url}>"

    def __enter__(self) -> Controller:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes all connections. Sandboxes keep running."""
        self._forkd.close()

    def list_snapshots(self) -> list[dict[str, Any]]:
        """Lists the snapshots."""
        return list(self._call("GET", "/v1/snapshots") or [])

    def delete_snapshot(self, tag: str) -> None:
        """Deletes a snapshot."""
        self._call("DELETE", f"/v1/snapshots/{quote(tag, safe='')}")

    def spawn_sandboxes(self, snapshot_tag: str, n: int = 1, per_child_netns: bool = False,
                        memory_limit_mib: int | None = None, prewarm: bool | None = None,
                        live_fork: bool | None = None, hugepages: bool | None = None,
                        **more: Any) -> list[dict[str, Any]]:
        """Forks n sandboxes. A child that failed has an ``error`` and an empty ``id``."""
        body = clean({"snapshot_tag": snapshot_tag, "n": n, "per_child_netns": per_child_netns,
                      "memory_limit_mib": memory_limit_mib, "prewarm": prewarm, "live_fork": live_fork,
                      "hugepages": hugepages, **more})
        return list(self._call("POST", "/v1/sandboxes", body, timeout=600))

    def list_sandboxes(self) -> list[dict[str, Any]]:
        """Lists the sandboxes."""
        return list(self._call("GET", "/v1/sandboxes") or [])

    def get_sandbox(self, sandbox_id: str) -> dict[str, Any]:
        """Describes a sandbox."""
        return dict(self._call("GET", sandbox_path(sandbox_id)))

    def kill_sandbox(self, sandbox_id: str) -> None:
        """Ends a sandbox."""
        self._call("DELETE", sandbox_path(sandbox_id))

    def ping_sandbox(self, sandbox_id: str) -> dict[str, Any]:
        """Asks a guest for an answer."""
        return dict(self._call("POST", sandbox_path(sandbox_id, "/ping")))

    def exec_command(self, sandbox_id: str, args: list[str], timeout_secs: float | None = None) -> dict[str, Any]:
        """Runs a program: ``stdout``, ``stderr`` and ``exit_code``."""
        body = clean({"args": args, "timeout_secs": timeout_secs})
        return dict(self._call("POST", sandbox_path(sandbox_id, "/exec"), body, timeout=_limit(timeout_secs)))

    def eval_code(self, sandbox_id: str, code: str, timeout_secs: float | None = None) -> dict[str, Any]:
        """Runs code in the warmed interpreter: ``result`` (its repr), ``error`` and ``exit_code``."""
        body = clean({"code": code, "timeout_secs": timeout_secs})
        got = dict(self._call("POST", sandbox_path(sandbox_id, "/eval"), body, timeout=_limit(timeout_secs)))
        return {"result": None, "error": None, **got}

    def branch_sandbox(self, sandbox_id: str, tag: str | None = None, diff: bool | None = None,
                       mode: str | None = None, wait: bool | None = None, measure_diff: bool | None = None,
                       **more: Any) -> dict[str, Any]:
        """Keeps a snapshot of a running sandbox. Mode is full, diff or live."""
        body = clean({"tag": tag, "diff": diff, "mode": mode, "wait": wait, "measure_diff": measure_diff, **more})
        return dict(self._call("POST", sandbox_path(sandbox_id, "/branch"), body, timeout=600))

    def _call(self, method: str, path: str, body: Any = None, timeout: float | None = None) -> Any:
        try:
            return self._forkd._connection.call(method, path, body=body, timeout=timeout)
        except ForkdError as e:
            raise ControllerError(e) from e


BranchMode = Literal["full", "diff", "live"]


@dataclass
class CommandResult:
    """The end of a program."""

    stdout: str
    stderr: str
    exit_code: int


class Commands:
    """The programs of a Sandbox."""

    def __init__(self, sandbox: Sandbox) -> None:
        self._sandbox = sandbox

    def run(self, cmd: str | Sequence[str], timeout: float = 30) -> CommandResult:
        """Runs a program: a string is for the shell, a sequence is a program with its arguments.

        A program that cannot start has the exit code 1, with the reason in stderr. ``timeout`` is in seconds.
        """
        try:
            got = self._sandbox.sandbox.exec(cmd if isinstance(cmd, str) else list(cmd), timeout=timeout)
        except ForkdError as e:
            return CommandResult("", e.message, 1)
        return CommandResult(got.stdout, got.stderr, got.exit_code)


class Sandbox:
    """One fork of a snapshot, which ends with kill() or with the ``with`` block.

    ``tag`` is by default that of FORKD_TAG, or pyagent. With ``spawn=False`` it uses a running sandbox: ``target`` is its
    id. ``timeout`` limits requests, in seconds.
    """

    def __init__(self, tag: str | None = None, target: str | None = None, timeout: float = 30, *,
                 spawn: bool = True) -> None:
        self.tag = tag or os.environ.get("FORKD_TAG", "pyagent")
        self.timeout = timeout
        self._spawned = spawn
        self._forkd = Forkd(timeout=timeout)
        if not spawn and not target:
            raise ValueError("spawn=False needs target, the id of a sandbox")
        self.sandbox = self._forkd.snapshot(self.tag).fork() if spawn else self._forkd.sandbox(target or "")
        self.target = self.sandbox.id
        self.commands = Commands(self)

    @classmethod
    def create(cls, *args: Any, **kwargs: Any) -> Sandbox:
        """Is the constructor under E2B's name."""
        return cls(*args, **kwargs)

    def eval(self, code: str) -> str | None:
        """Runs code in the warm interpreter, and returns its value's repr. Raises RuntimeError if the code fails."""
        try:
            got: str | None = self.sandbox.eval(code, timeout=self.timeout)
        except (EvalError, ForkdError) as e:
            raise RuntimeError(f"forkd eval: {e}") from e
        return got

    def ping(self) -> dict[str, Any]:
        """Asks the guest for an answer: ``pong``, and ``numpy_version`` if numpy is loaded."""
        got = self.sandbox.ping()
        return {"pong": got.pong, "pid": got.pid, **({"numpy_version": got.numpy_version} if got.numpy_version else {})}

    def kill(self) -> None:
        """Ends the sandbox, if this object forked it."""
        if self._spawned:
            self._spawned = False
            try:
                self.sandbox.kill()
            except NotFoundError:
                pass
        self._forkd.close()

    def __enter__(self) -> Sandbox:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()


def _limit(timeout_secs: float | None) -> float:
    """Returns the limit of a request in seconds. A program without a limit may run for a day."""
    return timeout_secs + 30 if timeout_secs is not None else 24 * 3600


__all__ = ["BranchMode", "CommandResult", "Controller", "ControllerError", "Sandbox"]
