// Driver of the shared contract (sdk/contract): reads a call per line, {"op", "args"}, and answers with a line
// {"ok": answer in the API's names} or {"error": {class, code, reason, hint, status}}.
import { createInterface } from "node:readline";
import { Controller, Forkd, ForkdError } from "./dist/index.js";
import { toWire } from "./dist/case.js";
import { fromWire } from "./dist/case.js";

const client = new Forkd();
const original = new Controller();
const body = (a, schema) => fromWire(a.body ?? {}, schema);
const wire = async (value, schema) => toWire(await value, schema);
const wires = async (values, schema) => (await values).map((v) => toWire(v, schema));
const none = async (done) => void await done;
const info = (s) => s.lastInfo;
const policy = ({ net, network, ...rest }) => (network ?? net) === undefined ? rest : { ...rest, network: network ?? net };

async function collect(items, count = Infinity) {
  const out = [];
  if (count > 0) for await (const item of items) if (out.push(item) >= count) break;
  return out;
}

async function port(a) {
  const stream = await client.sandbox(a.id).dial(Number(a.port));
  stream.end(a.send ?? "");
  return Buffer.concat(await collect(stream)).toString();
}

async function fork(a) {
  const { snapshotTag, n = 1, ...rest } = body(a, "CreateSandboxesRequest");
  return wires((await client.fork(snapshotTag, n, policy(rest))).map(info), "SandboxInfo");
}

async function create(a) {
  const { tag, ...rest } = body(a, "CreateSnapshotRequest");
  return wire((await client.snapshots.create(tag, policy(rest))).info(), "SnapshotDetail");
}

