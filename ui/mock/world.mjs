// The objects of the mock: 1000 sandboxes of three tenants, and the snapshots they came from.

const now = () => Math.floor(Date.now() / 1000);

/** An id of the daemon's form, always the same for a child of a fork. */
export function idOf(fork, index) {
  let id = "sb-";
  for (let x = fork * 7919 + index * 104_729, i = 0; i < 16; i++) {
    x = (x * 48_271) % (2 ** 31 - 1);
    id += "abcdefghijklmnopqrstuvwxyz234567"[Math.floor(x / 2 ** 16) % 32];
  }
  return id;
}

export class Refusal extends Error {
  constructor(status, code, message, reason, details) {
    super(message);
    Object.assign(this, { status, code, reason, details });
  }
}

export class World {
  snapshots = new Map();
  sandboxes = new Map();
  receipts = new Map();
  forks = 0;
  listeners = new Set();
  events = 2 ** 32;

  constructor(count = 1000) {
    const start = now() - 86_400;
    this.#snapshot("python", { image: "python-numpy", created_at_unix: start, public: true, size_bytes: 94_371_840, languages: ["python"] });
    this.#snapshot("node", { image: "node", created_at_unix: start + 600, size_bytes: 121_634_816, languages: ["javascript"] });
    this.#snapshot("acme-agent", { parent_tag: "python", created_at_unix: start + 1200, owner: "acme", size_bytes: 12_582_912, labels: { team: "red", "forkd.pin": "true" } });
    this.#snapshot("broken", { parent_tag: "node", created_at_unix: start + 1500, bootable: false, damaged: ["memory layer l-77ab, block 42"] });
    const first = this.fork({ snapshot_tag: "python", n: 2 }, start + 2000)[0];
    this.branch(first.id, { tag: "tried", n: 8 }, start + 4000);
    const second = [...this.sandboxes.values()].at(-1);
    this.branch(second.id, { tag: "tried-again", n: 3 }, start + 6000);
    this.fork({ snapshot_tag: "acme-agent", n: 40 }, start + 7000);
    this.fork({ snapshot_tag: "acme-agent", n: 12 }, start + 70_000);
    this.fork({ snapshot_tag: "node", n: 6 }, start + 80_000);
    this.fork({ snapshot_tag: "python", n: Math.max(0, count - this.sandboxes.size) }, now() - 700);
    const all = [...this.sandboxes.values()];
    for (let i = 20; i < 30; i++) this.pause(all[i].id);
    Object.assign(all[31], { status: "failed", reason: "its VM has ended: out of memory", pid: null });
    all[33].labels = { job: "4711" };
    Object.assign(all[32], { status: "stalled", reason: "the store's file system is full" });
  }

