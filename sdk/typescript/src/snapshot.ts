/** Snapshots. */
import "./dispose.js";
import { fromWire, toWire } from "./case.js";
import { part, type CallOptions, type Connection, type Fields, type RequestOptions } from "./connection.js";
import { ForkError, errorOf, make } from "./errors.js";
import type * as m from "./generated/models.js";
import { LONG, Sandbox, killAll, withPolicy, type Policy } from "./sandbox.js";

/** Options of a fork. */
export type ForkOptions = CallOptions & Partial<Omit<m.CreateSandboxesRequest, "snapshotTag" | "n" | "net" | "network">> & {
  network?: Policy;
  /** Returns the children that run, even if others failed. */
  partial?: boolean;
  /** Called with each child as soon as it runs. */
  onChild?: (child: Sandbox) => void;
};

/** The children of one fork. With `await using` they are killed at the end of the scope. */
export class Forks extends Array<Sandbox> implements AsyncDisposable {
  static override get [Symbol.species](): ArrayConstructor {
    return Array;
  }

  /** Errors of the children that failed, with `partial`. */
  declare errors: Error[];

  /** Ends all children. Those that have ended already are no error. */
  kill(): Promise<void> {
    return killAll(this);
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.kill();
  }
}

/** A frozen virtual machine, from which sandboxes are forked. */
export class Snapshot {
  readonly #connection: Connection;

  /** @internal */
  constructor(connection: Connection, readonly tag: string) {
    this.#connection = connection;
  }

