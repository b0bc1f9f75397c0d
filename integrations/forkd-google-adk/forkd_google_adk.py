"""Google ADK's environment and code executor in forks of a warm snapshot.

    ForkdEnvironment(snapshot="py")    for EnvironmentToolset: a shell and files
    ForkdCodeExecutor(snapshot="py")   for LlmAgent(code_executor=...): Python in the warmed interpreter
"""
from __future__ import annotations

import base64
import mimetypes
import posixpath
from pathlib import Path, PurePosixPath
from typing import Any

from google.adk.code_executors.base_code_executor import BaseCodeExecutor
from google.adk.code_executors.code_execution_utils import CodeExecutionInput, CodeExecutionResult, File
from google.adk.environment import BaseEnvironment, ExecutionResult
from pydantic import PrivateAttr

import forkd
from forkd.frameworks import builtin_errors, run_async

__all__ = ["ForkdCodeExecutor", "ForkdEnvironment"]


class ForkdEnvironment(BaseEnvironment):
    """One fork, from initialize to close. ``options`` are those of Snapshot.fork."""

    def __init__(self, snapshot: str = "py", *, client: forkd.AsyncForkd | None = None, **options: Any) -> None:
        self._snapshot = snapshot
        self._own_client = client is None
        self._client = client
        self._options = options
        self._dir: str | None = None
        self.sandbox: forkd.AsyncSandbox | None = None

    async def initialize(self) -> None:
        if self.sandbox is not None:
            return
        if self._client is None:
            self._client = forkd.AsyncForkd()
        sandbox = await self._client.snapshot(self._snapshot).fork(**self._options)
        try:
            self._dir = (await sandbox.exec(["pwd", "-P"], check=True)).stdout.rstrip("\n")
        except BaseException:
            await sandbox.kill()
            raise
        self.sandbox, self.is_initialized = sandbox, True

    async def close(self) -> None:
        sandbox, self.sandbox, self.is_initialized = self.sandbox, None, False
        try:
            if sandbox is not None:
                await sandbox.kill()
        except forkd.NotFoundError:
            pass
        finally:
            if self._own_client and self._client is not None:
                await self._client.aclose()
                self._client = None

    def _ready(self) -> forkd.AsyncSandbox:
        if self.sandbox is None:
            raise RuntimeError("the environment is not initialized: await initialize() first")
        return self.sandbox

    @property
    def working_dir(self) -> Path:
        self._ready()
        return Path(str(self._dir))

    async def execute(self, command: str, *, timeout: float | None = None) -> ExecutionResult:
        got = await run_async(self._ready(), ["sh", "-c", command], cwd=self._dir, timeout=timeout)
        return ExecutionResult(got.exit_code, got.stdout, got.stderr, got.timed_out)

    def _path(self, path: Path | str) -> str:
        return posixpath.join(str(self._dir), PurePosixPath(path).as_posix())

    async def read_file(self, path: Path) -> bytes:
        where = self._path(path)
        with builtin_errors(where):
            return await self._ready().files.read(where)

    async def write_file(self, path: Path, content: str | bytes) -> None:
        where = self._path(path)
        with builtin_errors(where):
            await self._ready().files.write(where, content)


class ForkdCodeExecutor(BaseCodeExecutor):
    """Runs code blocks in the warmed interpreter.

    With ``stateful`` all blocks of an execution id share one fork, so variables stay; otherwise each block gets
    its own fork. ``close`` ends the forks.
    """

    snapshot: str = "py"
    stateful: bool = False
    options: dict[str, Any] = {}
    _client: Any = PrivateAttr(default=None)
    _sandboxes: dict[str, Any] = PrivateAttr(default_factory=dict)

    def __init__(self, client: forkd.Forkd | None = None, **fields: Any) -> None:
        super().__init__(**fields)
        self._client = client if client is not None else forkd.Forkd()

    def execute_code(self, invocation_context: Any, code_execution_input: CodeExecutionInput) -> CodeExecutionResult:
        if not self.stateful:
            with self._fork() as sandbox:
                return self._run(sandbox, code_execution_input)
        key = code_execution_input.execution_id or getattr(invocation_context, "invocation_id", "")
        if key not in self._sandboxes:
            self._sandboxes[key] = self._fork()
        return self._run(self._sandboxes[key], code_execution_input)

    def _fork(self) -> forkd.Sandbox:
        return self._client.snapshot(self.snapshot).fork(**self.options)

    def _run(self, sandbox: forkd.Sandbox, given: CodeExecutionInput) -> CodeExecutionResult:
        for file in given.input_files:
            content = file.content if isinstance(file.content, bytes) else file.content.encode()
            sandbox.files.write(file.name, content)
        before = {e.name: e.modified for e in sandbox.files.list(".")}
        try:
            got = sandbox.eval_raw(given.code, timeout=self.timeout_seconds)
        except forkd.GuestTimeoutError as e:
            return CodeExecutionResult(stderr=f"{e.message}\n")
        stdout = got.stdout or ""
        if got.result is not None:
            stdout += got.result + "\n"
        return CodeExecutionResult(stdout=stdout, stderr=(got.stderr or "") + (got.error or ""),
                                   output_files=self._made(sandbox, before))

    def _made(self, sandbox: forkd.Sandbox, before: dict[str, str]) -> list[File]:
        """Returns the files of the working directory that the code made or changed."""
        files = []
        for e in sandbox.files.list("."):
            if e.type == "file" and before.get(e.name) != e.modified:
                content = base64.b64encode(sandbox.files.read(e.path)).decode()
                kind = mimetypes.guess_type(e.name)[0] or "application/octet-stream"
                files.append(File(name=e.name, content=content, mime_type=kind))
        return files

    def close(self) -> None:
        """Ends all forks."""
        while self._sandboxes:
            _, sandbox = self._sandboxes.popitem()
            try:
                sandbox.kill()
            except forkd.NotFoundError:
                pass
