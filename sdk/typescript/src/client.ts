/** The client of a daemon. */
import "./dispose.js";
import type { AddressOptions } from "./address.js";
import { Images, Keys, Pools, PrivateNetworks, Receipts, Sandboxes, Secrets, Snapshots, Store, Tenants, Volumes, Workspaces,
  eventsOf, filtered,
  type AuditOptions, type CreateSnapshotOptions, type EventsOptions } from "./admin.js";
import { fromWire, toWire } from "./case.js";
import { Connection, linesOf, part, type CallOptions, type TraceParent } from "./connection.js";
import { make } from "./errors.js";
import { counted } from "./files.js";
import type * as m from "./generated/models.js";
import { LONG, Sandbox } from "./sandbox.js";
import { argumentsOf } from "./process.js";
import { Snapshot, type ForkOptions, type Forks } from "./snapshot.js";

/** Options of a client. */
export interface ForkdOptions extends AddressOptions {
  /** Limit in milliseconds of calls that should be quick, and of silence in streams. The default is 60000. */
  timeoutMs?: number;
  /** Milliseconds for which GET requests are repeated while a daemon restarts. The default is 3000; 0 means never. */
  retryForMs?: number;
  /** The trace that requests continue: a W3C traceparent, or a function that returns the current one. */
  traceparent?: TraceParent;
  /** Another fetch, for tests and proxies. */
  fetch?: typeof fetch;
}

/** Options of `Forkd.keep`: those of the API, and `by`. */
export type KeepOptions = CallOptions & m.KeepRequest & {
  /** Prints the score: a command for the shell, or a program with its arguments. The API's name for the latter is `args`. */
  by?: string | readonly string[];
};

/**
 * A client of one daemon. Without a URL it takes FORKD_URL and FORKD_TOKEN, else the daemon or the machine that the
 * program `forkd` uses, which it starts if needed, else the socket /run/forkd/forkd.sock.
 */
export class Forkd implements AsyncDisposable {
  readonly #connection: Connection;
  readonly sandboxes: Sandboxes;
  readonly snapshots: Snapshots;
  readonly images: Images;
  readonly keys: Keys;
  readonly secrets: Secrets;
  /** Private networks: sandboxes in one find each other by name. */
  readonly privateNetworks: PrivateNetworks;
  /** Volumes: disks which outlive the sandboxes that use them. */
  readonly volumes: Volumes;
  readonly tenants: Tenants;
  readonly workspaces: Workspaces;
  readonly pools: Pools;
  readonly receipts: Receipts;
  readonly store: Store;

  constructor(options: ForkdOptions = {}) {
    const c = this.#connection = new Connection({ ...options, timeout: options.timeoutMs, retryFor: options.retryForMs });
    this.sandboxes = new Sandboxes(c);
    this.snapshots = new Snapshots(c);
    this.images = new Images(c);
    this.keys = new Keys(c);
    this.secrets = new Secrets(c);
    this.privateNetworks = new PrivateNetworks(c);
    this.volumes = new Volumes(c);
    this.tenants = new Tenants(c);
    this.workspaces = new Workspaces(c);
    this.pools = new Pools(c);
    this.receipts = new Receipts(c);
    this.store = new Store(c);
  }

  /** The daemon's URL, without secrets. It is empty before the first request, if the program forkd is asked. */
  get url(): string {
    return this.#connection.url;
  }

  toJSON(): object {
    return { url: this.url };
  }

  [Symbol.for("nodejs.util.inspect.custom")](): string {
    return `Forkd { url: ${JSON.stringify(this.url)} }`;
  }

