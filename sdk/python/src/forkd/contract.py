"""The driver of the client contract: ``python -m forkd.contract`` (docs/inside/formats/contract.md).

It reads a call per line and answers each with a line. All calls go through the public client.
"""
from __future__ import annotations

import itertools
import json
import sys
from collections.abc import Callable
from typing import Any

from . import Forkd
from ._decode import encode
from .errors import ForkdError

Call = Callable[[Forkd, dict[str, Any]], Any]


def _fork(c: Forkd, a: dict[str, Any]) -> Any:
    body = dict(a["body"])
    tag, n = body.pop("snapshot_tag"), int(body.pop("n", 1))
    return [s.last_info for s in c.snapshot(tag).fork(n, **body)]


def _branch(c: Forkd, a: dict[str, Any]) -> Any:
    body = dict(a["body"])
    return c.sandbox(a["id"]).branch(int(body.pop("n", 0)), **body).result


def _create(c: Forkd, a: dict[str, Any]) -> Any:
    body = dict(a["body"])
    tag, base = body.pop("tag"), body.pop("from", None)
    return c.create_snapshot(tag, base=base, progress=lambda step: None, **body).info()


def _exec(c: Forkd, a: dict[str, Any]) -> Any:
    return _program(c.sandbox(a["id"]).exec(a["body"]["args"]))


def _follow(c: Forkd, a: dict[str, Any]) -> Any:
    stdin = a.get("stdin")
    return _program(c.sandbox(a["id"]).exec(a["args"], stdin=stdin.encode() if stdin else None))


def _program(result: Any) -> Any:
    return {"stdout": result.stdout, "stderr": result.stderr, "exit_code": result.exit_code}


def _life(c: Forkd, a: dict[str, Any]) -> Any:
    body = a["body"]
    return c.sandbox(a["id"]).set_life(ttl=body.get("ttl_secs"), at_end=body.get("at_end"))


def _network(c: Forkd, a: dict[str, Any]) -> Any:
    body = a["body"]
    return c.sandbox(a["id"]).set_network(body.get("net") or body["network"])


def _events(c: Forkd, a: dict[str, Any]) -> Any:
    kinds = a["kind"].split(",") if "kind" in a else ()
    events = c.events(after=0, sandbox=a.get("sandbox"), kinds=kinds, filter=a.get("filter", ()))
    return list(itertools.islice(events, int(a.get("count", 1))))


def _write(c: Forkd, a: dict[str, Any]) -> Any:
    c.sandbox(a["id"]).files.write(a["path"], a["content"])


def _compact(c: Forkd, a: dict[str, Any]) -> Any:
    return c.snapshot(a["tag"]).compact(a["body"]["to"], progress=lambda step: None).info()


def _keep(c: Forkd, a: dict[str, Any]) -> Any:
    body = dict(a["body"])
    return c.keep(body.pop("best"), by=body.pop("args", None), **body)


def _promote(c: Forkd, a: dict[str, Any]) -> Any:
    body = a["body"]
    return c.sandbox(a["id"]).promote(place=body.get("place"), discard=body.get("parent") == "kill")


