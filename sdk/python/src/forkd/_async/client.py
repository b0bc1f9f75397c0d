"""The client of a daemon."""
from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from typing import Any
from urllib.parse import quote

from .. import _aio, models
from .._address import find
from .._decode import decode, filters
from .._layout import Layout
from .._trace import Trace, TraceParent
from ..errors import of_object
from .admin import AsyncImages, AsyncKeys, AsyncPrivateNetworks, AsyncSecrets, AsyncTenants, AsyncVolumes, AsyncWorkspaces
from .connection import AsyncConnection
from .sandbox import AsyncSandbox
from .snapshot import AsyncForks, AsyncSnapshot, made
from .connection import clean


class AsyncForkd:
    """A client of one daemon. It is safe for concurrent use; close it, or use it as a context manager.

    Without ``url`` it finds the daemon as the command line does: FORKD_URL and FORKD_TOKEN, then the
    daemon or the machine that the program ``forkd`` uses, which it starts if needed.
    ``timeout`` is the limit in seconds of requests that should be quick. ``retry_for`` is the time in seconds in which
    GET requests are repeated while a daemon restarts. ``tls_client_cert`` and ``tls_client_key`` are files of a
    client's certificate. ``program`` is the path of the program ``forkd``.

    Requests continue the trace of OpenTelemetry's current span, if the program uses OpenTelemetry. ``trace_parent`` is
    a W3C traceparent instead, or a function that returns one or None.
    """

    def __init__(self, url: str | None = None, token: str | None = None, *, machine: str | None = None,
                 timeout: float = 60, tls_fingerprint: str | None = None, tls_client_cert: str | None = None,
                 tls_client_key: str | None = None, program: str | None = None, retry_for: float = 3,
                 trace_parent: TraceParent | None = None) -> None:
        trace = Trace(trace_parent)
        address = find(url, token, machine, tls_fingerprint, program)
        if tls_client_cert or tls_client_key:
            address.client_cert, address.client_key = tls_client_cert or "", tls_client_key or ""
        self._connection = AsyncConnection(address, timeout, retry_for, trace)

    def __repr__(self) -> str:
        return f"<Forkd {self.url}>"

    async def __aenter__(self) -> AsyncForkd:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Closes all connections. Sandboxes keep running."""
        await self._connection.aclose()

    @property
    def url(self) -> str:
        """The daemon's URL, without secrets."""
        return self._connection.address.shown

    # Objects.

    def sandbox(self, sandbox: str) -> AsyncSandbox:
        """Returns a sandbox by its id, without a request."""
        return AsyncSandbox(self._connection, sandbox)

    def snapshot(self, tag: str) -> AsyncSnapshot:
        """Returns a snapshot by its tag, without a request."""
        return AsyncSnapshot(self._connection, tag)

    async def fork(self, tag: str, n: int | None = None, **options: Any) -> Any:
        """Forks one sandbox of a snapshot, or a list of n. See Snapshot.fork."""
        return await self.snapshot(tag).fork(n, **options)

    async def sandboxes(self, *, labels: Mapping[str, str | None] | None = None,
                        filter: Iterable[str] = ()) -> list[models.SandboxInfo]:
        """Lists the sandboxes, oldest first.

        ``labels`` selects those that have all of them; None stands for any value. ``filter`` takes texts such as
        ``status=paused`` or ``snapshot=TAG``.
        """
        some = filters(labels, filter)
        return [decode(models.SandboxInfo, s) for s in await self._get("/v1/sandboxes", filter=some) or []]

    async def keep(self, best: int, *, by: str | Iterable[str] | None = None, file: str | None = None,
                   ids: Iterable[str | AsyncSandbox] = (), of: str | None = None, lowest: bool = False,
                   dry_run: bool = False, end_unscored: bool = False,
                   timeout: float | None = None) -> models.KeepResult:
        """Scores sandboxes, keeps the best and ends the others.

        The score is the number that ``by`` prints (a shell command, or a program with arguments), or the first
        line of ``file``. ``of`` compares all children of a snapshot or a sandbox. No sandbox ends before all have
        a score; those without one stay, unless ``end_unscored`` is set.
        """
        args = ["sh", "-c", by] if isinstance(by, str) else list(by) if by is not None else None
        body = clean({"best": best, "args": args, "file": file, "of": of, "timeout_secs": timeout,
                      "ids": [i if isinstance(i, str) else i.id for i in ids] or None, "lowest": lowest or None,
                      "dry_run": dry_run or None, "end_unscored": end_unscored or None})
        got = await self._connection.call("POST", "/v1/sandboxes/keep", body=body, timeout=1800)
        return decode(models.KeepResult, got)

    async def snapshots(self, *, labels: Mapping[str, str | None] | None = None,
                        filter: Iterable[str] = ()) -> list[models.SnapshotInfo]:
        """Lists the snapshots by tag. ``labels`` and ``filter`` select as for ``sandboxes``."""
        some = filters(labels, filter)
        return [decode(models.SnapshotInfo, s) for s in await self._get("/v1/snapshots", filter=some) or []]

    async def create_snapshot(self, tag: str, *, image: str | None = None, base: str | None = None,
                              exec: Iterable[str] | None = None, warm: str | None = None,
                              memory_mib: int | None = None, vcpus: int | None = None,
                              progress: Callable[[models.Step], Any] | None = None, **more: Any) -> AsyncSnapshot:
        """Boots an image, or forks the snapshot ``base`` and runs ``exec`` in it, and keeps a snapshot.

        ``warm`` is Python code that runs before the capture. ``more`` takes the other fields of the API.
        """
        body = clean({"tag": tag, "image": image, "from": base, "exec": list(exec) if exec else None, "warm": warm,
                      "memory_mib": memory_mib, "vcpus": vcpus, **more})
        info = await made(self._connection, "/v1/snapshots", body, progress)
        return AsyncSnapshot(self._connection, info.tag)

    async def import_snapshot(self, path: str | os.PathLike[str], *, tag: str | None = None,
                              progress: Callable[[int], Any] | None = None) -> AsyncSnapshot:
        """Makes a snapshot from a file of ``Snapshot.export``. ``tag`` is by default the one it had.

        ``progress`` gets the bytes sent so far. Import files you trust: a snapshot brings its programs. Raises
        NotRestorableError if it cannot run on the daemon's host.
        """
        layout = Layout(path)
        try:
            name = tag or layout.title
            await self._connection.raw("PUT", f"/v1/snapshots/{quote(name, safe='')}", timeout=1800,
                                       content=_aio.upload(layout.stream(), progress),
                                       headers={"Content-Type": "application/x-tar"})
        finally:
            layout.close()
        return AsyncSnapshot(self._connection, name)

    async def copy_snapshot(self, tag: str, peers: Iterable[str]) -> AsyncSnapshot:
        """Copies a snapshot from another daemon: the first of ``peers``, a list of URLs, that has it.

        The operator of this daemon allows peers with ``forkd serve --peer``.
        """
        body = {"peers": list(peers)}
        made = await self._connection.call("POST", f"/v1/snapshots/{quote(tag, safe='')}/copy", body=body, timeout=1800)
        return AsyncSnapshot(self._connection, decode(models.SnapshotInfo, made).tag)

    @property
    def images(self) -> AsyncImages:
        """The images that snapshots boot from."""
        return AsyncImages(self._connection)

    @property
    def keys(self) -> AsyncKeys:
        """The keys of tenants. They need the operator's rights."""
        return AsyncKeys(self._connection)

    @property
    def secrets(self) -> AsyncSecrets:
        """Named secrets for sandboxes. No answer has a value."""
        return AsyncSecrets(self._connection)

    @property
    def volumes(self) -> AsyncVolumes:
        """Volumes: disks which outlive the sandboxes that use them."""
        return AsyncVolumes(self._connection)

    @property
    def private_networks(self) -> AsyncPrivateNetworks:
        """Private networks: sandboxes in one find each other by name."""
        return AsyncPrivateNetworks(self._connection)

    @property
    def tenants(self) -> AsyncTenants:
        """The tenants' shares of the host."""
        return AsyncTenants(self._connection)

    @property
    def workspaces(self) -> AsyncWorkspaces:
        """Sandboxes under lasting names."""
        return AsyncWorkspaces(self._connection)

    # The daemon.

    async def health(self) -> bool:
        """Reports whether the daemon answers. It needs no token."""
        return bool((await self._get("/healthz"))["ok"])

    async def ready(self) -> bool:
        """Returns True if the daemon can start VMs, otherwise raises the reason. It needs no token."""
        return bool((await self._get("/readyz"))["ready"])

    async def version(self) -> models.VersionInfo:
        """Returns the daemon's version."""
        return decode(models.VersionInfo, await self._get("/version"))

    async def metrics(self) -> str:
        """Returns the metrics in Prometheus's text format."""
        return str(await self._get("/metrics"))

    async def capacity(self) -> models.Capacity:
        """Returns what the host has for sandboxes, and what is promised."""
        return decode(models.Capacity, await self._get("/v1/capacity"))

    async def node(self) -> models.Node:
        """Returns the daemon's node in a cluster, for the operator: identity, capacity, pools and snapshots."""
        return decode(models.Node, await self._get("/v1/node"))

    async def drain(self, mode: str = "pause", *, until_restart: bool = False) -> models.Drain:
        """Makes the daemon take no new sandboxes. Running ones are paused, or run on with the mode ``wait``.

        A restart of the daemon ends the drain only with ``until_restart``.
        """
        body = {"mode": mode, "until_restart": until_restart}
        return decode(models.Drain, await self._connection.call("POST", "/v1/drain", body=body))

    async def drain_status(self) -> models.Drain:
        """Returns the progress of a drain."""
        return decode(models.Drain, await self._get("/v1/drain"))

    async def cancel_drain(self) -> models.Drain:
        """Ends a drain. Paused sandboxes stay paused."""
        return decode(models.Drain, await self._connection.call("DELETE", "/v1/drain"))

    async def pools(self) -> list[models.Pool]:
        """Lists the pools of prepared VMs."""
        return [decode(models.Pool, p) for p in await self._get("/v1/pools") or []]

    async def receipts(self, *, sandbox: str | None = None, snapshot: str | None = None, op: str | None = None,
                       limit: int | None = None) -> list[models.Receipt]:
        """Lists receipts, newest first."""
        got = await self._get("/v1/receipts", sandbox=sandbox, snapshot=snapshot, op=op, limit=limit)
        return [decode(models.Receipt, r) for r in got or []]

    async def collect(self, *, dry_run: bool = False) -> models.CollectResult:
        """Removes layers that nothing uses."""
        got = await self._connection.call("POST", "/v1/store/gc", body={"dry_run": dry_run}, timeout=600)
        return decode(models.CollectResult, got)

    async def prune_snapshots(self, *, dry_run: bool = False) -> models.PruneResult:
        """Removes the snapshots that have expired, or are older than the last ones to keep."""
        got = await self._connection.call("POST", "/v1/store/prune", body={"dry_run": dry_run}, timeout=600)
        return decode(models.PruneResult, got)

    async def events(self, *, after: int | None = None, sandbox: str | None = None, snapshot: str | None = None,
                     kinds: Iterable[str] = (), labels: Mapping[str, str | None] | None = None,
                     filter: Iterable[str] = ()) -> AsyncIterator[models.Event]:
        """Yields events as they happen, until the caller stops.

        ``labels`` selects events of objects that have all of them; None stands for any value. ``filter`` takes texts
        such as ``label=job=7``.
        ``after`` is the id of the last known event; 0 begins with the oldest that the daemon has. Raises
        ConnectionBrokenError when the daemon ends: go on with ``after``.
        """
        params = {"after": after, "sandbox": sandbox, "snapshot": snapshot, "kind": ",".join(kinds) or None,
                  "filter": filters(labels, filter)}
        name = ""
        async with self._connection.stream("GET", "/v1/events", params=params,
                                           headers={"Accept": "text/event-stream"}) as answer:
            async for line in answer.aiter_lines():
                key, _, value = line.partition(":")
                value = value.removeprefix(" ")
                if key == "event":
                    name = value
                elif key == "data" and name == "end":
                    raise of_object(json.loads(value))
                elif key == "data":
                    yield decode(models.Event, json.loads(value))
                elif not line:
                    name = ""
        raise of_object({"error": "the stream of events ended", "code": "connection_broken"})

    async def audit(self, *, since: str | None = None, sandbox: str | None = None, tenant: str | None = None,
                    action: str | None = None, result: str | None = None, request: str | None = None,
                    changes: bool = False, limit: int | None = None,
                    follow: bool = False) -> AsyncIterator[dict[str, Any]]:
        """Yields lines of the audit log. ``changes`` selects those that changed something."""
        params = {"since": since, "sandbox": sandbox, "tenant": tenant, "action": action, "result": result,
                  "request": request, "changes": changes, "limit": limit, "follow": follow}
        async for line in self._connection.lines("GET", "/v1/audit", params=params):
            yield line

    async def verify_audit(self, *heads: str) -> models.AuditReport:
        """Checks that the audit log is as it was written."""
        params: Mapping[str, Any] = {"head": list(heads)} if heads else {}
        return decode(models.AuditReport, await self._connection.call("GET", "/v1/audit/verify", params=dict(params)))

    async def _get(self, path: str, **params: Any) -> Any:
        return await self._connection.call("GET", path, params=params)


__all__ = ["AsyncForkd", "AsyncForks", "AsyncSandbox", "AsyncSnapshot"]
