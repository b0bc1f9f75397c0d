"""Sandboxes of the OpenAI Agents SDK as forks of a warm snapshot.

    client = ForkdSandboxClient()
    options = ForkdSandboxClientOptions(snapshot="py")
    RunConfig(sandbox=SandboxRunConfig(client=client, options=options))

A session's workspace is persisted as a branch by default: the snapshot has memory and processes too, and the
archive that the framework keeps is its tag only.
"""
from __future__ import annotations

import io
import json
import shlex
import uuid
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Literal

from agents.sandbox.errors import (
    ExecTimeoutError,
    ExecTransportError,
    ExposedPortUnavailableError,
    WorkspaceArchiveReadError,
    WorkspaceArchiveWriteError,
    WorkspaceReadNotFoundError,
    WorkspaceStartError,
    WorkspaceWriteTypeError,
)
from agents.sandbox.manifest import Manifest
from agents.sandbox.session import SandboxSession, SandboxSessionState
from agents.sandbox.session.base_sandbox_session import BaseSandboxSession
from agents.sandbox.session.dependencies import Dependencies
from agents.sandbox.session.manager import Instrumentation
from agents.sandbox.session.runtime_helpers import RESOLVE_WORKSPACE_PATH_HELPER, RuntimeHelperScript
from agents.sandbox.session.sandbox_client import BaseSandboxClient, BaseSandboxClientOptions
from agents.sandbox.session.tar_workspace import shell_tar_exclude_args
from agents.sandbox.snapshot import SnapshotBase, SnapshotSpec, resolve_snapshot
from agents.sandbox.types import ExecResult, ExposedPortEndpoint, User
from agents.sandbox.util.tar_utils import UnsafeTarMemberError, validate_tar_bytes
from agents.sandbox.workspace_paths import sandbox_path_str
from pydantic import Field

import forkd
from forkd.frameworks import run_async

__all__ = ["ForkdSandboxClient", "ForkdSandboxClientOptions", "ForkdSandboxSession", "ForkdSandboxSessionState"]

# First line of an archive that is the tag of a branch.
_MAGIC = b"FORKD_BRANCH_V1\n"

Persistence = Literal["branch", "tar"]


class ForkdSandboxClientOptions(BaseSandboxClientOptions):
    """Settings of new sandboxes: the snapshot to fork, and the fork's lifetime (``ttl`` and ``idle`` in seconds).

    ``persistence`` is ``branch`` (a snapshot of the whole sandbox) or ``tar`` (the workspace's files).
    """

    type: Literal["forkd"] = "forkd"
    snapshot: str = "py"
    ttl: float | None = None
    idle: float | None = None
    env: dict[str, str] | None = None
    network: Literal["none", "public"] | None = None
    exposed_ports: tuple[int, ...] = ()
    pause_on_exit: bool = False
    persistence: Persistence = "branch"


class ForkdSandboxSessionState(SandboxSessionState):
    """Names of a session's sandbox and of the snapshots around it."""

    type: Literal["forkd"] = "forkd"
    sandbox_id: str
    options: ForkdSandboxClientOptions = Field(default_factory=ForkdSandboxClientOptions)
    branch_tag: str | None = None  # the newest branch of persist_workspace