  /** Forks one sandbox, or a list of n (1 to 1000). If a child fails, a ForkError has the others. */
  async fork(o?: ForkOptions): Promise<Sandbox>;
  async fork(n: number, o?: ForkOptions): Promise<Forks>;
  async fork(first?: number | ForkOptions, second?: ForkOptions): Promise<Sandbox | Forks> {
    const n = typeof first === "number" ? first : undefined;
    const o = (typeof first === "number" ? second : first) ?? {};
    const rows = await this.#rows(n ?? 1, o);
    const children = rows.filter((r) => !r.error).map((r) => new Sandbox(this.#connection, r.id, r));
    const errors = rows.filter((r) => r.error).map((r) => errorOf(r));
    if (n === undefined) {
      if (errors[0]) throw errors[0];
      if (!children[0]) throw make(`the fork of ${this.tag} has no child`, { code: "connection_broken", reason: "maybe_done" });
      return children[0];
    }
    if (errors[0] && !o.partial) {
      const text = `${errors.length} of ${n} children of ${this.tag} failed, the first: ${errors[0].message}`;
      throw new ForkError(text, children, errors);
    }
    const forks = Object.assign(new Forks(), { errors });
    forks.push(...children);
    return forks;
  }

  /** Returns the children in order. */
  async #rows(n: number, o: ForkOptions): Promise<m.SandboxInfo[]> {
    const { signal, partial: _, onChild, ...rest } = o;
    const json = toWire({ ...withPolicy(rest), snapshotTag: this.tag, n }, "CreateSandboxesRequest");
    const rows: m.SandboxInfo[] = [];
    let ended = false;
    for await (const line of this.#connection.lines("POST", "/v1/sandboxes", { signal, json, timeout: LONG })) {
      if (Array.isArray(line)) return fromWire(line, "SandboxInfo"); // a daemon without streams
      const { child, error, fork } = line as Fields;
      if (error) throw errorOf(error);
      if (child) {
        const row = fromWire<m.SandboxInfo>(child, "SandboxInfo");
        rows.push(row);
        if (!row.error) onChild?.(new Sandbox(this.#connection, row.id, row));
      }
      ended ||= Boolean(fork);
    }
    if (!ended) throw make(`the fork of ${this.tag} broke off`, { code: "connection_broken", reason: "maybe_done" });
    return rows.sort((a, b) => (a.index ?? 0) - (b.index ?? 0));
  }

  /** Describes the snapshot, with its sizes and lineage. */
  async info(o: CallOptions = {}): Promise<m.SnapshotDetail> {
    return fromWire(await this.#call("GET", "/info", o), "SnapshotDetail");
  }

  /** Adds or replaces labels, and removes those with the keys `remove`. Other labels stay. */
  async label(labels: Record<string, string>, o: CallOptions & { remove?: string[] } = {}): Promise<m.SnapshotInfo> {
    const json = toWire({ set: labels, remove: o.remove }, "LabelsRequest");
    return fromWire(await this.#call("PATCH", "/labels", { signal: o.signal, json }), "SnapshotInfo");
  }

  /** Gives the snapshot another tag. Its sandboxes, labels and pool stay. Returns the snapshot by its new tag. */
  async rename(to: string, o: CallOptions = {}): Promise<Snapshot> {
    const json = toWire({ to }, "RenameRequest");
    const info = fromWire<m.SnapshotInfo>(await this.#call("POST", "/rename", { signal: o.signal, json }), "SnapshotInfo");
    return new Snapshot(this.#connection, info.tag);
  }

  /** Keeps the snapshot from expiry, and from deletion without force. */
  pin(o: CallOptions = {}): Promise<m.SnapshotInfo> {
    return this.label({ "forkd.pin": "true" }, o);
  }

  /** Undoes `pin`. */
  unpin(o: CallOptions = {}): Promise<m.SnapshotInfo> {
    return this.label({}, { ...o, remove: ["forkd.pin"] });
  }

  /** Lets the snapshot expire that many seconds from now. null means never. */
  expire(ttlSecs: number | null, o: CallOptions = {}): Promise<m.SnapshotInfo> {
    if (ttlSecs === null) return this.label({}, { ...o, remove: ["forkd.expires"] });
    return this.label({ "forkd.expires": `${ttlSecs.toFixed(6)}s` }, o);
  }

  /** Returns the record of how the snapshot was made. */
  async receipt(o: CallOptions = {}): Promise<m.Receipt> {
    return fromWire(await this.#call("GET", "/receipt", o), "Receipt");
  }

  /** Compares files, packages and processes with another snapshot. */
  async diff(other: string | Snapshot, o: CallOptions & { limit?: number } = {}): Promise<m.SnapshotDiff> {
    const tag = typeof other === "string" ? other : other.tag;
    const options = { signal: o.signal, query: { limit: o.limit }, timeout: LONG };
    return fromWire(await this.#call("GET", `/diff/${part(tag)}`, options), "SnapshotDiff");
  }

  /** Reads all of the snapshot, and compares it with its digests. Damage is a result, not an error. */
  async verify(o: CallOptions & { progress?: (step: m.Step) => void } = {}): Promise<m.VerifyResult> {
    for await (const line of this.#connection.lines("POST", this.#path("/verify"), { signal: o.signal, timeout: LONG })) {
      const step = line as Fields;
      if (step.error) throw errorOf(step.error);
      if (step.verify || "ok" in step) return fromWire(step.verify ?? step, "VerifyResult");
      o.progress?.(fromWire(step, "Step"));
    }
    throw make(`the check of ${this.tag} broke off`, { code: "connection_broken" });
  }

  /** Makes a snapshot of the same content that shares no layer with others. */
  async compact(to: string, o: CallOptions & { progress?: (step: m.Step) => void } = {}): Promise<Snapshot> {
    await makeSnapshot(this.#connection, this.#path("/compact"), { to }, o);
    return new Snapshot(this.#connection, to);
  }

  /**
   * Writes the snapshot to one file, for `importSnapshot` on another host. An existing file is replaced. `progress` gets
   * the number of bytes written so far. The file has the guest's memory and disks. It needs a file system.
   */
  async export(path: string, o: CallOptions & { progress?: (bytes: number) => void } = {}): Promise<void> {
    const { save } = await import("./layout.js");
    await save(path, this.#connection.bytes("GET", this.#path("/export"), { signal: o.signal, timeout: LONG }), o.progress);
  }

  /** Deletes the snapshot. `cascade` deletes those that depend on it too, `force` leaves them. */
  async delete(o: CallOptions & { cascade?: boolean; force?: boolean } = {}): Promise<void> {
    await this.#call("DELETE", "", { signal: o.signal, query: { cascade: o.cascade, force: o.force } });
  }

  /** Lets all tenants fork from the snapshot, or withdraws this. */
  async publish(isPublic = true, o: CallOptions = {}): Promise<m.SnapshotInfo> {
    return fromWire(await this.#call("PUT", "/public", { ...o, json: { public: isPublic } }), "SnapshotInfo");
  }

  /** Sets the number of VMs that stand ready for forks. */
  async setPool(size: number, o: CallOptions = {}): Promise<void> {
    await this.#call("PUT", "/pool", { ...o, json: { size } });
  }

  /** Is `setPool`, by the name of earlier versions. */
  pool(size: number, o: CallOptions = {}): Promise<void> {
    return this.setPool(size, o);
  }

  #path(rest: string): string {
    return `/v1/snapshots/${part(this.tag)}${rest}`;
  }

  #call(method: string, rest: string, o: RequestOptions): Promise<unknown> {
    return this.#connection.call(method, this.#path(rest), o);
  }
}

/** Makes a snapshot, and reports the steps. */
export async function makeSnapshot(connection: Connection, path: string, json: object,
  o: CallOptions & { progress?: (step: m.Step) => void }): Promise<m.SnapshotInfo> {
  for await (const line of connection.lines("POST", path, { signal: o.signal, json, timeout: 3 * LONG })) {
    const step = line as Fields;
    if (step.error) throw errorOf(step.error);
    if (step.snapshot || "tag" in step) return fromWire(step.snapshot ?? step, "SnapshotInfo");
    o.progress?.(fromWire(step, "Step"));
  }
  throw make(`POST ${path} broke off`, { code: "connection_broken", reason: "maybe_done" });
}