const sandbox = (a) => client.sandbox(a.id);
const snapshot = (a) => client.snapshot(a.tag);
const OPS = {
  ready: async () => ({ ready: await client.ready() }),
  health: async () => ({ ok: await client.health() }),
  "keep-best": (a) => wire(client.keep(body(a, "KeepRequest")), "KeepResult"),
  promote: (a) => wire(sandbox(a).promote(body(a, "PromoteRequest")), "PromoteResult"),
  merge: (a) => wire(sandbox(a).merge(body(a, "MergeRequest")), "MergeResult"),
  version: () => wire(client.version(), "VersionInfo"),
  metrics: () => client.metrics(),
  "drain-status": () => wire(client.drainStatus(), "Drain"),
  drain: (a) => wire(client.drain(a.body?.mode, { untilRestart: a.body?.until_restart }), "Drain"),
  "cancel-drain": () => wire(client.cancelDrain(), "Drain"),
  node: () => wire(client.node(), "Node"),
  capacity: () => wire(client.capacity(), "Capacity"),
  audit: async (a) => (await collect(client.audit(a))).map((l) => toWire(l, "")),
  "verify-audit": (a) => wire(client.verifyAudit({ heads: a.head }), "AuditReport"),
  events: async ({ count, ...a }) => {
    const o = { ...a, kinds: a.kind?.split(","), signal: AbortSignal.timeout(30_000) };
    return (await collect(client.events(o), count ?? 1)).map((e) => toWire(e, "Event"));
  },
  "list-images": (a) => wires(client.images.list({ filter: a.filter }), "Image"),
  "get-image": (a) => wire(client.images.get(a.name), "Image"),
  "head-image": async (a) => {
    const got = await client.images.digest(a.name);
    return got !== undefined && (!a.digest || got === a.digest);
  },
  "import-image": (a) => wire(client.images.import(a.name, a.content ?? "", { digest: a.digest }), "Image"),
  "delete-image": (a) => none(client.images.remove(a.name)),
  "list-keys": () => wires(client.keys.list(), "Key"),
  "create-key": (a) => wire(client.keys.create(body(a, "CreateKeyRequest")), "NewKey"),
  "rotate-key": (a) => wire(client.keys.rotate(a.key, body(a, "RotateKeyRequest")), "NewKey"),
  "revoke-key": (a) => wire(client.keys.revoke(a.key), "Key"),
  "list-pools": () => wires(client.pools.list(), "Pool"),
  "set-pool": (a) => none(snapshot(a).pool(a.body.size)),
  "list-receipts": (a) => wires(client.receipts.list(a), "Receipt"),
  "copy-snapshot": async (a) => wire((await client.copySnapshot(a.tag, a.body.peers)).info(), "SnapshotInfo"),
  "list-sandboxes": (a) => wires(client.sandboxes.list({ filter: a.filter }), "SandboxInfo"),
  "label-sandbox": (a) => wire(sandbox(a).label(a.body.set ?? {}, { remove: a.body.remove }), "SandboxInfo"),
  "rename-snapshot": async (a) => wire((await snapshot(a).rename(a.body.to)).info(), "SnapshotDetail"),
  "prune-snapshots": (a) => wire(client.pruneSnapshots({ dryRun: a.body.dry_run }), "PruneResult"),
  "label-snapshot": (a) => wire(snapshot(a).label(a.body.set ?? {}, { remove: a.body.remove }), "SnapshotInfo"),
  fork,
  "kill-sandbox": (a) => none(sandbox(a).kill({ tree: a.tree })),
  "get-sandbox": (a) => wire(sandbox(a).info(), "SandboxInfo"),
  branch: async (a) => wire((await sandbox(a).branch(policy(body(a, "BranchRequest")))).result, "BranchResult"),
  "sandbox-console": (a) => sandbox(a).console({ tail: a.tail }),
  eval: (a) => {
    const { code, ...rest } = body(a, "EvalRequest");
    return wire(sandbox(a).evalRaw(code, rest), "EvalResponse");
  },
  exec: (a) => {
    const { args, ...rest } = body(a, "ExecRequest");
    return wire(sandbox(a).run(args, rest), "ExecResponse");
  },
  "set-life": (a) => wire(sandbox(a).setLife(body(a, "LifeRequest")), "SandboxInfo"),
  "sandbox-memory": (a) => wire(sandbox(a).memory(), "MemoryUse"),
  "list-services": (a) => wires(sandbox(a).services({ waitMs: a.wait_secs && a.wait_secs * 1000 }), "Service"),
  "declare-service": (a) => {
    const { command, ...rest } = body(a, "ServiceSpec");
    return wire(sandbox(a).declareService(a.service, command, rest), "Service");
  },
  "change-service": (a) => wire(sandbox(a).changeService(a.service, a.body.action), "Service"),
  "remove-service": (a) => none(sandbox(a).removeService(a.service)),
  "service-log": (a) => sandbox(a).serviceLog(a.service),
  "get-network": (a) => wire(sandbox(a).network(), "SandboxNetwork"),
  "set-network": (a) => wire(sandbox(a).setNetwork(policy(body(a, "SetNetworkRequest")).network), "SandboxNetwork"),
  "network-flows": (a) => wires(sandbox(a).flows(), "NetworkFlow"),
  "network-log": async (a) => (await collect(sandbox(a).networkLog({ follow: a.follow }))).map((l) => toWire(l, "")),
  pause: (a) => wire(sandbox(a).pause(body(a, "PauseRequest")), "SandboxInfo"),
  ping: (a) => wire(sandbox(a).ping(), "PingResponse"),
  "connect-port-get": port,
  "connect-port-post": port,
  "sandbox-receipt": (a) => wire(sandbox(a).receipt(), "Receipt"),
  resume: (a) => wire(sandbox(a).resume({ peers: a.body?.peers }), "SandboxInfo"),
  rollback: (a) => wire(sandbox(a).rollback(a.body.snapshot_tag), "SandboxInfo"),
  "list-snapshots": (a) => a.filter ? wires(client.snapshots.list({ filter: a.filter }), "SnapshotInfo") : original.listSnapshots(),
  "create-snapshot": create,
  "delete-snapshot": (a) => none(snapshot(a).delete({ cascade: a.cascade, force: a.force })),
  "compact-snapshot": async (a) => wire((await snapshot(a).compact(a.body.to)).info(), "SnapshotDetail"),
  "diff-snapshots": (a) => wire(snapshot(a).diff(a.other, { limit: a.limit }), "SnapshotDiff"),
  "snapshot-info": (a) => wire(snapshot(a).info(), "SnapshotDetail"),
  "publish-snapshot": (a) => wire(snapshot(a).publish(a.body.public), "SnapshotInfo"),
  "snapshot-receipt": (a) => wire(snapshot(a).receipt(), "Receipt"),
  "verify-snapshot": (a) => wire(snapshot(a).verify(), "VerifyResult"),
  "collect-layers": (a) => wire(client.store.gc({ dryRun: a.body?.dry_run }), "CollectResult"),
  "list-secrets": () => wires(client.secrets.list(), "Secret"),
  "get-secret": (a) => wire(client.secrets.get(a.secret), "Secret"),
  "set-secret": (a) => wire(client.secrets.set(a.secret, body(a, "SetSecretRequest")), "Secret"),
  "list-volumes": () => wires(client.volumes.list(), "Volume"),
  "get-volume": (a) => wire(client.volumes.get(a.volume), "Volume"),
  "create-volume": (a) => wire(client.volumes.create(a.body.name,
    { sizeMib: a.body.size_mib, fromVolume: a.body.from }), "Volume"),
  "snapshot-volume": (a) => wire(client.volumes.snapshot(a.volume, a.body.name), "Volume"),
  "remove-volume": (a) => none(client.volumes.remove(a.volume)),
  "list-private-networks": () => wires(client.privateNetworks.list(), "PrivateNetwork"),
  "get-private-network": (a) => wire(client.privateNetworks.get(a.network), "PrivateNetwork"),
  "create-private-network": (a) => wire(client.privateNetworks.create(a.body.name), "PrivateNetwork"),
  "fork-private-network": (a) => wire(client.privateNetworks.fork(a.network, body(a, "ForkGroupRequest")), "ForkGroupResult"),
  "remove-private-network": (a) => none(client.privateNetworks.remove(a.network)),
  "remove-secret": (a) => none(client.secrets.remove(a.secret)),
  tenant: (a) => wire(client.tenants.get(a.tenant), "Tenant"),
  "set-tenant": (a) => wire(client.tenants.set(a.tenant, body(a, "SetTenantRequest")), "Tenant"),
  "list-workspaces": () => wires(client.workspaces.list(), "WorkspaceInfo"),
  "create-workspace": (a) => wire(client.workspaces.create(body(a, "CreateWorkspaceRequest")), "WorkspaceInfo"),
  "delete-workspace": (a) => none(client.workspaces.delete(a.workspace)),
  "get-workspace": (a) => wire(client.workspaces.get(a.workspace), "WorkspaceInfo"),
  "resume-workspace": (a) => wire(client.workspaces.resume(a.workspace), "WorkspaceInfo"),
  "suspend-workspace": (a) => wire(client.workspaces.suspend(a.workspace), "WorkspaceInfo"),
  "agent.exec": async (a) => {
    const r = await sandbox(a).exec(a.args, { stdin: a.stdin });
    return { stdout: r.stdout, stderr: r.stderr, exit_code: r.exitCode };
  },
  "agent.write": (a) => none(sandbox(a).files.write(a.path, a.content)),
  "agent.read": (a) => sandbox(a).files.readText(a.path),
  "agent.list": (a) => sandbox(a).files.list(a.path),
};

async function answer({ op, args = {} }) {
  if (!Object.hasOwn(OPS, op)) return { error: { class: "", code: "no_call", text: `there is no call ${op}` } };
  try {
    return { ok: await OPS[op](args) ?? null };
  } catch (e) {
    if (!(e instanceof ForkdError)) return { error: { class: e.name, code: "", text: String(e.message) } };
    return { error: { class: e.name, code: e.code, reason: e.reason, hint: e.hint, status: e.status, text: e.message } };
  }
}

for await (const line of createInterface({ input: process.stdin })) {
  if (line.trim()) process.stdout.write(JSON.stringify(await answer(JSON.parse(line))) + "\n");
}
await client.close();