class ForkdSandboxSession(BaseSandboxSession):
    """A session in one sandbox. Restoring a branch moves it to another sandbox, a fork of the branch."""

    state: ForkdSandboxSessionState

    def __init__(self, client: forkd.AsyncForkd, state: ForkdSandboxSessionState) -> None:
        self.state = state
        self._client = client
        self._sandbox = client.sandbox(state.sandbox_id)
        self._root_ready = state.workspace_root_ready
        self._ports = AsyncExitStack()
        self._endpoints: dict[int, ExposedPortEndpoint] = {}

    # Programs.

    async def _exec_internal(self, *command: str | Path, timeout: float | None = None) -> ExecResult:
        args, user = _user([str(c) for c in command])
        cwd = self.state.manifest.root if self._root_ready else None
        try:
            result = await run_async(self._sandbox, args, env=await self._env(), cwd=cwd, user=user, timeout=timeout)
        except forkd.ForkdError as e:
            raise ExecTransportError(command=command, context={"provider_error": str(e), "reason": e.code},
                                     cause=e, retryable=_retryable(e)) from e
        if result.timed_out:
            raise ExecTimeoutError(command=command, timeout_s=timeout, context={
                "stdout": result.stdout, "stderr": result.stderr})
        if result.dropped_bytes:
            raise ExecTransportError(command=command, context={"reason": "output_limit"}, retryable=False,
                                     message=f"{result.dropped_bytes} bytes of output are missing: use a file")
        return ExecResult(stdout=result.stdout_bytes, stderr=result.stderr_bytes, exit_code=result.exit_code)

    async def _env(self) -> dict[str, str]:
        return {**(self.state.options.env or {}), **await self.state.manifest.environment.resolve()}

    async def running(self) -> bool:
        try:
            return (await self._sandbox.info()).status == "running"
        except forkd.ForkdError:
            return False

    # Start and end.

    async def _prepare_backend_workspace(self) -> None:
        """Makes the root, which may be below a directory of root's, and gives it to the guest's user."""
        root = self._workspace_root_path().as_posix()
        try:
            name = (await self._sandbox.exec(["id", "-un"], check=True)).stdout.strip()
            await self._sandbox.exec(
                ["sh", "-c", '[ -d "$1" ] && exit; mkdir -p -- "$1" && chown "$2": -- "$1"', "sh", root, name],
                user="root", check=True)
        except forkd.ForkdError as e:
            raise WorkspaceStartError(path=Path(root), cause=e) from e
        self._root_ready = True

    def _mark_workspace_root_ready_from_probe(self) -> None:
        super()._mark_workspace_root_ready_from_probe()
        self._root_ready = True

    async def _after_start(self) -> None:
        if self._runtime_helper_cache_key != self._current_runtime_helper_cache_key():
            await self._ensure_runtime_helpers()

    def _runtime_helpers(self) -> tuple[RuntimeHelperScript, ...]:
        return (RESOLVE_WORKSPACE_PATH_HELPER,)

    def _current_runtime_helper_cache_key(self) -> object | None:
        return self.state.sandbox_id

    async def _shutdown_backend(self) -> None:
        await self._ports.aclose()
        self._endpoints.clear()
        try:
            await (self._sandbox.pause() if self.state.options.pause_on_exit else self._sandbox.kill())
        except (forkd.NotFoundError, forkd.GuestGoneError):
            pass

    async def _resolve_exposed_port(self, port: int) -> ExposedPortEndpoint:
        """Forwards a port of this host's loopback to the guest's."""
        if port not in self._endpoints:
            try:
                host, local = await self._ports.enter_async_context(self._sandbox.forward_port(port))
            except (forkd.ForkdError, OSError) as e:
                raise ExposedPortUnavailableError(port=port, exposed_ports=self.state.exposed_ports,
                                                  reason="backend_unavailable", cause=e) from e
            self._endpoints[port] = ExposedPortEndpoint(host=host, port=local, tls=False)
        return self._endpoints[port]

    # Files.

    async def _validate_path_access(self, path: Path | str, *, for_write: bool = False) -> Path:
        return await self._validate_remote_path_access(path, for_write=for_write)

    def _files(self, user: str | User | None) -> Any:
        name = user.name if isinstance(user, User) else user
        return self._sandbox.files.as_user(name) if name else self._sandbox.files

    async def read(self, path: Path, *, user: str | User | None = None) -> io.IOBase:
        where = await self._validate_path_access(path)
        try:
            return io.BytesIO(await self._files(user).read(sandbox_path_str(where)))
        except forkd.NotFoundError as e:
            raise WorkspaceReadNotFoundError(path=path, cause=e) from e
        except forkd.ForkdError as e:
            raise WorkspaceArchiveReadError(path=path, cause=e, retryable=_retryable(e)) from e

    async def _read_bounded(self, path: Path, *, max_bytes: int) -> bytes:
        where = await self._validate_path_access(path)
        kept = bytearray()
        try:
            async for chunk in self._sandbox.files.iter(sandbox_path_str(where)):
                kept += chunk
                if len(kept) >= max_bytes:
                    break
        except forkd.NotFoundError:
            raise WorkspaceReadNotFoundError(path=path) from None
        return bytes(kept[:max_bytes])

    async def write(self, path: Path, data: io.IOBase, *, user: str | User | None = None) -> None:
        content = data.read()
        if isinstance(content, str):
            content = content.encode()
        if not isinstance(content, (bytes, bytearray)):
            raise WorkspaceWriteTypeError(path=path, actual_type=type(content).__name__)
        where = await self._validate_path_access(path, for_write=True)
        try:
            await self._files(user).write(sandbox_path_str(where), bytes(content))
        except forkd.ForkdError as e:
            raise WorkspaceArchiveWriteError(path=where, cause=e) from e

    # Persistence.

    async def persist_workspace(self) -> io.IOBase:
        """Returns the tag of a new branch, or a tar of the files if the manifest leaves paths out."""
        if self.state.options.persistence == "branch" and not self._persist_workspace_skip_relpaths():
            return await self._persist_branch()
        return await self._persist_tar()

    async def _persist_branch(self) -> io.IOBase:
        tag = f"agents-{self.state.session_id.hex[:12]}-{uuid.uuid4().hex[:8]}"
        try:
            await self._sandbox.branch(0, tag=tag)
        except forkd.ForkdError as e:
            raise WorkspaceArchiveReadError(path=self._workspace_root_path(), cause=e, retryable=_retryable(e)) from e
        old, self.state.branch_tag = self.state.branch_tag, tag
        if old is not None:
            await self._forget(old)
        return io.BytesIO(_MAGIC + json.dumps({"tag": tag}).encode())

    async def _forget(self, tag: str) -> None:
        """Deletes an older branch. It stays if the sandbox still depends on it."""
        try:
            await self._client.snapshot(tag).delete()
        except forkd.ForkdError:
            pass

    async def _persist_tar(self) -> io.IOBase:
        root = self._workspace_root_path()
        spool = f"/tmp/.forkd-persist-{uuid.uuid4().hex}.tar"
        excludes = " ".join(shell_tar_exclude_args(self._persist_workspace_skip_relpaths()))
        try:
            await self._sandbox.exec(f"tar {excludes} -C {shlex.quote(root.as_posix())} -cf {spool} .", check=True)
            return io.BytesIO(await self._sandbox.files.read(spool, max_bytes=4 << 30))
        except forkd.ForkdError as e:
            raise WorkspaceArchiveReadError(path=root, cause=e, retryable=_retryable(e)) from e
        finally:
            await self._remove(spool)

    async def hydrate_workspace(self, data: io.IOBase) -> None:
        """Restores an archive of persist_workspace. For a branch, the session moves to a fork of it."""
        raw = data.read()
        if isinstance(raw, str):
            raw = raw.encode()
        if not isinstance(raw, (bytes, bytearray)):
            raise WorkspaceWriteTypeError(path=self._workspace_root_path(), actual_type=type(raw).__name__)
        tag = _tag(bytes(raw))
        if tag is None:
            await self._hydrate_tar(bytes(raw))
        else:
            await self._hydrate_branch(tag)

    async def _hydrate_branch(self, tag: str) -> None:
        try:
            fork = await _fork(self._client, tag, self.state.options)
        except forkd.ForkdError as e:
            raise WorkspaceArchiveWriteError(path=self._workspace_root_path(), context={"branch": tag},
                                             cause=e) from e
        old, self._sandbox = self._sandbox, fork
        self.state.sandbox_id, self._root_ready = fork.id, True
        try:
            await old.kill()
        except forkd.ForkdError:
            pass  # its ttl ends it

    async def _hydrate_tar(self, raw: bytes) -> None:
        root = self._workspace_root_path()
        spool = f"/tmp/.forkd-hydrate-{uuid.uuid4().hex}.tar"
        try:
            validate_tar_bytes(raw, allow_external_symlink_targets=False)
            await self._prepare_backend_workspace()
            await self._sandbox.files.write(spool, raw)
            await self._sandbox.exec(["tar", "-C", root.as_posix(), "-xf", spool], check=True)
        except (forkd.ForkdError, UnsafeTarMemberError) as e:
            raise WorkspaceArchiveWriteError(path=root, context={"detail": str(e)}, cause=e) from e
        finally:
            await self._remove(spool)

    async def _remove(self, path: str) -> None:
        try:
            await self._sandbox.files.remove(path)
        except forkd.ForkdError:
            pass