CALLS: dict[str, Call] = {
    "health": lambda c, a: {"ok": c.health()},
    "ready": lambda c, a: {"ready": c.ready()},
    "version": lambda c, a: c.version(),
    "metrics": lambda c, a: c.metrics(),
    "drain-status": lambda c, a: c.drain_status(),
    "drain": lambda c, a: c.drain(a["body"].get("mode", "pause"), until_restart=a["body"].get("until_restart", False)),
    "cancel-drain": lambda c, a: c.cancel_drain(),
    "capacity": lambda c, a: c.capacity(),
    "node": lambda c, a: c.node(),
    "events": _events,
    "audit": lambda c, a: list(c.audit(action=a.get("action"), limit=a.get("limit"))),
    "verify-audit": lambda c, a: c.verify_audit(),
    "collect-layers": lambda c, a: c.collect(dry_run=a["body"]["dry_run"]),
    "list-images": lambda c, a: c.images.list(filter=a.get("filter", ())),
    "get-image": lambda c, a: c.images.get(a["name"]),
    "head-image": lambda c, a: c.images.has(a["name"], a["digest"]),
    "delete-image": lambda c, a: c.images.remove(a["name"]),
    "import-image": lambda c, a: c.images.import_(a["name"], a["digest"], a["content"].encode()),
    "list-receipts": lambda c, a: c.receipts(sandbox=a.get("sandbox"), snapshot=a.get("snapshot")),
    "list-snapshots": lambda c, a: c.snapshots(filter=a.get("filter", ())),
    "prune-snapshots": lambda c, a: c.prune_snapshots(dry_run=a["body"]["dry_run"]),
    "label-snapshot": lambda c, a: c.snapshot(a["tag"]).label(a["body"].get("set"), remove=a["body"].get("remove", ())),
    "rename-snapshot": lambda c, a: c.snapshot(a["tag"]).rename(a["body"]["to"]).info(),
    "copy-snapshot": lambda c, a: c.copy_snapshot(a["tag"], a["body"]["peers"]).info(),
    "snapshot-info": lambda c, a: c.snapshot(a["tag"]).info(),
    "snapshot-receipt": lambda c, a: c.snapshot(a["tag"]).receipt(),
    "create-snapshot": _create,
    "delete-snapshot": lambda c, a: c.snapshot(a["tag"]).delete(),
    "verify-snapshot": lambda c, a: c.snapshot(a["tag"]).verify(lambda done, total: None),
    "compact-snapshot": _compact,
    "diff-snapshots": lambda c, a: c.snapshot(a["tag"]).diff(a["other"]),
    "list-pools": lambda c, a: c.pools(),
    "set-pool": lambda c, a: c.snapshot(a["tag"]).set_pool(a["body"]["size"]),
    "publish-snapshot": lambda c, a: c.snapshot(a["tag"]).publish(a["body"]["public"]),
    "fork": _fork,
    "list-sandboxes": lambda c, a: c.sandboxes(filter=a.get("filter", ())),
    "label-sandbox": lambda c, a: c.sandbox(a["id"]).label(a["body"].get("set"), remove=a["body"].get("remove", ())),
    "get-sandbox": lambda c, a: c.sandbox(a["id"]).info(),
    "kill-sandbox": lambda c, a: c.sandbox(a["id"]).kill(tree=bool(a.get("tree"))),
    "branch": _branch,
    "rollback": lambda c, a: c.sandbox(a["id"]).rollback(a["body"]["snapshot_tag"]),
    "keep-best": _keep,
    "promote": _promote,
    "merge": lambda c, a: c.sandbox(a["id"]).merge(**a["body"]),
    "pause": lambda c, a: c.sandbox(a["id"]).pause(),
    "resume": lambda c, a: c.sandbox(a["id"]).resume(peers=a.get("body", {}).get("peers", ())),
    "set-life": _life,
    "sandbox-receipt": lambda c, a: c.sandbox(a["id"]).receipt(),
    "sandbox-memory": lambda c, a: c.sandbox(a["id"]).memory(),
    "sandbox-console": lambda c, a: c.sandbox(a["id"]).console(),
    "list-services": lambda c, a: c.sandbox(a["id"]).services(wait=a.get("wait_secs")),
    "declare-service": lambda c, a: c.sandbox(a["id"]).declare_service(a["service"], **a["body"]),
    "change-service": lambda c, a: c.sandbox(a["id"]).change_service(a["service"], a["body"]["action"]),
    "remove-service": lambda c, a: c.sandbox(a["id"]).remove_service(a["service"]),
    "service-log": lambda c, a: c.sandbox(a["id"]).service_log(a["service"]),
    "get-network": lambda c, a: c.sandbox(a["id"]).network(),
    "set-network": _network,
    "network-flows": lambda c, a: c.sandbox(a["id"]).flows(),
    "network-log": lambda c, a: list(c.sandbox(a["id"]).network_log()),
    "ping": lambda c, a: c.sandbox(a["id"]).ping(),
    "exec": _exec,
    "eval": lambda c, a: c.sandbox(a["id"]).eval_raw(a["body"]["code"]),
    "agent.exec": _follow,
    "agent.write": _write,
    "agent.read": lambda c, a: c.sandbox(a["id"]).files.read_text(a["path"]),
    "connect-port-get": lambda c, a: c.sandbox(a["id"]).request_port(a["port"], a["send"].encode()).decode(),
    "list-keys": lambda c, a: c.keys.list(),
    "create-key": lambda c, a: c.keys.create(**a["body"]),
    "revoke-key": lambda c, a: c.keys.revoke(a["key"]),
    "rotate-key": lambda c, a: c.keys.rotate(a["key"], **a["body"]),
    "list-secrets": lambda c, a: c.secrets.list(),
    "get-secret": lambda c, a: c.secrets.get(a["secret"]),
    "set-secret": lambda c, a: c.secrets.set(a["secret"], **a["body"]),
    "list-volumes": lambda c, a: c.volumes.list(),
    "get-volume": lambda c, a: c.volumes.get(a["volume"]),
    "create-volume": lambda c, a: c.volumes.create(
        a["body"]["name"], size_mib=a["body"].get("size_mib"), from_volume=a["body"].get("from")),
    "snapshot-volume": lambda c, a: c.volumes.snapshot(a["volume"], a["body"]["name"]),
    "remove-volume": lambda c, a: c.volumes.remove(a["volume"]),
    "list-private-networks": lambda c, a: c.private_networks.list(),
    "get-private-network": lambda c, a: c.private_networks.get(a["network"]),
    "create-private-network": lambda c, a: c.private_networks.create(a["body"]["name"]),
    "fork-private-network": lambda c, a: c.private_networks.fork(a["network"], **(a.get("body") or {})),
    "remove-private-network": lambda c, a: c.private_networks.remove(a["network"]),
    "remove-secret": lambda c, a: c.secrets.remove(a["secret"]),
    "tenant": lambda c, a: c.tenants.get(a["tenant"]),
    "set-tenant": lambda c, a: c.tenants.set(a["tenant"], cpu_weight=a["body"]["cpu_weight"]),
    "list-workspaces": lambda c, a: c.workspaces.list(),
    "create-workspace": lambda c, a: c.workspaces.create(a["body"]["name"], a["body"]["snapshot_tag"]),
    "get-workspace": lambda c, a: c.workspaces.get(a["workspace"]),
    "suspend-workspace": lambda c, a: c.workspaces.suspend(a["workspace"]),
    "resume-workspace": lambda c, a: c.workspaces.resume(a["workspace"]),
    "delete-workspace": lambda c, a: c.workspaces.delete(a["workspace"]),
}


def answer(client: Forkd, line: str) -> dict[str, Any]:
    """Makes one call and returns its answer."""
    call = json.loads(line)
    fn = CALLS.get(call["op"])
    if fn is None:
        return {"error": {"code": "no_call"}}
    try:
        return {"ok": encode(fn(client, call.get("args") or {}))}
    except ForkdError as e:
        return {"error": {"class": type(e).__name__, "code": e.code, "reason": e.reason, "hint": e.hint,
                          "status": e.status, "message": e.message}}


def main() -> None:
    """Answers calls until the input ends."""
    with Forkd() as client:
        for line in sys.stdin:
            print(json.dumps(answer(client, line)), flush=True)


if __name__ == "__main__":
    main()
