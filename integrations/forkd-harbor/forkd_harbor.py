"""Harbor's environment as a fork of the task's snapshot: each trial starts warm.

    harbor run -p tasks -a oracle -e forkd_harbor:ForkdEnvironment --ek snapshot=py

The snapshot is the keyword ``snapshot``, or the task's name with ``prefix`` before it. Build the snapshots once,
with ``forkd snapshot create``; Harbor's Dockerfiles are not built here.
"""
from __future__ import annotations

import asyncio
import posixpath
import shutil
import tempfile
from pathlib import Path
from typing import Any

from harbor.environments.base import BaseEnvironment, ExecResult
from harbor.environments.capabilities import EnvironmentCapabilities, EnvironmentResourceCapabilities

import forkd
from forkd.frameworks import builtin_errors, run_async

__all__ = ["ForkdEnvironment"]

_DIRS = ("/logs/agent", "/logs/verifier", "/logs/artifacts", "/tests", "/solution", "/app")


class ForkdEnvironment(BaseEnvironment):
    """One fork per trial. ``ttl`` is in seconds and ends forks that a killed job leaves behind."""

    def __init__(self, *args: Any, snapshot: str | None = None, prefix: str = "", ttl: float = 6 * 3600,
                 client: forkd.AsyncForkd | None = None, **kwargs: Any) -> None:
        self._tag = snapshot
        self._prefix = prefix
        self._ttl = float(ttl)
        self._own_client = client is None
        self._client = client
        self.sandbox: forkd.AsyncSandbox | None = None
        super().__init__(*args, **kwargs)

    @staticmethod
    def type() -> str:
        return "forkd"

    @property
    def capabilities(self) -> EnvironmentCapabilities:
        return EnvironmentCapabilities(disable_internet=True)

    @classmethod
    def resource_capabilities(cls) -> EnvironmentResourceCapabilities:
        return EnvironmentResourceCapabilities(cpu_limit=True, memory_limit=True, fractional_cpus=True)

    def _validate_definition(self) -> None:
        """Accepts any task: the snapshot stands for its image, and start reports a missing one."""

    @property
    def snapshot(self) -> str:
        """The tag of the task's snapshot."""
        return self._tag or f"{self._prefix}{self.environment_name}"

    # Life.

    async def start(self, force_build: bool) -> None:
        if force_build:
            self.logger.warning("forkd does not build: the snapshot %s is used as it is", self.snapshot)
        if self._client is None:
            self._client = forkd.AsyncForkd()
        config = self.task_env_config
        self.sandbox = await self._client.snapshot(self.snapshot).fork(
            ttl=self._ttl, network="none" if self._no_network() else None, memory_limit_mib=self._memory(),
            cpus=config.cpus or None)
        dirs = " ".join(_DIRS)
        await self.sandbox.exec(f"mkdir -p {dirs} && chmod 777 {dirs}", user="root", check=True)

    def _no_network(self) -> bool:
        return self.network_policy.network_mode.value == "no-network"

    def _memory(self) -> int | None:
        return self.task_env_config.memory_mb or None

    async def stop(self, delete: bool) -> None:
        """Ends the fork, or pauses it to keep its state."""
        sandbox, self.sandbox = self.sandbox, None
        try:
            if sandbox is not None:
                await (sandbox.kill() if delete else sandbox.pause())
        except forkd.NotFoundError:
            pass
        finally:
            if self._own_client and self._client is not None:
                await self._client.aclose()
                self._client = None

    def _ready(self) -> forkd.AsyncSandbox:
        if self.sandbox is None:
            raise RuntimeError("the environment is not started")
        return self.sandbox

    # Programs. As in Harbor's containers, root is the default user.

    async def exec(self, command: str, cwd: str | None = None, env: dict[str, str] | None = None,
                   timeout_sec: int | None = None, user: str | int | None = None) -> ExecResult:
        user = self._resolve_user(user)
        got = await run_async(self._ready(), ["bash", "-c", command], cwd=cwd or self.task_env_config.workdir or "/app",
                              env=self._merge_env(env), user=await self._name(user), timeout=timeout_sec)
        if got.timed_out:
            raise TimeoutError(f"the command ran for more than {timeout_sec} s")
        return ExecResult(stdout=got.stdout, stderr=got.stderr, return_code=got.exit_code)

    async def _name(self, user: str | int | None) -> str:
        if user is None:
            return "root"
        if not str(user).isdigit():
            return str(user)
        got = await self._ready().exec(["id", "-un", str(user)], check=True)
        return got.stdout.strip()

    # Files, with the rights of root.

    @property
    def _files(self) -> forkd._async.files.AsyncFiles:
        return self._ready().files.as_user("root")

    async def upload_file(self, source_path: Path | str, target_path: str) -> None:
        await self._files.mkdir(posixpath.dirname(target_path) or ".", exist_ok=True)
        mode = Path(source_path).stat().st_mode & 0o777
        await self._files.write(target_path, Path(source_path).read_bytes(), mode=mode)

    async def upload_dir(self, source_dir: Path | str, target_dir: str) -> None:
        await self._files.mkdir(target_dir, exist_ok=True)
        await self._files.copy_to(source_dir, target_dir)

    async def download_file(self, source_path: str, target_path: Path | str) -> None:
        target = Path(target_path)
        target.parent.mkdir(parents=True, exist_ok=True)
        with builtin_errors(source_path), target.open("wb") as f:
            async for chunk in self._files.iter(source_path):
                f.write(chunk)

    async def download_dir(self, source_dir: str, target_dir: Path | str) -> None:
        with tempfile.TemporaryDirectory() as d:
            copy = Path(d) / "copy"
            with builtin_errors(source_dir):
                await self._files.copy_from(source_dir, copy)
            await asyncio.to_thread(shutil.copytree, copy, target_dir, symlinks=True, dirs_exist_ok=True)
