// The routes of the API that the page uses, with answers in the form of api/openapi.json.
import { Refusal } from "./world.mjs";

const json = (answer, value, status = 200) => {
  answer.writeHead(status, { "Content-Type": "application/json" });
  answer.end(JSON.stringify(value));
};
const none = (answer) => answer.writeHead(204).end();

const policy = { default: "deny", allow: ["pypi.org:443", "*.pythonhosted.org:443"], deny: ["198.51.100.0/24"], limits: { flows: 1024, dns_per_second: 100 } };

/** A tenant sees its own objects. */
const sees = (user, object) => !user.tenant || object.owner === user.tenant;

function operator(user) {
  if (user.tenant) throw new Refusal(403, "forbidden", "this is for the operator", "operator_only");
  return true;
}

/** Each route: a method, a pattern, and what it does. */
export function routesOf(world, agent) {
  const networks = new Map();
  const network = (id) => {
    const summary = world.box(id).network;
    const asked = networks.get(world.box(id).id) ?? (summary.policy === "none" ? { default: "deny" } : policy);
    const cut = summary.policy === "none" ? [] : ["10.0.0.0/8: the operator's ceiling"];
    return { ...summary, network: asked, effective: asked, cut };
  };
  return [
    ["GET", "/version", ({ answer }) => json(answer, { version: "0.0.0-mock", api: "v1" })],
    ["GET", "/v1/snapshots", ({ answer, user }) => json(answer, [...world.snapshots.values()].filter((s) => s.public || sees(user, s)))],
    ["GET", "/v1/sandboxes", ({ answer, user }) => json(answer, world.listed().filter((s) => sees(user, s)))],
    ["POST", "/v1/sandboxes", ({ answer, body }) => json(answer, world.fork(body), 201)],
    ["GET", "/v1/snapshots/:tag/info", ({ answer, at }) => json(answer, world.detail(at.tag))],
    ["GET", "/v1/snapshots/:tag/receipt", ({ answer, at }) => json(answer, receipt(world, "s:" + at.tag))],
    ["GET", "/v1/snapshots/:tag/diff/:other", ({ answer, at }) => setTimeout(() => json(answer, diff(at.tag, at.other)), 300)],
    ["DELETE", "/v1/snapshots/:tag", ({ answer, at, query }) => (world.remove(at.tag, query.get("cascade") === "true"), none(answer))],
    ["GET", "/v1/sandboxes/:id", ({ answer, at }) => json(answer, world.box(at.id))],
    ["DELETE", "/v1/sandboxes/:id", ({ answer, at }) => (world.kill(at.id), none(answer))],
    ["GET", "/v1/sandboxes/:id/receipt", ({ answer, at }) => json(answer, receipt(world, "b:" + at.id))],
    ["GET", "/v1/sandboxes/:id/memory", ({ answer, at }) => json(answer, memory(world.running(at.id)))],
    ["POST", "/v1/sandboxes/:id/branch", ({ answer, at, body }) => json(answer, world.branch(at.id, body), 201)],
    ["POST", "/v1/sandboxes/:id/rollback", ({ answer, at, body }) => json(answer, world.rollback(at.id, body))],
    ["POST", "/v1/sandboxes/:id/pause", ({ answer, at, body }) => {
      if (body.filesystem_only) throw new Refusal(501, "unsupported", `sandbox ${at.id} cannot be paused without its memory`, "cold_pause");
      json(answer, world.pause(at.id));
    }],
    ["POST", "/v1/sandboxes/:id/resume", ({ answer, at }) => json(answer, world.resume(at.id))],
    ["POST", "/v1/sandboxes/:id/promote", ({ answer, at, body }) => json(answer, world.promote(at.id, body))],
    ["POST", "/v1/sandboxes/:id/merge", ({ answer, at, body }) => (world.running(at.id), setTimeout(() => json(answer, merge(body.theirs)), 200))],
    ["GET", "/v1/sandboxes/:id/network", ({ answer, at }) => json(answer, network(at.id))],
    ["PUT", "/v1/sandboxes/:id/network", ({ answer, at, body }) => {
      const bad = (body.network?.allow ?? []).find((r) => /[^\w.*:/-]/.test(r));
      if (bad) throw new Refusal(400, "invalid_request", `rule ${bad}: not a host`, "net_rule", { rule: bad, why: "not a host" });
      networks.set(at.id, body.network);
      world.box(at.id).network = { policy: "custom", allow: body.network.allow.length, deny: body.network.deny.length };
      json(answer, network(at.id));
    }],
    ["GET", "/v1/sandboxes/:id/network/flows", ({ answer }) => json(answer, [
      { began: new Date(Date.now() - 42_000).toISOString(), far: "151.101.0.223:443", guest: "192.0.0.2:40122", name: "pypi.org", protocol: "tcp", received: 182_044, sent: 2_201, rule: "pypi.org:443" },
    ])],
    ["GET", "/v1/sandboxes/:id/network/log", ({ answer, query }) => netlog(answer, query.get("follow") === "true")],
    ["GET", "/v1/sandboxes/:id/console", ({ answer, at, query }) => console_(answer, world.box(at.id), query.get("follow") === "true")],
    ["GET", "/v1/capacity", ({ answer, user }) => (operator(user), json(answer, capacity(world)))],
    ["GET", "/v1/keys", ({ answer, user }) => operator(user) && json(answer, [
      { id: "k0123456789ab", name: "ci", tenant: "acme", status: "active", scopes: ["read", "run", "fork"], created_at_unix: 1_790_000_000, quotas: { sandboxes: 60, memory_mib: 32_768, disk_mib: 1024, forks_per_minute: 300 } },
    ])],
    ["GET", "/v1/tenants/:tenant", ({ answer, at, user }) => operator(user) && json(answer, { name: at.tenant, cpu_weight: at.tenant === "acme" ? 200 : 100 })],
    ["GET", "/v1/events", ({ answer }) => events(world, answer)],
    ["*", "/v1/sandboxes/:id/agent/*", ({ answer, request, at, query, raw }) => {
      world.running(at.id);
      return agent.serve(at.id, at.rest, query, request, answer, raw);
    }],
  ];
}

