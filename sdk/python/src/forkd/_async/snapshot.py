"""Snapshots."""
from __future__ import annotations

import os
import tempfile
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from typing import Any, Literal, overload
from urllib.parse import quote

from .. import models
from .._base import ForkdError, ForkError
from .._codes import ConnectionBrokenError
from .._decode import decode, encode
from .._layout import Layout
from ..errors import of_object
from .connection import AsyncConnection, clean
from .sandbox import AsyncSandbox, kill_all


class AsyncForks(list[AsyncSandbox]):
    """The children of one fork. As a context manager it kills them at the end.

    ``errors`` has those of the children that failed, with ``partial``.
    """

    def __init__(self, children: Iterable[AsyncSandbox] = (), errors: Iterable[ForkdError] = ()) -> None:
        super().__init__(children)
        self.errors = list(errors)

    async def __aenter__(self) -> AsyncForks:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.kill()

    async def kill(self) -> None:
        """Ends all children, and then raises the first error. Those that have ended already are no error."""
        await kill_all(self)


class AsyncSnapshot:
    """A frozen virtual machine that sandboxes are forked from."""

    def __init__(self, connection: AsyncConnection, tag: str) -> None:
        self._connection = connection
        self.tag = tag

    def __repr__(self) -> str:
        return f"<Snapshot {self.tag}>"

    @overload
    async def fork(self, n: None = None, **options: Any) -> AsyncSandbox: ...
    @overload
    async def fork(self, n: int, **options: Any) -> AsyncForks: ...

    async def fork(self, n: int | None = None, *, ttl: float | None = None, idle: float | None = None,
                   at_end: Literal["kill", "pause"] | None = None, auto_resume: bool | None = None,
                   env: Mapping[str, str] | None = None, memory_limit_mib: int | None = None,
                   cpus: float | None = None, disk_limit_mib: int | None = None,
                   labels: Mapping[str, str] | None = None,
                   network: Literal["none", "public"] | models.NetworkPolicy | Mapping[str, Any] | None = None,
                   guest_fork: bool | None = None, identity: bool | None = None, partial: bool = False,
                   on_child: Callable[[AsyncSandbox], Any] | None = None,
                   **more: Any) -> AsyncSandbox | AsyncForks:
        """Forks one sandbox, or n (1 to 1000) as a list.

        ``ttl`` and ``idle`` are in seconds. ``more`` takes the other fields of the API, such as ``cpu_weight``.
        ``on_child`` is called with each child as soon as it runs. If some children fail, it raises ForkError,
        with the others in its ``sandboxes``; with ``partial`` it returns the others, and has the errors in ``errors``.
        """
        body = clean({
            "snapshot_tag": self.tag, "n": 1 if n is None else n, "ttl_secs": ttl, "idle_secs": idle,
            "at_end": at_end, "auto_resume": auto_resume, "env": dict(env) if env else None,
            "memory_limit_mib": memory_limit_mib, "cpus": cpus, "disk_limit_mib": disk_limit_mib,
            "guest_fork": guest_fork, "identity": identity, "labels": dict(labels) if labels else None, **more})
        if network is not None:
            body |= {"net": network} if isinstance(network, str) else {"network": encode(network)}
        rows: list[models.SandboxInfo] = []
        async for row in self._rows(body):
            rows.append(row)
            if on_child is not None and not row.error:
                on_child(AsyncSandbox(self._connection, row.id, row))
        rows.sort(key=lambda r: r.index or 0)
        errors = [of_object({"error": r.error, "code": r.code, "reason": r.reason}) for r in rows if r.error]
        children = AsyncForks((AsyncSandbox(self._connection, r.id, r) for r in rows if not r.error), errors)
        if n is None:
            if errors:
                raise errors[0]
            if not children:
                raise ConnectionBrokenError(f"the fork of {self.tag} has no child", reason="maybe_done")
            return children[0]
        if errors and not partial:
            raise ForkError(f"{len(errors)} of {n} children of {self.tag} failed, the first: {errors[0].message}",
                            list(children), errors)
        return children

    async def _rows(self, body: dict[str, Any]) -> AsyncIterator[models.SandboxInfo]:
        """Yields the children of a fork as they come."""
        ended = False
        async for line in self._connection.lines("POST", "/v1/sandboxes", json=body, timeout=600):
            if isinstance(line, list):  # a daemon without streams
                for row in line:
                    yield decode(models.SandboxInfo, row)
                return
            if line.get("error"):
                raise of_object(line["error"])
            if line.get("child"):
                yield decode(models.SandboxInfo, line["child"])
            ended = ended or "fork" in line
        if not ended:
            raise ConnectionBrokenError(f"the fork of {self.tag} broke off", reason="maybe_done")

    async def info(self) -> models.SnapshotDetail:
        """Describes the snapshot, with its sizes and lineage. Raises NotFoundError."""
        return decode(models.SnapshotDetail, await self._call("GET", "/info"))

    async def label(self, labels: Mapping[str, str] | None = None, *,
                    remove: Iterable[str] = ()) -> models.SnapshotInfo:
        """Adds or replaces labels, and removes those with the keys ``remove``. Other labels stay."""
        body = clean({"set": dict(labels) if labels else None, "remove": list(remove) or None})
        return decode(models.SnapshotInfo, await self._call("PATCH", "/labels", body=body))

    async def rename(self, to: str) -> AsyncSnapshot:
        """Gives the snapshot another tag. Its sandboxes, labels and pool stay. Returns the snapshot by its new tag."""
        info = decode(models.SnapshotInfo, await self._call("POST", "/rename", body={"to": to}))
        return AsyncSnapshot(self._connection, info.tag)

    async def pin(self) -> models.SnapshotInfo:
        """Keeps the snapshot from expiry, and from deletion without force."""
        return await self.label({"forkd.pin": "true"})

    async def unpin(self) -> models.SnapshotInfo:
        """Undoes ``pin``."""
        return await self.label(remove=["forkd.pin"])

    async def expire(self, ttl: float | None) -> models.SnapshotInfo:
        """Lets the snapshot expire that many seconds from now. None means never."""
        if ttl is None:
            return await self.label(remove=["forkd.expires"])
        return await self.label({"forkd.expires": f"{ttl:f}s"})

    async def receipt(self) -> models.Receipt:
        """Returns the record of how the snapshot came to be."""
        return decode(models.Receipt, await self._call("GET", "/receipt"))

    async def diff(self, other: str | AsyncSnapshot, *, limit: int | None = None) -> models.SnapshotDiff:
        """Compares files, packages and processes with another snapshot."""
        tag = other if isinstance(other, str) else other.tag
        got = await self._call("GET", f"/diff/{quote(tag, safe='')}", params={"limit": limit}, timeout=600)
        return decode(models.SnapshotDiff, got)

    async def verify(self, progress: Callable[[int, int], Any] | None = None) -> models.VerifyResult:
        """Reads all of the snapshot and compares it with its digests. ``progress`` gets bytes read and total."""
        async for line in self._connection.lines("POST", self._path("/verify"), timeout=600):
            if line.get("error"):
                raise of_object(line["error"])
            result = line.get("result") or line.get("verify") or (line if "ok" in line else None)
            if result:
                return decode(models.VerifyResult, result)
            if progress is not None:
                progress(int(line.get("done", 0)), int(line.get("total", 0)))
        raise ConnectionBrokenError(f"the check of {self.tag} broke off")

    async def compact(self, to: str, progress: Callable[[models.Step], Any] | None = None) -> AsyncSnapshot:
        """Writes a snapshot that depends on no other."""
        await made(self._connection, self._path("/compact"), {"to": to}, progress)
        return AsyncSnapshot(self._connection, to)

    async def export(self, path: str | os.PathLike[str], progress: Callable[[int], Any] | None = None) -> None:
        """Writes the snapshot to one file, for ``import_snapshot`` on another host. An existing file is replaced.

        ``progress`` gets the bytes written so far. The file has the guest's memory and disks.
        """
        name = os.path.abspath(path)
        fd, part = tempfile.mkstemp(".part", os.path.basename(name) + ".", os.path.dirname(name))
        try:
            with open(fd, "wb") as f:
                async with self._connection.stream("GET", self._path("/export"), timeout=600) as answer:
                    async for chunk in answer.aiter_bytes():
                        f.write(chunk)
                        if progress is not None:
                            progress(f.tell())
            Layout(part).close()
            os.replace(part, name)
        except BaseException:
            if os.path.exists(part):
                os.unlink(part)
            raise

    async def delete(self, *, cascade: bool = False, force: bool = False) -> None:
        """Deletes the snapshot. ``cascade`` deletes those built on it, ``force`` keeps them."""
        await self._call("DELETE", "", params={"cascade": cascade, "force": force})

    async def publish(self, public: bool = True) -> models.SnapshotInfo:
        """Lets all tenants fork from the snapshot, or withdraws it."""
        return decode(models.SnapshotInfo, await self._call("PUT", "/public", {"public": public}))

    async def set_pool(self, size: int) -> None:
        """Sets how many VMs are kept prepared for forks."""
        await self._call("PUT", "/pool", {"size": size})

    def _path(self, rest: str) -> str:
        return f"/v1/snapshots/{quote(self.tag, safe='')}{rest}"

    async def _call(self, method: str, rest: str, body: Any = None, **more: Any) -> Any:
        return await self._connection.call(method, self._path(rest), body=body, **more)


async def made(connection: AsyncConnection, path: str, body: dict[str, Any],
               progress: Callable[[models.Step], Any] | None) -> models.SnapshotInfo:
    """Makes a snapshot and reports the steps."""
    async for line in connection.lines("POST", path, json=body, timeout=1800):
        if line.get("error"):
            raise of_object(line["error"])
        if line.get("snapshot") or "tag" in line:
            return decode(models.SnapshotInfo, line.get("snapshot") or line)
        if progress is not None:
            progress(decode(models.Step, line))
    raise ConnectionBrokenError(f"POST {path} broke off", reason="maybe_done")
