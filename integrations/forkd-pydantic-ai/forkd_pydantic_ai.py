"""A workspace of Pydantic AI in a fork of a warm snapshot.

    async with forkd.AsyncForkd() as client:
        workspace = Workspace(ForkdWorkspaceBackend(client, "py"))

The backend never ends its sandbox: whoever holds the ref does, or the sandbox's lifetime.
"""
from __future__ import annotations

import asyncio
import posixpath
from collections.abc import Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from pydantic_ai.workspaces import (
    CommandResult,
    FileEntry,
    SupportsCommands,
    SupportsFilesystem,
    SupportsRealpath,
    WorkspaceBackend,
    WorkspaceRef,
    WorkspaceTimeoutError,
    WorkspaceUnavailableError,
)
from pydantic_ai.workspaces.protocol import WorkspaceOutputLimitError, validate_timeout

import forkd
from forkd.frameworks import builtin_errors, run_async

__all__ = ["ForkdWorkspaceBackend"]

PROVIDER = "forkd"
_REALPATH = "import os, sys; sys.stdout.write(os.path.realpath(sys.argv[1]))"
# What the daemon answers for a sandbox that has ended, or ends during a request.
_GONE = (forkd.GuestGoneError, forkd.ConnectionBrokenError)


class ForkdWorkspaceBackend(WorkspaceBackend, SupportsCommands, SupportsFilesystem, SupportsRealpath):
    """One sandbox: a new fork of ``snapshot`` at the first use, or that of ``ref``.

    ``options`` are those of Snapshot.fork, such as ``ttl`` (seconds) and ``network``.
    """

    def __init__(self, client: forkd.AsyncForkd, snapshot: str = "py", *, ref: WorkspaceRef | None = None,
                 **options: Any) -> None:
        if ref is not None and ref.provider != PROVIDER:
            raise ValueError(f"the ref is of the provider {ref.provider!r}, not {PROVIDER!r}")
        self._client = client
        self._snapshot = snapshot
        self._options = options
        self._ref = ref
        self._making: asyncio.Task[None] | None = None
        self._sandbox: forkd.AsyncSandbox | None = None
        self._dir: str | None = None

    @property
    def ref(self) -> WorkspaceRef | None:
        return self._ref

    async def _ready(self) -> forkd.AsyncSandbox:
        """Returns the sandbox. A cancelled caller does not cancel the fork, so no sandbox is lost."""
        if self._dir is None:
            if self._making is None or (self._making.done() and self._dir is None):
                self._making = asyncio.ensure_future(self._make())
            await asyncio.shield(self._making)
        assert self._sandbox is not None
        return self._sandbox

    async def _make(self) -> None:
        with self._unavailable():
            if self._ref is None:
                self._sandbox = await self._client.snapshot(self._snapshot).fork(**self._options)
                self._ref = WorkspaceRef(provider=PROVIDER, id=self._sandbox.id)
            sandbox = self._sandbox = self._client.sandbox(self._ref.id)
            self._dir = (await sandbox.exec(["pwd", "-P"], check=True)).stdout.rstrip("\n")

    @contextmanager
    def _unavailable(self):
        try:
            yield
        except _GONE as e:
            raise WorkspaceUnavailableError(str(e)) from e
        except forkd.NotFoundError as e:
            raise WorkspaceUnavailableError(str(e)) from e

    async def working_dir(self) -> str:
        with self._unavailable():
            sandbox = await self._ready()
            await sandbox.info()
        assert self._dir is not None
        return self._dir

    # Programs.

    async def run(self, command: str | Sequence[str], *, shell: bool = False, env: Mapping[str, str] | None = None,
                  timeout: float | None = None) -> CommandResult:
        if isinstance(command, str) != shell:
            raise TypeError("a string needs shell=True, and a sequence of arguments shell=False")
        validate_timeout(timeout)
        args = ["sh", "-c", command] if isinstance(command, str) else list(command)
        sandbox = await self._ready()
        with self._unavailable():
            got = await run_async(sandbox, args, env=env, cwd=self._dir, timeout=timeout)
            if got.exit_code == 137:
                await sandbox.info()  # killed by its guest, or with it
        if got.timed_out:
            raise WorkspaceTimeoutError(f"the command ran for {timeout:g} s and was killed", stdout=got.stdout,
                                        stderr=got.stderr)
        if got.dropped_bytes:
            kept = len(got.stdout_bytes) + len(got.stderr_bytes)
            raise WorkspaceOutputLimitError(f"the command wrote {got.dropped_bytes} bytes more than are kept",
                                            limit=kept, stdout=got.stdout, stderr=got.stderr)
        return CommandResult(exit_code=got.exit_code, stdout=got.stdout, stderr=got.stderr)

    # Files.

    @contextmanager
    def _file(self, path: str):
        """Tells errors of the file from those of the sandbox."""
        with self._unavailable(), builtin_errors(path):
            yield

    async def read_bytes(self, path: str) -> bytes:
        sandbox = await self._ready()
        with self._file(path):
            return await sandbox.files.read(path)

    async def write_bytes(self, path: str, data: bytes) -> None:
        sandbox = await self._ready()
        with self._file(path):
            await sandbox.files.write(path, data)

    async def stat(self, path: str) -> FileEntry:
        sandbox = await self._ready()
        with self._file(path):
            return _entry(await sandbox.files.stat(path), path)

    async def list_dir(self, path: str) -> list[FileEntry]:
        sandbox = await self._ready()
        with self._file(path):
            return [_entry(e, posixpath.join(path, e.name)) for e in await sandbox.files.list(path)]

    async def make_dir(self, path: str) -> None:
        sandbox = await self._ready()
        with self._file(path):
            await sandbox.files.mkdir(path, exist_ok=True)

    async def remove(self, path: str) -> None:
        sandbox = await self._ready()
        assert self._dir is not None
        target = posixpath.normpath(path)
        if self._dir == target or self._dir.startswith(target.rstrip("/") + "/"):
            raise ValueError(f"{path} is the working directory or above it")
        with self._file(path):
            await sandbox.files.stat(path)
            await sandbox.files.remove(path)

    async def exists(self, path: str) -> bool:
        try:
            await self.stat(path)
        except (FileNotFoundError, NotADirectoryError):
            return False
        return True

    async def realpath(self, path: str) -> str:
        result = await self.run(["python3", "-c", _REALPATH, path])
        if result.exit_code != 0:
            raise OSError(result.stderr.strip() or f"the path {path} has no real path")
        return result.stdout


def _entry(e: forkd.Entry, path: str) -> FileEntry:
    return FileEntry(name=posixpath.basename(path), path=path, is_dir=e.is_dir,
                     size=e.size if e.type == "file" and not e.symlink_target else None)
