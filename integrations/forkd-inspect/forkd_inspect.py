"""Inspect's sandboxes as forks of a warm snapshot: ``Task(sandbox=("forkd", "py"))``.

The configuration is a snapshot's tag or a ForkdConfig. Each sample gets its own fork. Files go by the native
routes, with the rights of the guest's user.
"""
from __future__ import annotations

import os
import posixpath
from typing import Any, Literal

from inspect_ai.util import (
    ExecResult,
    OutputLimitExceededError,
    SandboxEnvironment,
    SandboxEnvironmentLimits,
    SandboxUserUnsupportedError,
    sandboxenv,
)
from pydantic import BaseModel

import forkd
from forkd.frameworks import builtin_errors, run_async

try:
    from inspect_ai.util._sandbox.environment import SandboxUnavailableError
except ImportError:  # older versions
    SandboxUnavailableError = RuntimeError  # type: ignore[misc, assignment]

__all__ = ["ForkdConfig", "ForkdSandboxEnvironment"]

_RETRIES = (60, 30)  # seconds; the limits that Inspect names for repeated commands


class ForkdConfig(BaseModel, frozen=True):
    """The snapshot to fork, and limits of the forks. ``ttl`` is in seconds."""

    snapshot: str = "py"
    ttl: float | None = 6 * 3600
    memory_limit_mib: int | None = None
    network: Literal["none", "public"] | None = None
    env: dict[str, str] = {}

    def __hash__(self) -> int:  # Inspect keeps configurations in a dict
        return hash((self.snapshot, self.ttl, self.memory_limit_mib, self.network, *sorted(self.env.items())))


@sandboxenv(name="forkd")
class ForkdSandboxEnvironment(SandboxEnvironment):
    """One fork."""

    def __init__(self, sandbox: forkd.AsyncSandbox, home: str, client: forkd.AsyncForkd | None = None) -> None:
        super().__init__()
        self.sandbox = sandbox
        self._home = home
        self._client = client

    # Life.

    @classmethod
    async def sample_init(cls, task_name: str, config: Any, metadata: dict[str, str]) -> dict[str, SandboxEnvironment]:
        settings = _settings(config)
        client = forkd.AsyncForkd()
        try:
            return {"default": await cls.start(client, settings)}
        except BaseException:
            await client.aclose()
            raise

    @classmethod
    async def start(cls, client: forkd.AsyncForkd, settings: ForkdConfig) -> ForkdSandboxEnvironment:
        """Forks a sandbox. Its user's home directory is the working directory."""
        sandbox = await client.snapshot(settings.snapshot).fork(
            ttl=settings.ttl, memory_limit_mib=settings.memory_limit_mib, network=settings.network,
            env=settings.env or None)
        try:
            home = (await sandbox.exec(["pwd"], check=True)).stdout.rstrip("\n")
        except BaseException:
            await sandbox.kill()
            raise
        return cls(sandbox, home, client)

    @classmethod
    async def sample_cleanup(cls, task_name: str, config: Any, environments: dict[str, SandboxEnvironment],
                             interrupted: bool) -> None:
        for environment in environments.values():
            mine = environment.as_type(ForkdSandboxEnvironment)
            try:
                await mine.sandbox.kill()
            except forkd.NotFoundError:
                pass
            if mine._client is not None:
                await mine._client.aclose()

    @classmethod
    async def cli_cleanup(cls, id: str | None) -> None:
        """Ends the sandbox with an id, for samples that ran with --no-sandbox-cleanup."""
        if id is None:
            raise ValueError("name the sandbox: inspect sandbox cleanup forkd ID (forkd ps lists them)")
        async with forkd.AsyncForkd() as client:
            await client.sandbox(id).kill()

    @classmethod
    def config_deserialize(cls, config: dict[str, Any]) -> BaseModel:
        return ForkdConfig(**config)

    def default_polling_interval(self) -> float:
        return 0.2

    # Programs.

    async def exec(self, cmd: list[str], input: str | bytes | None = None, cwd: str | None = None,
                   env: dict[str, str] | None = None, user: str | None = None, timeout: int | None = None,
                   timeout_retry: bool = True, concurrency: bool = True) -> ExecResult[str]:
        limits = [timeout]
        if timeout is not None and timeout_retry:
            limits += [min(timeout, most) for most in _RETRIES]
        for limit in limits:
            got = await self._run(cmd, input, cwd, env, user, limit)
            if not got.timed_out:
                return self._result(got)
        raise TimeoutError(f"the command ran for more than {timeout} s")

    async def _run(self, cmd: list[str], input: str | bytes | None, cwd: str | None, env: dict[str, str] | None,
                   user: str | None, timeout: int | None) -> forkd.ExecResult:
        try:
            got = await run_async(self.sandbox, cmd, stdin=input, cwd=self._path(cwd) if cwd else self._home, env=env,
                                  user=user, timeout=timeout)
        except forkd.InvalidRequestError as e:
            if user is not None and "username" in e.message:
                return forkd.ExecResult(b"", e.message.encode(), 1)
            raise
        except (forkd.NotFoundError, forkd.GuestGoneError, forkd.UnreachableError, forkd.ConflictError) as e:
            raise SandboxUnavailableError(str(e)) from e
        if got.exit_code == 126 and got.stderr.startswith("command '"):
            raise PermissionError(got.stderr.strip())
        return got

    def _result(self, got: forkd.ExecResult) -> ExecResult[str]:
        most = SandboxEnvironmentLimits.MAX_EXEC_OUTPUT_SIZE
        for stream in (got.stdout_bytes, got.stderr_bytes):
            if len(stream) > most or got.dropped_bytes:
                raise OutputLimitExceededError(SandboxEnvironmentLimits.MAX_EXEC_OUTPUT_SIZE_STR,
                                               stream[:most].decode("utf-8", "replace"))
        return ExecResult(got.exit_code == 0, got.exit_code, got.stdout, got.stderr)

    # Files.

    def _path(self, file: str) -> str:
        return posixpath.join(self._home, file)

    async def write_file(self, file: str, contents: str | bytes) -> None:
        path = self._path(file)
        with builtin_errors(path):
            await self.sandbox.files.write(path, contents)

    async def read_file(self, file: str, text: bool = True) -> Any:
        path, most = self._path(file), SandboxEnvironmentLimits.MAX_READ_FILE_SIZE
        with builtin_errors(path):
            try:
                content = await self.sandbox.files.read(path, max_bytes=most)
            except forkd.TooLargeError as e:
                raise OutputLimitExceededError(SandboxEnvironmentLimits.MAX_READ_FILE_SIZE_STR, None) from e
        return content.decode() if text else content


def _settings(config: Any) -> ForkdConfig:
    if isinstance(config, ForkdConfig):
        return config
    if isinstance(config, str):
        return ForkdConfig(snapshot=os.path.basename(config))  # Inspect makes paths of names
    if config is None:
        return ForkdConfig(snapshot=os.environ.get("FORKD_SNAPSHOT", "py"))
    raise TypeError(f"the configuration of a forkd sandbox is a tag or a ForkdConfig, not {type(config).__name__}")