function receipt(world, key) {
  const r = world.receipts.get(key);
  if (!r) throw new Refusal(404, "not_found", "there is no receipt of it", "receipt_not_found");
  return r;
}

const memory = () => ({ guest_dirty_kib: 11_264, guest_shared_kib: 142_336, pss_kib: 18_432, vmm_anon_kib: 6_144 });

function capacity(world) {
  return {
    admits: "all", coming: 0, sandboxes: [...world.sandboxes.values()].filter((s) => s.status === "running").length,
    pressure: [
      { resource: "cpu", some_percent: 12.4, fewer_percent: 80 }, { resource: "memory", some_percent: 0.3, fewer_percent: 10, none_percent: 40 },
      { resource: "io", some_percent: 2.1, fewer_percent: 40, none_percent: 80 },
    ],
    resources: [
      { resource: "memory", total: 64 * 2 ** 30, free: 21 * 2 ** 30, reserve: 2 ** 30, promised: 210 * 2 ** 30, may_promise: 256 * 2 ** 30 },
      { resource: "disk", total: 400 * 2 ** 30, free: 18 * 2 ** 30, reserve: 2 * 2 ** 30, promised: 90 * 2 ** 30 },
      { resource: "descriptors", total: 524_288, free: 471_000, reserve: 256 }, { resource: "threads", total: 60_000, free: 46_000, reserve: 200 },
    ],
  };
}

function diff(before, after) {
  const file = (path, size_bytes) => ({ path, size_bytes, mode: "-rw-r--r--" });
  const process = (pid, name) => ({ pid, ppid: 1, uid: 1000, name, args: [name, "-m", "work"], pss_kib: 9_120, rss_kib: 12_300, anon_kib: 8_000 });
  return {
    before, after, took_ms: 412.7,
    files: {
      added: [file("/home/user/result.json", 2_048), file("/tmp/cache/a", 10)], removed: [file("/tmp/old", 4)], compared: 18_233, complete: true,
      changed: [{ ...file("/home/user/main.py", 310), size_bytes_before: 290, mode_before: "-rw-r--r--", what: ["size", "mtime"] }],
    },
    processes: { started: [process(812, "python3")], ended: [], changed: [{ ...process(640, "node"), pss_kib_before: 4_000, rss_kib_before: 5_000, anon_kib_before: 3_000 }], complete: true, added_count: 1, removed_count: 0 },
    packages: { added: [{ name: "jq", architecture: "amd64", version: "1.6-2.1" }], removed: [], changed: [], complete: true },
  };
}

const merge = (theirs) => ({
  applied: false, base: "python", complete: true, unresolved: 1,
  changes: [{ path: "/home/user/result.json", action: "added" }, { path: "/home/user/main.py", action: "merged" }],
  conflicts: [{ path: "/home/user/notes", kind: "content", text: "CONFLICT (content): /home/user/notes: both have changed it" }],
  skipped: [{ path: "/run/socket", why: `a socket in ${theirs}` }],
});

function events(world, answer) {
  answer.writeHead(200, { "Content-Type": "text/event-stream", "Cache-Control": "no-store" });
  answer.flushHeaders();
  const send = (e) => answer.write(`id: ${e.id}\nevent: ${e.kind}\ndata: ${JSON.stringify(e)}\n\n`);
  world.listeners.add(send);
  const beat = setInterval(() => answer.write(`: ${world.events}\n\n`), 15_000);
  answer.on("close", () => {
    world.listeners.delete(send);
    clearInterval(beat);
  });
}

function console_(answer, box, follow) {
  answer.writeHead(200, { "Content-Type": "text/plain; charset=utf-8" });
  for (let i = 0; i < 120; i++) answer.write(`[    ${(i / 100).toFixed(6)}] \x1b[1mkernel\x1b[0m: line ${i} of ${box.id}\r\n`);
  if (!follow) return answer.end();
  const timer = setInterval(() => answer.write(`[  ${(performance.now() / 1000).toFixed(6)}] still here\n`), 500);
  answer.on("close", () => clearInterval(timer));
}

function netlog(answer, follow) {
  answer.writeHead(200, { "Content-Type": "application/x-ndjson" });
  const line = (o) => answer.write(JSON.stringify({ time: new Date().toISOString(), vm: "v", sandbox: "s", ...o }) + "\n");
  line({ verdict: "denied", protocol: "tcp", name: "example.com", far: "93.184.216.34:443", reason: "no rule allows example.com:443", count: 3 });
  if (!follow) return answer.end();
  const timer = setInterval(() => line({ verdict: "allowed", protocol: "tcp", name: "pypi.org", rule: "pypi.org:443", bytes_in: 100, seconds: 0.4 }), 700);
  answer.on("close", () => clearInterval(timer));
}