  #snapshot(tag, more = {}) {
    const s = {
      tag, status: "ready", bootable: true, created_at_unix: now(), dir: `/var/lib/forkd/snapshots/${tag}`, memory_mib: 512, vcpus: 2,
      size_bytes: 4_194_304, ...more,
    };
    this.snapshots.set(tag, s);
    this.receipts.set("s:" + tag, receiptOf({ op: s.branched_from ? "branch" : "snapshot", snapshot: tag, sandbox: s.branched_from }));
    return s;
  }

  /** Tells followers of a change. */
  tell(kind, about) {
    const event = { id: ++this.events, time: new Date().toISOString(), kind, ...about };
    for (const f of this.listeners) f(event);
  }

  box(id) {
    const s = this.sandboxes.get(id) ?? [...this.sandboxes.values()].find((b) => b.dns_id === id);
    if (!s) throw new Refusal(404, "not_found", `sandbox ${id} not found`);
    return s;
  }

  running(id) {
    const s = this.box(id);
    if (s.status === "paused") throw new Refusal(409, "conflict", `sandbox ${id} is paused`, "sandbox_paused", { sandbox: id });
    if (s.status !== "running") throw new Refusal(409, "conflict", `sandbox ${id} is ${s.status}`, "sandbox_failed");
    return s;
  }

  tag(tag) {
    const s = this.snapshots.get(tag);
    if (!s) throw new Refusal(404, "not_found", `snapshot ${tag} not found`, "snapshot_not_found");
    return s;
  }

  fork({ snapshot_tag, n = 1, net, labels, ttl_secs, at_end }, created = now()) {
    const from = this.tag(snapshot_tag);
    if (!from.bootable) throw new Refusal(409, "not_restorable", `snapshot ${snapshot_tag} is damaged`, "snapshot_damaged", { tag: snapshot_tag });
    if (n > 1000) throw new Refusal(429, "quota_exceeded", "the key may run 1000 sandboxes", "quota", { quota: "sandboxes" });
    const fork = idOf(++this.forks, 1);
    return Array.from({ length: n }, (_, i) => {
      const id = idOf(this.forks, i + 1);
      const s = {
        id, dns_id: id.replaceAll("-", ""), snapshot_tag, status: "running", index: i + 1, fork, created_at_unix: created, pid: 4000 + this.sandboxes.size,
        guest_addr: "192.0.0.2", hostname: id, memory_limit_mib: null, netns: null, memory_mib: from.memory_mib, vcpus: from.vcpus,
        network: { policy: net ?? (this.forks % 2 ? "custom" : "none"), allow: 2, deny: 1 },
        timings: { armed_ms: 3.1 + i / 50, resumed_ms: 3.9 + i / 50, ready_ms: 9.4 + i / 50 },
        ...(from.owner ? { owner: from.owner } : {}), ...(labels ? { labels } : {}),
        ...(ttl_secs ? { life: { at_end: at_end ?? "kill", deadline_unix: now() + ttl_secs } } : {}),
      };
      this.sandboxes.set(id, s);
      this.receipts.set("b:" + id, receiptOf({ op: "fork", sandbox: id, parent: snapshot_tag, index: i + 1 }));
      this.tell("sandbox.created", { sandbox: id, snapshot: snapshot_tag, detail: { index: String(i + 1) } });
      this.tell("sandbox.ready", { sandbox: id, snapshot: snapshot_tag });
      return s;
    });
  }

  branch(id, { tag, n = 0, mode = "live" }, created = now()) {
    const s = this.running(id);
    const name = tag ?? `branch-${id}-${created}`;
    if (this.snapshots.has(name)) throw new Refusal(409, "conflict", `snapshot ${name} exists`, "tag_taken");
    const made = this.#snapshot(name, {
      branched_from: id, parent_tag: s.snapshot_tag, created_at_unix: created, pause_ms: 1.52, ...(s.owner ? { owner: s.owner } : {}),
    });
    this.tell("sandbox.branched", { sandbox: id, snapshot: name, detail: { mode, pause_us: "1520" } });
    this.tell("snapshot.created", { snapshot: name });
    const children = n > 0 ? this.fork({ snapshot_tag: name, n }, created) : undefined;
    return {
      ...made, mechanism: "wp-async", rounds: 2, bytes_written: 3_145_728, paused_bytes: 81_920, total_ms: 48.2, after_resume_ms: 12.1,
      ...(children ? { children } : {}),
    };
  }

  rollback(id, { snapshot_tag }) {
    const s = this.running(id);
    this.tag(snapshot_tag);
    Object.assign(s, { snapshot_tag, rolled_back_to: snapshot_tag, pid: s.pid + 10_000 });
    this.receipts.set("b:" + id, receiptOf({ op: "rollback", sandbox: id, parent: snapshot_tag, index: s.index }));
    this.tell("sandbox.rolled_back", { sandbox: id, snapshot: snapshot_tag });
    return s;
  }

  pause(id) {
    const s = this.running(id);
    const tag = `pause-${id}-00000001`;
    this.#snapshot(tag, { branched_from: id, parent_tag: s.snapshot_tag, transient: true });
    Object.assign(s, { status: "paused", paused_in: tag, pid: null });
    this.tell("sandbox.paused", { sandbox: id });
    return s;
  }

  resume(id) {
    const s = this.box(id);
    if (s.status !== "paused") return s;
    Object.assign(s, { status: "running", pid: 9000 });
    this.snapshots.delete(s.paused_in);
    this.tell("sandbox.resumed", { sandbox: id });
    return s;
  }

  kill(id) {
    const s = this.box(id);
    this.sandboxes.delete(s.id);
    this.tell("sandbox.ended", { sandbox: s.id, snapshot: s.snapshot_tag });
  }

  promote(id, { place, parent = "pause" }) {
    const s = this.box(id);
    const into = place ?? this.snapshots.get(s.snapshot_tag)?.branched_from;
    if (!into || !this.sandboxes.has(into)) {
      throw new Refusal(409, "conflict", `sandbox ${id} descends from no running sandbox`, "no_place");
    }
    const kept = parent === "pause" ? this.branch(into, {}).tag : undefined;
    const target = this.box(into);
    this.kill(id);
    Object.assign(target, { promoted_from: id, rolled_back_to: s.snapshot_tag });
    this.tell("sandbox.rolled_back", { sandbox: into });
    return { promoted_from: id, sandbox: target, ...(kept ? { kept_in: kept } : {}) };
  }

  remove(tag, cascade) {
    this.tag(tag);
    const built = [...this.snapshots.values()].filter((s) => s.parent_tag === tag).map((s) => s.tag);
    const users = [...this.sandboxes.values()].filter((s) => s.snapshot_tag === tag);
    if (users.length) throw new Refusal(409, "conflict", `snapshot ${tag} has ${users.length} sandboxes`, "dependent_sandboxes");
    if (built.length && !cascade) throw new Refusal(409, "conflict", `snapshots are built on ${tag}: ${built.join(", ")}`, "dependent_snapshots");
    for (const t of built) this.remove(t, true);
    this.snapshots.delete(tag);
    this.tell("snapshot.deleted", { snapshot: tag });
  }

  /** The list has figures that one sandbox's answer lacks. */
  listed() {
    return [...this.sandboxes.values()].map((s, i) => (s.status === "running" ? {
      ...s, own_memory_kib: 9_000 + ((i * 7919) % 40_000),
      use: {
        cpu_ms: 120 + i, memory_bytes: (9_000 + ((i * 7919) % 40_000)) * 1024, memory_peak_bytes: 61_865_984, disk_read_bytes: 40_960,
        disk_written_bytes: 1_228_800, threads: 14, throttled_ms: 0, net_in_bytes: 18_240, net_out_bytes: 3_400,
      },
    } : s));
  }

  detail(tag) {
    const s = this.tag(tag);
    const ancestors = [];
    for (let at = s.parent_tag; at; at = this.snapshots.get(at)?.parent_tag) ancestors.unshift(at);
    return {
      ...s, ancestors, chain_depth: ancestors.length, digests_ready: true, content_hash: "sha256:" + "4be1c09a".repeat(8),
      dependents: [...this.snapshots.values()].filter((x) => x.parent_tag === tag).map((x) => x.tag),
      sandboxes: [...this.sandboxes.values()].filter((x) => x.snapshot_tag === tag).map((x) => x.id),
      disk_logical_bytes: 2 ** 31, disk_own_bytes: 8_388_608, disk_physical_bytes: 31_457_280, memory_logical_bytes: 2 ** 29,
      memory_own_bytes: s.size_bytes, memory_physical_bytes: 98_566_144, vmstate_bytes: 48_212, kernel_version: "6.1.0-44-cloud-amd64",
    };
  }
}