  /** Closes idle connections. Sandboxes keep running. */
  async close(): Promise<void> {
    this.#connection.close();
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  /** Returns a sandbox by its id, without a request. */
  sandbox(sandbox: string): Sandbox {
    return new Sandbox(this.#connection, sandbox);
  }

  /** Returns a snapshot by its tag, without a request. */
  snapshot(tag: string): Snapshot {
    return new Snapshot(this.#connection, tag);
  }

  /** Forks one sandbox of a snapshot, or a list of n. See `Snapshot.fork`. */
  async fork(tag: string, o?: ForkOptions): Promise<Sandbox>;
  async fork(tag: string, n: number, o?: ForkOptions): Promise<Forks>;
  async fork(tag: string, first?: number | ForkOptions, second?: ForkOptions): Promise<Sandbox | Forks> {
    const snapshot = this.snapshot(tag);
    return typeof first === "number" ? snapshot.fork(first, second) : snapshot.fork(first);
  }

  /** Boots an image, or forks the snapshot `from` and runs `exec` in it, and keeps a snapshot. Is `snapshots.create`. */
  createSnapshot(tag: string, o: CreateSnapshotOptions = {}): Promise<Snapshot> {
    return this.snapshots.create(tag, o);
  }

  /**
   * Makes a snapshot from a file of `Snapshot.export`. `tag` is by default the one it had, and `progress` gets the number
   * of bytes sent so far. Import files you trust: a snapshot brings its programs. Throws NotRestorableError if it cannot
   * run on the daemon's host. It needs a file system.
   */
  async importSnapshot(path: string, o: CallOptions & { tag?: string; progress?: (bytes: number) => void } = {}): Promise<Snapshot> {
    const { Layout } = await import("./layout.js");
    const layout = await Layout.open(path);
    try {
      const tag = o.tag || layout.title;
      await this.#connection.call("PUT", `/v1/snapshots/${part(tag)}`, {
        signal: o.signal, timeout: 3 * LONG, headers: { "Content-Type": "application/x-tar" },
        body: counted(layout.stream(), o.progress),
      });
      return new Snapshot(this.#connection, tag);
    } finally {
      await layout.close();
    }
  }

  /**
   * Copies a snapshot from another daemon: the first of `peers`, a list of URLs, that has it. The operator of this daemon
   * allows peers with `forkd serve --peer`.
   */
  async copySnapshot(tag: string, peers: string[], o: CallOptions = {}): Promise<Snapshot> {
    const made = fromWire<m.SnapshotInfo>(await this.#connection.call("POST", `/v1/snapshots/${part(tag)}/copy`, {
      timeout: 3 * LONG, ...o, json: { peers },
    }), "SnapshotInfo");
    return new Snapshot(this.#connection, made.tag);
  }

  /** Removes layers that are in no use. With `dryRun` it only lists them. Is `store.gc`. */
  collect(o: CallOptions & { dryRun?: boolean } = {}): Promise<m.CollectResult> {
    return this.store.gc(o);
  }

  /** Removes the snapshots that have expired, or are older than the last ones to keep. */
  async pruneSnapshots(o: CallOptions & { dryRun?: boolean } = {}): Promise<m.PruneResult> {
    const json = toWire({ dryRun: o.dryRun }, "PruneRequest");
    return fromWire(await this.#connection.call("POST", "/v1/store/prune", { signal: o.signal, json }), "PruneResult");
  }

  /** Reports whether the daemon answers. It needs no token. */
  async health(o: CallOptions = {}): Promise<boolean> {
    return Boolean(((await this.#connection.call("GET", "/healthz", o)) as m.Health).ok);
  }

  /** Returns true if the daemon can start VMs, otherwise throws the reason. It needs no token. */
  async ready(o: CallOptions = {}): Promise<boolean> {
    return Boolean(((await this.#connection.call("GET", "/readyz", o)) as m.Readiness).ready);
  }

  /** Returns the version of the daemon. */
  async version(o: CallOptions = {}): Promise<m.VersionInfo> {
    return fromWire(await this.#connection.call("GET", "/version", o), "VersionInfo");
  }

  /** Returns the metrics in Prometheus's text format. */
  async metrics(o: CallOptions = {}): Promise<string> {
    return String(await this.#connection.call("GET", "/metrics", o) ?? "");
  }

  /** Returns the host's resources for sandboxes, and the promised part of them. */
  async capacity(o: CallOptions = {}): Promise<m.Capacity> {
    return fromWire(await this.#connection.call("GET", "/v1/capacity", o), "Capacity");
  }

  /** Returns the daemon's node in a cluster, for the operator: identity, capacity, pools and snapshots. */
  async node(o: CallOptions = {}): Promise<m.Node> {
    return fromWire(await this.#connection.call("GET", "/v1/node", o), "Node");
  }

  /**
   * Makes the daemon take no new sandboxes. Running ones are paused, or run on with the mode `wait`. A restart of the
   * daemon ends the drain only with `untilRestart`.
   */
  async drain(mode: "pause" | "wait" = "pause", o: CallOptions & { untilRestart?: boolean } = {}): Promise<m.Drain> {
    const json = toWire({ mode, untilRestart: o.untilRestart }, "DrainRequest");
    return fromWire(await this.#connection.call("POST", "/v1/drain", { ...o, json }), "Drain");
  }

  /** Returns the progress of a drain. */
  async drainStatus(o: CallOptions = {}): Promise<m.Drain> {
    return fromWire(await this.#connection.call("GET", "/v1/drain", o), "Drain");
  }

  /** Ends a drain. Paused sandboxes stay paused. */
  async cancelDrain(o: CallOptions = {}): Promise<m.Drain> {
    return fromWire(await this.#connection.call("DELETE", "/v1/drain", o), "Drain");
  }

  /** Scores sandboxes, keeps the best and ends the others. No sandbox ends before all have a score. */
  async keep(o: KeepOptions): Promise<m.KeepResult> {
    const { signal, by, ...body } = o;
    const json = toWire(by === undefined ? body : { ...body, args: argumentsOf(by) }, "KeepRequest");
    return fromWire(await this.#connection.call("POST", "/v1/sandboxes/keep", { signal, timeout: 1_800_000, json }),
      "KeepResult");
  }

  /** Yields events as they happen, until the caller leaves. If the daemon ends, it throws: continue with `after`. */
  async *events(o: EventsOptions = {}): AsyncGenerator<m.Event> {
    const query = { after: o.after, sandbox: o.sandbox, snapshot: o.snapshot, kind: o.kinds?.join(","),
      ...filtered(o).query };
    const body = this.#connection.bytes("GET", "/v1/events",
      { signal: o.signal, query, timeout: 0, headers: { Accept: "text/event-stream" } });
    yield* eventsOf(linesOf(body));
    throw make("the stream of events ended", { code: "connection_broken" });
  }

  /** Yields lines of the audit log, for operators. */
  async *audit(o: AuditOptions = {}): AsyncGenerator<Record<string, unknown>> {
    const { signal, ...query } = o;
    const options = { signal, query, ...(o.follow ? { timeout: 0 } : {}) };
    for await (const line of this.#connection.lines("GET", "/v1/audit", options)) yield fromWire(line, "");
  }

  /** Checks the audit log for changes, and for each recorded head (`[CHAIN:]SEQ:HASH`). */
  async verifyAudit(o: CallOptions & { heads?: readonly string[] } = {}): Promise<m.AuditReport> {
    const options = { signal: o.signal, query: { head: o.heads } };
    return fromWire(await this.#connection.call("GET", "/v1/audit/verify", options), "AuditReport");
  }
}
