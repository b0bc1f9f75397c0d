"""Files of a sandbox."""
from __future__ import annotations

import json
import os
import tempfile
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, BinaryIO

from .. import _aio
from .._codes import ConflictError, NotFoundError, TooLargeError
from .._results import Change, Entry
from .._tree import pack, unpack
from ..errors import of_object
from .connection import AsyncConnection, agent_path

_KINDS = {"FILE_TYPE_FILE": "file", "FILE_TYPE_DIRECTORY": "directory", "FILE_TYPE_SYMLINK": "symlink"}


class AsyncFiles:
    """Reads and writes the files of a sandbox, with the rights of a user of the guest."""

    def __init__(self, connection: AsyncConnection, sandbox: str, user: str | None = None) -> None:
        self._connection = connection
        self.sandbox_id = sandbox
        self._user = user

    def as_user(self, user: str) -> AsyncFiles:
        """Returns the same files with the rights of another user."""
        return AsyncFiles(self._connection, self.sandbox_id, user)

    async def read(self, path: str, *, max_bytes: int = 256 << 20) -> bytes:
        """Returns the content of a file. Raises TooLargeError if it has more than max_bytes."""
        kept = bytearray()
        async for chunk in self.iter(path):
            kept += chunk
            if len(kept) > max_bytes:
                raise TooLargeError(f"{path} in {self.sandbox_id} has more than {max_bytes} bytes",
                                    hint="read it in pieces with iter, or give a higher max_bytes")
        return bytes(kept)

    async def read_text(self, path: str, encoding: str = "utf-8", *, max_bytes: int = 256 << 20) -> str:
        """Returns the content of a file as text. Raises TooLargeError if it has more than max_bytes."""
        return (await self.read(path, max_bytes=max_bytes)).decode(encoding)

    async def iter(self, path: str) -> AsyncIterator[bytes]:
        """Yields the content of a file in pieces."""
        async with self._connection.stream("GET", agent_path(self.sandbox_id, "files"), params=self._at(path),
                                           headers={"Accept-Encoding": "identity"}, timeout=60) as answer:
            async for chunk in answer.aiter_bytes():
                yield chunk

    async def write(self, path: str, content: str | bytes | BinaryIO, *, mode: int | None = None) -> None:
        """Writes a file and creates the directories above it. The old content stays until all has arrived."""
        data: Any = content.encode() if isinstance(content, str) else content
        if hasattr(data, "read"):  # large files are not kept in memory
            data = _aio.upload(_aio.pieces(data), None)
        params = self._at(path)
        if mode is not None:
            params["mode"] = f"{mode & 0o777:o}"
        await self._connection.raw("POST", agent_path(self.sandbox_id, "files"), content=data, params=params,
                                   headers={"Content-Type": "application/octet-stream"}, timeout=600)

    async def stat(self, path: str) -> Entry:
        """Describes a file. Raises NotFoundError if there is none."""
        return entry((await self._call("Stat", path=path)).get("entry", {}))

    async def exists(self, path: str) -> bool:
        """Reports whether there is a file."""
        try:
            await self.stat(path)
        except NotFoundError:
            return False
        return True

    async def list(self, path: str, *, depth: int = 1) -> list[Entry]:
        """Lists a directory, depth levels deep."""
        got = await self._call("ListDir", path=path, depth=depth)
        return [entry(e) for e in got.get("entries", [])]

    async def mkdir(self, path: str, *, exist_ok: bool = False) -> None:
        """Makes a directory, and those above it."""
        try:
            await self._call("MakeDir", path=path)
        except ConflictError:
            if not exist_ok:
                raise

    async def rename(self, source: str, target: str) -> None:
        """Renames a file or a directory."""
        await self._call("Move", source=source, destination=target)

    async def remove(self, path: str) -> None:
        """Removes a file, or a directory with all its content."""
        await self._call("Remove", path=path)

    async def watch(self, path: str, *, recursive: bool = False,
                    on_ready: Callable[[], Any] | None = None) -> AsyncIterator[Change]:
        """Yields changes below a directory, until the caller stops. ``on_ready`` is called when it sees changes."""
        body = {"path": path, "recursive": recursive}
        async for event in self._connection.agent_stream(self.sandbox_id, "filesystem.Filesystem/WatchDir", body,
                                                         self._user):
            got = event.get("event", event)
            if "start" in got and on_ready is not None:
                on_ready()
            if "filesystem" in got:
                change = got["filesystem"]
                yield Change(str(change.get("type", "")).removeprefix("EVENT_TYPE_").lower(), change.get("name", ""))

    async def copy_to(self, source: str | os.PathLike[str], target: str,
                      progress: Callable[[int], Any] | None = None) -> None:
        """Copies a file or a directory of this host to target, with modes, times, links and hard links.

        ``progress`` is called with the bytes sent so far. Raises ForkdError if a file could not be written.
        """
        os.lstat(source)
        got = await self._connection.raw(
            "POST", agent_path(self.sandbox_id, "files/tree"), params=self._at(target), timeout=600,
            content=_aio.upload(pack(source), progress), headers={"Content-Type": "application/x-tar"})
        report = json.loads(got or b"{}")
        failed = report.get("failed") or []
        stopped = report.get("stopped")
        if stopped:
            raise of_object({"error": stopped.get("message", "the copy stopped")}, int(stopped.get("code", 0)), own=False)
        if failed:
            first = failed[0]
            raise of_object({"error": f"copy to {self.sandbox_id}:{target}: {len(failed)} files failed, the first is "
                             f"{first.get('name')}: {first.get('message')}", "code": "partial"})

    async def copy_from(self, source: str, target: str | os.PathLike[str]) -> None:
        """Copies a file or a directory of the sandbox to target, which must not exist on this host."""
        if os.path.lexists(target):
            raise FileExistsError(f"{os.fspath(target)} exists")
        with tempfile.TemporaryFile() as spool:
            async with self._connection.stream("GET", agent_path(self.sandbox_id, "files/tree"), params=self._at(source),
                                               headers={"Accept-Encoding": "identity"}, timeout=60) as answer:
                async for chunk in answer.aiter_bytes():
                    spool.write(chunk)
            spool.seek(0)
            unpack(spool, Path(target))

    def _at(self, path: str) -> dict[str, Any]:
        return {"path": path, **({"username": self._user} if self._user else {})}

    async def _call(self, method: str, **body: Any) -> dict[str, Any]:
        return await self._connection.agent(self.sandbox_id, "filesystem.Filesystem/" + method, body, self._user)


def entry(e: dict[str, Any]) -> Entry:
    """Returns an entry of the agent's answer."""
    return Entry(name=e.get("name", ""), path=e.get("path", ""), type=_KINDS.get(e.get("type", ""), "other"),
                 size=int(e.get("size", 0)), mode=int(e.get("mode", 0)), owner=e.get("owner", ""),
                 group=e.get("group", ""), modified=e.get("modifiedTime", ""), symlink_target=e.get("symlinkTarget"))
