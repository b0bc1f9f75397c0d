"""What the magics do, and the branches of one notebook."""
from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

import forkd

from .guest import Place

#: Snapshots that one kernel may make. Code in a sandbox may be foreign, and each takes room on the disk.
MAX_SNAPSHOTS = 100


#: Seconds that a branch waits for a busy daemon.
BUSY = 120


class Branches:
    """The snapshots that a notebook made. They outlive restarts, and end with the notebook."""

    def __init__(self) -> None:
        self._tags: dict[str, str] = {}  # by name, oldest first
        self._made = 0

    async def branch(self, place: Place, name: str) -> str:
        """Saves the sandbox, and returns what the magic shows."""
        name = name or f"branch {len(self._tags) + 1}"
        self._count()
        got = await _patiently(place.box.branch)
        old = self._tags.pop(name, None)
        self._tags[name] = got.tag
        if old is not None:
            await self._delete(place, old)
        return f"{name}: {got.tag}, a pause of {got.pause_ms or 0:.1f} ms"

    async def snapshot(self, place: Place, tag: str) -> str:
        """Saves the sandbox under a tag of the user's, and returns what the magic shows."""
        if not tag:
            raise forkd.InvalidRequestError("%snapshot needs a tag: %snapshot TAG")
        self._count()
        got = await _patiently(lambda: place.box.branch(tag=tag, wait=True))
        return f"{got.tag}: `forkd-jupyter --snapshot {got.tag}` installs a kernel that continues from here"

    def tag(self, name: str) -> tuple[str, str]:
        """Returns a name and its tag. Without a name it is the last branch."""
        if not self._tags:
            raise forkd.InvalidRequestError("this notebook has no branch: %branch makes one")
        name = name or list(self._tags)[-1]
        if name not in self._tags:
            raise forkd.InvalidRequestError(f"there is no branch {name!r}: %branches lists them")
        return name, self._tags[name]

    def listed(self) -> str:
        """Returns what %branches shows."""
        return "\n".join(f"{name}: {tag}" for name, tag in self._tags.items()) or "no branches"

    def _count(self) -> None:
        if self._made >= MAX_SNAPSHOTS:
            raise forkd.QuotaExceededError(f"this notebook has made {MAX_SNAPSHOTS} snapshots, which is the limit")
        self._made += 1

    async def delete(self, place: Place) -> list[str]:
        """Deletes the branches, and returns why some stay."""
        tags, self._tags = list(self._tags.values()), {}
        errors = [await self._delete(place, tag) for tag in reversed(tags)]
        return [e for e in errors if e]

    @staticmethod
    async def _delete(place: Place, tag: str) -> str:
        try:
            await place.client.snapshot(tag).delete()
        except forkd.NotFoundError:
            pass
        except forkd.ForkdError as e:  # somebody uses it: it stays
            return f"snapshot {tag} stays: {e.message}"
        return ""


async def _patiently(branch: Callable[[], Awaitable[forkd.Branch]]) -> forkd.Branch:
    """Branches. A daemon that makes as many branches as it can at a time is asked again."""
    end = time.monotonic() + BUSY
    while True:
        try:
            return await branch()
        except forkd.BusyError:
            if time.monotonic() > end:
                raise
            await asyncio.sleep(1)


async def shown(place: Place) -> str:
    """Returns what %sandbox shows."""
    info = await place.box.info()
    return f"{info.id} of {info.snapshot_tag}, {info.status}"