function receiptOf({ op, sandbox, snapshot, parent, index = 1 }) {
  const layers = [
    { id: "l-5f3a9c01", kind: "memory", bytes: 94_371_840, digest: "sha256:" + "9ad1".repeat(16) },
    { id: "l-77abd2", kind: "disk", bytes: 31_457_280, digest: "sha256:" + "17be".repeat(16) },
    { id: "state", kind: "state", bytes: 48_212 },
  ];
  const guest = {
    boot_id: "3f1d9d54-6f0a-4d77-9d0e-0c6a0c1e5b11", clock_step_ms: 5320.4, kernel_reseeded: true, random_digest: "c4".repeat(32), took_ms: 3.9,
    steps: [
      { name: "entropy", done: true, took_ms: 0.4 }, { name: "clock", done: true, took_ms: 0.1 }, { name: "hostname", done: true, took_ms: 0.2 },
      { name: "machine_id", done: true, took_ms: 0.6 }, { name: "interpreters", done: true, took_ms: 2.1 },
    ],
    interpreters: [{ language: "python", reseeded: ["random", "numpy.random"], took_ms: 2.1 }], hooks: [],
  };
  const base = { id: "r-" + Math.abs(hash(sandbox ?? snapshot)).toString(16), op, at_unix_ms: Date.now() - 60_000, took_ms: 11.8 };
  if (op === "fork" || op === "rollback") {
    return {
      ...base, sandbox, guest, parent: { tag: parent, content_hash: "sha256:" + "4be1c09a".repeat(8), layers },
      vm: { map_ms: 0.7, state_ms: 0.9, pooled: true, prepared: true, populated_pages: 1841 },
      identity: { index, hostname: sandbox, machine_id: "ab".repeat(16), parent, vm_generation_id: "cd".repeat(16), entropy_bytes: 512, way: "port" },
      steps: [
        { name: "turn", took_ms: 0.3 }, { name: "restore", took_ms: 2.6 }, { name: "turn", took_ms: 0.1 }, { name: "populate", took_ms: 1.2 },
        { name: "start", took_ms: 0.4 }, { name: "identity", took_ms: 5.1 }, { name: "journal", took_ms: 0.9 },
      ],
    };
  }
  return {
    ...base, snapshot, ...(sandbox ? { sandbox } : {}), made: { tag: snapshot, layers },
    ...(op === "branch"
      ? { capture: { mode: "live", mechanism: "wp-async", pause_ms: 1.52, rounds: 2, bytes: 3_145_728, paused_bytes: 81_920 } }
      : { image: { name: "python-numpy", digest: "sha256:" + "00ff".repeat(16) } }),
    steps: [{ name: "capture", took_ms: 41.2 }, { name: "layers", took_ms: 5.4 }, { name: "commit", took_ms: 1.6, bytes: 4096 }],
  };
}

function hash(text = "") {
  let h = 7;
  for (const c of text) h = (h * 31 + c.charCodeAt(0)) | 0;
  return h;
}
