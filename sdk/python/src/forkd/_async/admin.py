"""Images, keys, secrets, volumes, private networks, tenants and workspaces."""
from __future__ import annotations

from collections.abc import Iterable
from typing import Any, BinaryIO
from urllib.parse import quote

from .. import _aio, models
from .._codes import NotFoundError
from .._decode import decode, encode, filters
from .connection import AsyncConnection, clean
from .sandbox import AsyncSandbox


class AsyncImages:
    """The images that snapshots boot from."""

    def __init__(self, connection: AsyncConnection) -> None:
        self._connection = connection

    async def list(self, *, filter: Iterable[str] = ()) -> list[models.Image]:
        """Lists the images. ``filter`` takes texts such as ``name=python``."""
        params = {"filter": filters(None, filter)}
        return [decode(models.Image, i) for i in await self._connection.call("GET", "/v1/images", params=params) or []]

    async def get(self, name: str) -> models.Image:
        """Describes an image."""
        return decode(models.Image, await self._connection.call("GET", _path("images", name)))

    async def has(self, name: str, digest: str) -> bool:
        """Reports whether the daemon has the image with that digest."""
        return digest != "" and await self.digest(name) == digest

    async def digest(self, name: str) -> str | None:
        """Returns the digest of an image, or None if there is none of that name."""
        try:
            return (await self.get(name)).digest
        except NotFoundError:
            return None

    async def remove(self, name: str) -> None:
        """Removes an image."""
        await self._connection.call("DELETE", _path("images", name))

    async def import_(self, name: str, digest: str, archive: bytes | BinaryIO) -> models.Image:
        """Sends an image as a tar archive."""
        data = archive if isinstance(archive, bytes) else _aio.upload(_aio.pieces(archive), None)
        headers = {"Content-Type": "application/x-tar", "Forkd-Digest": digest}
        await self._connection.raw("PUT", _path("images", name), content=data, headers=headers, timeout=600)
        return await self.get(name)


class AsyncKeys:
    """The keys of tenants. They need the operator's rights."""

    def __init__(self, connection: AsyncConnection) -> None:
        self._connection = connection

    async def list(self) -> list[models.Key]:
        """Lists the keys, without their secrets."""
        return [decode(models.Key, k) for k in await self._connection.call("GET", "/v1/keys") or []]

    async def create(self, name: str, scopes: Iterable[str] = ("read", "run", "fork"), *, tenant: str | None = None,
                     expires_secs: int | None = None, quotas: models.KeyQuotas | dict[str, Any] | None = None,
                     **more: Any) -> models.NewKey:
        """Makes a key. Its text is in the answer's ``key``, and nowhere else."""
        body = clean({"name": name, "scopes": list(scopes), "tenant": tenant, "expires_secs": expires_secs,
                      "quotas": encode(quotas), **more})
        return decode(models.NewKey, await self._connection.call("POST", "/v1/keys", body=body))

    async def revoke(self, key: str) -> models.Key:
        """Ends a key, by its id."""
        return decode(models.Key, await self._connection.call("DELETE", _path("keys", key)))

    async def rotate(self, key: str, *, grace_secs: int = 0) -> models.NewKey:
        """Gives a key another text. The old one is valid for grace_secs more."""
        got = await self._connection.call("POST", _path("keys", key) + "/rotate", body={"grace_secs": grace_secs})
        return decode(models.NewKey, got)


class AsyncSecrets:
    """Named secrets for sandboxes. No answer has a value."""

    def __init__(self, connection: AsyncConnection) -> None:
        self._connection = connection

    async def list(self) -> list[models.Secret]:
        """Lists the secrets."""
        return [decode(models.Secret, s) for s in await self._connection.call("GET", "/v1/secrets") or []]

    async def get(self, name: str) -> models.Secret:
        """Describes a secret."""
        return decode(models.Secret, await self._connection.call("GET", _path("secrets", name)))

    async def set(self, name: str, value: str, *, metadata: dict[str, str] | None = None) -> models.Secret:
        """Makes a secret, or rotates it to a new value."""
        body = clean({"value": value, "metadata": metadata})
        return decode(models.Secret, await self._connection.call("PUT", _path("secrets", name), body=body))

    async def remove(self, name: str) -> None:
        """Removes a secret."""
        await self._connection.call("DELETE", _path("secrets", name))