class ForkdSandboxClient(BaseSandboxClient[ForkdSandboxClientOptions]):
    """Makes sessions of forks. Without ``client`` it finds the daemon as the command line does."""

    backend_id = "forkd"
    supports_default_options = True

    def __init__(self, client: forkd.AsyncForkd | None = None, *, instrumentation: Instrumentation | None = None,
                 dependencies: Dependencies | None = None) -> None:
        self._client = client if client is not None else forkd.AsyncForkd()
        self._instrumentation = instrumentation if instrumentation is not None else Instrumentation()
        self._dependencies = dependencies

    async def create(self, *, snapshot: SnapshotSpec | SnapshotBase | None = None, manifest: Manifest | None = None,
                     options: ForkdSandboxClientOptions | None = None) -> SandboxSession:
        options = options if options is not None else ForkdSandboxClientOptions()
        manifest = self._validate_manifest_for_create(manifest if manifest is not None else Manifest())
        session = uuid.uuid4()
        sandbox = await _fork(self._client, options.snapshot, options)
        state = ForkdSandboxSessionState(
            session_id=session, manifest=manifest, snapshot=resolve_snapshot(snapshot, str(session)),
            sandbox_id=sandbox.id, options=options, exposed_ports=options.exposed_ports)
        return self._wrap_session(ForkdSandboxSession(self._client, state), instrumentation=self._instrumentation)

    async def delete(self, session: SandboxSession) -> SandboxSession:
        """Ends the session's sandbox. Its branch stays, so that resume can restore it."""
        inner = session._inner
        if not isinstance(inner, ForkdSandboxSession):
            raise TypeError("ForkdSandboxClient.delete expects a session of ForkdSandboxClient")
        try:
            await inner._sandbox.kill()
        except forkd.NotFoundError:
            pass
        return session

    async def forget(self, session: SandboxSession) -> None:
        """Deletes the session's sandbox and its newest branch. The session cannot be resumed then."""
        await self.delete(session)
        inner = session._inner
        assert isinstance(inner, ForkdSandboxSession)
        if inner.state.branch_tag:
            await self._client.snapshot(inner.state.branch_tag).delete()

    async def resume(self, state: SandboxSessionState) -> SandboxSession:
        """Goes on in the session's sandbox, which may be paused. If it has ended, it forks the first snapshot."""
        if not isinstance(state, ForkdSandboxSessionState):
            raise TypeError("ForkdSandboxClient.resume expects a ForkdSandboxSessionState")
        state.assert_path_grants_rebound()
        alive = await self._wake(state.sandbox_id)
        if not alive:
            state.sandbox_id = (await _fork(self._client, state.options.snapshot, state.options)).id
            state.workspace_root_ready = False
        inner = ForkdSandboxSession(self._client, state)
        inner._set_start_state_preserved(alive, system=alive)
        return self._wrap_session(inner, instrumentation=self._instrumentation)

    async def _wake(self, sandbox: str) -> bool:
        try:
            return (await self._client.sandbox(sandbox).resume()).status == "running"
        except (forkd.NotFoundError, forkd.GuestGoneError, forkd.ConflictError):
            return False

    def deserialize_session_state(self, payload: dict[str, object]) -> SandboxSessionState:
        return self._deserialize_session_state_payload(payload, ForkdSandboxSessionState)


async def _fork(client: forkd.AsyncForkd, tag: str, options: ForkdSandboxClientOptions) -> forkd.AsyncSandbox:
    return await client.snapshot(tag).fork(ttl=options.ttl, idle=options.idle, network=options.network)


def _user(args: list[str]) -> tuple[list[str], str | None]:
    """Takes off the prefix ``sudo -u NAME --``, which the framework puts before commands for a user."""
    if len(args) > 4 and args[:2] == ["sudo", "-u"] and args[3] == "--":
        return args[4:], args[2]
    return args, None


def _tag(raw: bytes) -> str | None:
    if not raw.startswith(_MAGIC):
        return None
    try:
        tag = json.loads(raw[len(_MAGIC):]).get("tag")
    except (ValueError, AttributeError):
        return None
    return tag if isinstance(tag, str) and tag else None


def _retryable(error: forkd.ForkdError) -> bool:
    return isinstance(error, (forkd.ConnectionBrokenError, forkd.UnreachableError, forkd.BusyError, forkd.ClosingError))