class AsyncVolumes:
    """Volumes: disks which outlive the sandboxes that use them."""

    def __init__(self, connection: AsyncConnection) -> None:
        self._connection = connection

    async def list(self) -> list[models.Volume]:
        """Lists the volumes."""
        return [decode(models.Volume, v) for v in await self._connection.call("GET", "/v1/volumes") or []]

    async def get(self, name: str) -> models.Volume:
        """Describes a volume."""
        return decode(models.Volume, await self._connection.call("GET", _path("volumes", name)))

    async def create(self, name: str, *, size_mib: int | None = None, from_volume: str | None = None) -> models.Volume:
        """Makes a volume, empty or with the content of another one."""
        body = clean({"name": name, "size_mib": size_mib, "from": from_volume})
        return decode(models.Volume, await self._connection.call("POST", "/v1/volumes", body=body))

    async def snapshot(self, name: str, snapshot: str) -> models.Volume:
        """Keeps the present content of a volume as another one, which cannot be written."""
        body = {"name": snapshot}
        return decode(models.Volume, await self._connection.call("POST", _path("volumes", name) + "/snapshot", body=body))

    async def remove(self, name: str) -> None:
        """Removes a volume that no sandbox has."""
        await self._connection.call("DELETE", _path("volumes", name))


class AsyncPrivateNetworks:
    """Private networks: sandboxes in one find each other by name."""

    def __init__(self, connection: AsyncConnection) -> None:
        self._connection = connection

    async def list(self) -> list[models.PrivateNetwork]:
        """Lists the private networks."""
        return [decode(models.PrivateNetwork, n) for n in await self._connection.call("GET", "/v1/networks") or []]

    async def get(self, name: str) -> models.PrivateNetwork:
        """Describes a private network and its members."""
        return decode(models.PrivateNetwork, await self._connection.call("GET", _path("networks", name)))

    async def create(self, name: str) -> models.PrivateNetwork:
        """Makes a private network."""
        got = await self._connection.call("POST", "/v1/networks", body={"name": name})
        return decode(models.PrivateNetwork, got)

    async def fork(self, name: str, *, n: int | None = None, prefix: str | None = None) -> models.ForkGroupResult:
        """Copies its running sandboxes as they are at one instant.

        Each of the n copies has a network of its own, PREFIX-1 and so on. A copy that failed has an error.
        """
        body = {k: v for k, v in {"n": n, "prefix": prefix}.items() if v is not None}
        got = await self._connection.call("POST", _path("networks", name) + "/fork", body=body)
        return decode(models.ForkGroupResult, got)

    async def remove(self, name: str) -> None:
        """Removes a private network without members."""
        await self._connection.call("DELETE", _path("networks", name))


class AsyncTenants:
    """The tenants' shares of the host."""

    def __init__(self, connection: AsyncConnection) -> None:
        self._connection = connection

    async def get(self, name: str) -> models.Tenant:
        """Describes a tenant."""
        return decode(models.Tenant, await self._connection.call("GET", _path("tenants", name)))

    async def set(self, name: str, *, cpu_weight: int) -> models.Tenant:
        """Sets a tenant's share of CPU time where it is short, 1 to 10000."""
        got = await self._connection.call("PUT", _path("tenants", name), body={"cpu_weight": cpu_weight})
        return decode(models.Tenant, got)


class AsyncWorkspaces:
    """Sandboxes under lasting names."""

    def __init__(self, connection: AsyncConnection) -> None:
        self._connection = connection

    async def list(self) -> list[models.WorkspaceInfo]:
        """Lists the workspaces."""
        return [decode(models.WorkspaceInfo, w) for w in await self._connection.call("GET", "/v1/workspaces") or []]

    async def create(self, name: str, snapshot: str, *, memory_limit_mib: int | None = None,
                     **more: Any) -> models.WorkspaceInfo:
        """Forks a sandbox and gives it a name. ``more`` takes the other fields of the API."""
        body = clean({"name": name, "snapshot_tag": snapshot, "memory_limit_mib": memory_limit_mib, **more})
        return decode(models.WorkspaceInfo, await self._connection.call("POST", "/v1/workspaces", body=body))

    async def get(self, name: str) -> models.WorkspaceInfo:
        """Describes a workspace."""
        return decode(models.WorkspaceInfo, await self._connection.call("GET", _path("workspaces", name)))

    async def sandbox(self, name: str) -> AsyncSandbox:
        """Returns the sandbox of a running workspace."""
        info = await self.get(name)
        if not info.live_sandbox_id:
            raise NotFoundError(f"the workspace {name} is {info.status}, and has no sandbox", hint="resume it first")
        return AsyncSandbox(self._connection, info.live_sandbox_id)

    async def suspend(self, name: str) -> models.WorkspaceInfo:
        """Pauses a workspace's sandbox."""
        return await self._post(name, "/suspend")

    async def resume(self, name: str) -> models.WorkspaceInfo:
        """Resumes a suspended workspace. A stale one gets another sandbox."""
        return await self._post(name, "/resume")

    async def delete(self, name: str) -> None:
        """Ends a workspace and its sandbox."""
        await self._connection.call("DELETE", _path("workspaces", name))

    async def _post(self, name: str, rest: str) -> models.WorkspaceInfo:
        got = await self._connection.call("POST", _path("workspaces", name) + rest, timeout=600)
        return decode(models.WorkspaceInfo, got)


def _path(kind: str, name: str) -> str:
    return f"/v1/{kind}/{quote(name, safe='')}"
