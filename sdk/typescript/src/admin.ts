/** Lists of sandboxes and snapshots, and what operators handle: images, keys, tenants, workspaces. */
import { fromWire, toWire } from "./case.js";
import { part, type CallOptions, type Connection, type RequestOptions } from "./connection.js";
import { NotFoundError, errorOf, make } from "./errors.js";
import { encodeText } from "./bytes.js";
import type { Content } from "./files.js";
import type * as m from "./generated/models.js";
import { LONG, Sandbox, withPolicy, type Policy } from "./sandbox.js";
import { Snapshot, makeSnapshot } from "./snapshot.js";

/** Options of `snapshots.create`. */
export type CreateSnapshotOptions = CallOptions & Omit<m.CreateSnapshotRequest, "tag" | "net" | "network"> & {
  network?: Policy;
  /** Called with each step. */
  progress?: (step: m.Step) => void;
};

/** Options of lists with filters. */
export type ListOptions = CallOptions & {
  /** Selects those with all of these labels; null stands for any value. */
  labels?: Record<string, string | null>;
  /** Filters such as `status=paused` or `snapshot=TAG`. */
  filter?: readonly string[];
};

/** Returns the request of a list or of events with filters. */
export function filtered({ signal, labels = {}, filter = [] }: ListOptions): RequestOptions {
  const some = Object.entries(labels).map(([k, v]) => v === null ? `label=${k}` : `label=${k}=${v}`);
  return { signal, query: { filter: [...some, ...filter] } };
}

class Group {
  readonly #connection: Connection;

  /** @internal */
  constructor(connection: Connection) {
    this.#connection = connection;
  }

  /** @internal */
  protected get connection(): Connection {
    return this.#connection;
  }

  /** @internal */
  protected async one<T>(method: string, path: string, schema: string, o: RequestOptions): Promise<T> {
    return fromWire<T>(await this.#connection.call(method, path, o), schema);
  }

  /** @internal */
  protected async many<T>(path: string, schema: string, o: RequestOptions): Promise<T[]> {
    return await this.one<T[] | undefined>("GET", path, schema, o) ?? [];
  }
}

/** The sandboxes. */
export class Sandboxes extends Group {
  /** Lists the sandboxes, oldest first. */
  list(o: ListOptions = {}): Promise<m.SandboxInfo[]> {
    return this.many("/v1/sandboxes", "SandboxInfo", filtered(o));
  }

  /** Describes a sandbox. */
  get(id: string, o: CallOptions = {}): Promise<m.SandboxInfo> {
    return this.one("GET", `/v1/sandboxes/${part(id)}`, "SandboxInfo", o);
  }
}

/** The snapshots. */
export class Snapshots extends Group {
  /** Lists the snapshots by tag. */
  list(o: ListOptions = {}): Promise<m.SnapshotInfo[]> {
    return this.many("/v1/snapshots", "SnapshotInfo", filtered(o));
  }

  /** Describes a snapshot. */
  get(tag: string, o: CallOptions = {}): Promise<m.SnapshotDetail> {
    return new Snapshot(this.connection, tag).info(o);
  }

  /** Boots an image, or runs `exec` in a child of the snapshot `from`, and keeps the result as a snapshot. */
  async create(tag: string, o: CreateSnapshotOptions = {}): Promise<Snapshot> {
    const { signal, progress, ...rest } = o;
    const json = toWire({ ...withPolicy(rest), tag }, "CreateSnapshotRequest");
    await makeSnapshot(this.connection, "/v1/snapshots", json, { signal, progress });
    return new Snapshot(this.connection, tag);
  }

  /** Deletes a snapshot. See `Snapshot.delete`. */
  delete(tag: string, o: CallOptions & { cascade?: boolean; force?: boolean } = {}): Promise<void> {
    return new Snapshot(this.connection, tag).delete(o);
  }
}

/** The images that snapshots boot from. */
export class Images extends Group {
  /** Lists the images. */
  list(o: Omit<ListOptions, "labels"> = {}): Promise<m.Image[]> {
    return this.many("/v1/images", "Image", filtered(o));
  }

  /** Describes an image. */
  get(name: string, o: CallOptions = {}): Promise<m.Image> {
    return this.one("GET", `/v1/images/${part(name)}`, "Image", o);
  }

  /** Returns the digest of an image, or undefined if there is none of that name. */
  async digest(name: string, o: CallOptions = {}): Promise<string | undefined> {
    try {
      return (await this.connection.exchange("HEAD", `/v1/images/${part(name)}`, o)).header("forkd-digest");
    } catch (e) {
      if (e instanceof NotFoundError) return undefined;
      throw e;
    }
  }

  /** Reports whether the daemon has the image with that digest. */
  async has(name: string, digest: string, o: CallOptions = {}): Promise<boolean> {
    return digest !== "" && await this.digest(name, o) === digest;
  }

  /** Stores an image: the tar stream of an export. A given digest must match. */
  import(name: string, archive: Content, o: CallOptions & { digest?: string } = {}): Promise<m.Image> {
    const headers = { "Content-Type": "application/x-tar", ...(o.digest ? { "Forkd-Digest": o.digest } : {}) };
    const body = typeof archive === "string" ? encodeText(archive) : archive;
    return this.one("PUT", `/v1/images/${part(name)}`, "Image", { signal: o.signal, timeout: LONG * 3, headers, body });
  }

  /** Removes an image. */
  async remove(name: string, o: CallOptions = {}): Promise<void> {
    await this.connection.call("DELETE", `/v1/images/${part(name)}`, o);
  }
}

/** The keys of tenants. They need the operator's rights. */
export class Keys extends Group {
  /** Lists the keys, with those that ended in the last 90 days. */
  list(o: CallOptions = {}): Promise<m.Key[]> {
    return this.many("/v1/keys", "Key", o);
  }

  /** Makes a key. Only this answer has its text. */
  create(key: m.CreateKeyRequest, o: CallOptions = {}): Promise<m.NewKey> {
    return this.one("POST", "/v1/keys", "NewKey", { ...o, json: toWire(key, "CreateKeyRequest") });
  }

  /** Replaces the text of a key. The old text stays valid for graceSecs. */
  rotate(key: string, o: CallOptions & m.RotateKeyRequest = {}): Promise<m.NewKey> {
    const { signal, ...rest } = o;
    return this.one("POST", `/v1/keys/${part(key)}/rotate`, "NewKey", { signal, json: toWire(rest, "RotateKeyRequest") });
  }

  /** Revokes a key. */
  revoke(key: string, o: CallOptions = {}): Promise<m.Key> {
    return this.one("DELETE", `/v1/keys/${part(key)}`, "Key", o);
  }
}

/** Named secrets for sandboxes. No answer has a value. */
export class Secrets extends Group {
  /** Lists the secrets. */
  list(o: CallOptions = {}): Promise<m.Secret[]> {
    return this.many("/v1/secrets", "Secret", o);
  }

  /** Describes a secret. */
  get(name: string, o: CallOptions = {}): Promise<m.Secret> {
    return this.one("GET", `/v1/secrets/${part(name)}`, "Secret", o);
  }

  /** Makes a secret, or rotates it to a new value. */
  set(name: string, secret: m.SetSecretRequest, o: CallOptions = {}): Promise<m.Secret> {
    const json = toWire(secret, "SetSecretRequest");
    return this.one("PUT", `/v1/secrets/${part(name)}`, "Secret", { ...o, json });
  }

  /** Removes a secret. */
  async remove(name: string, o: CallOptions = {}): Promise<void> {
    await this.connection.call("DELETE", `/v1/secrets/${part(name)}`, o);
  }
}

/** Private networks: sandboxes in one find each other by name. */
export class PrivateNetworks extends Group {
  /** Lists the private networks. */
  list(o: CallOptions = {}): Promise<m.PrivateNetwork[]> {
    return this.many("/v1/networks", "PrivateNetwork", o);
  }

  /** Describes a private network and its members. */
  get(name: string, o: CallOptions = {}): Promise<m.PrivateNetwork> {
    return this.one("GET", `/v1/networks/${part(name)}`, "PrivateNetwork", o);
  }

  /** Makes a private network. */
  create(name: string, o: CallOptions = {}): Promise<m.PrivateNetwork> {
    const json = toWire({ name }, "CreatePrivateNetworkRequest");
    return this.one("POST", "/v1/networks", "PrivateNetwork", { ...o, json });
  }

  /**
   * Copies its running sandboxes as they are at one instant. Each of the n copies has a network of its own, PREFIX-1
   * and so on. A copy that failed has an error.
   */
  fork(name: string, o: CallOptions & { n?: number; prefix?: string } = {}): Promise<m.ForkGroupResult> {
    const { n, prefix, ...rest } = o;
    const json = toWire({ n, prefix }, "ForkGroupRequest");
    return this.one("POST", `/v1/networks/${part(name)}/fork`, "ForkGroupResult", { ...rest, json });
  }

  /** Removes a private network without members. */
  async remove(name: string, o: CallOptions = {}): Promise<void> {
    await this.connection.call("DELETE", `/v1/networks/${part(name)}`, o);
  }
}

/** Volumes: disks which outlive the sandboxes that use them. */
export class Volumes extends Group {
  /** Lists the volumes. */
  list(o: CallOptions = {}): Promise<m.Volume[]> {
    return this.many("/v1/volumes", "Volume", o);
  }

  /** Describes a volume. */
  get(name: string, o: CallOptions = {}): Promise<m.Volume> {
    return this.one("GET", `/v1/volumes/${part(name)}`, "Volume", o);
  }

  /** Makes a volume, empty or with the content of another one. */
  create(name: string, o: CallOptions & { sizeMib?: number; fromVolume?: string } = {}): Promise<m.Volume> {
    const { sizeMib, fromVolume, ...rest } = o;
    const json = toWire({ name, sizeMib, from: fromVolume }, "CreateVolumeRequest");
    return this.one("POST", "/v1/volumes", "Volume", { ...rest, json });
  }

  /** Keeps the present content of a volume as another one, which cannot be written. */
  snapshot(name: string, snapshot: string, o: CallOptions = {}): Promise<m.Volume> {
    const json = toWire({ name: snapshot }, "SnapshotVolumeRequest");
    return this.one("POST", `/v1/volumes/${part(name)}/snapshot`, "Volume", { ...o, json });
  }

  /** Removes a volume that no sandbox has. */
  async remove(name: string, o: CallOptions = {}): Promise<void> {
    await this.connection.call("DELETE", `/v1/volumes/${part(name)}`, o);
  }
}

/** The tenants' shares of the host. */
export class Tenants extends Group {
  /** Describes a tenant. */
  get(name: string, o: CallOptions = {}): Promise<m.Tenant> {
    return this.one("GET", `/v1/tenants/${part(name)}`, "Tenant", o);
  }

  /** Changes a tenant. */
  set(name: string, settings: m.SetTenantRequest, o: CallOptions = {}): Promise<m.Tenant> {
    const json = toWire(settings, "SetTenantRequest");
    return this.one("PUT", `/v1/tenants/${part(name)}`, "Tenant", { ...o, json });
  }
}

/** Sandboxes under names that their users chose. */
export class Workspaces extends Group {
  /** Lists the workspaces. */
  list(o: CallOptions = {}): Promise<m.WorkspaceInfo[]> {
    return this.many("/v1/workspaces", "WorkspaceInfo", o);
  }

  /** Describes a workspace. */
  get(name: string, o: CallOptions = {}): Promise<m.WorkspaceInfo> {
    return this.one("GET", `/v1/workspaces/${part(name)}`, "WorkspaceInfo", o);
  }

  /** Forks a sandbox, and gives it a name. */
  create(workspace: Pick<m.CreateWorkspaceRequest, "name" | "snapshotTag"> & Partial<m.CreateWorkspaceRequest>,
    o: CallOptions = {}): Promise<m.WorkspaceInfo> {
    const json = toWire(workspace, "CreateWorkspaceRequest");
    return this.one("POST", "/v1/workspaces", "WorkspaceInfo", { ...o, timeout: LONG, json });
  }

  /** Returns the sandbox of a running workspace. */
  async sandbox(name: string, o: CallOptions = {}): Promise<Sandbox> {
    const { liveSandboxId, status } = await this.get(name, o);
    if (liveSandboxId) return new Sandbox(this.connection, liveSandboxId);
    throw make(`the workspace ${name} is ${status}, and has no sandbox`, { code: "not_found", hint: "resume it first" });
  }

  /** Pauses its sandbox. */
  suspend(name: string, o: CallOptions = {}): Promise<m.WorkspaceInfo> {
    return this.one("POST", `/v1/workspaces/${part(name)}/suspend`, "WorkspaceInfo", { ...o, timeout: LONG, json: {} });
  }

  /** Resumes its sandbox, or gives it another if that has ended. */
  resume(name: string, o: CallOptions = {}): Promise<m.WorkspaceInfo> {
    return this.one("POST", `/v1/workspaces/${part(name)}/resume`, "WorkspaceInfo", { ...o, timeout: LONG });
  }

  /** Ends a workspace and its sandbox. */
  async delete(name: string, o: CallOptions = {}): Promise<void> {
    await this.connection.call("DELETE", `/v1/workspaces/${part(name)}`, o);
  }
}

/** The pools of VMs that stand ready. */
export class Pools extends Group {
  /** Lists the pools. */
  list(o: CallOptions = {}): Promise<m.Pool[]> {
    return this.many("/v1/pools", "Pool", o);
  }

  /** Sets the number of VMs that stand ready for forks of a snapshot. */
  set(tag: string, size: number, o: CallOptions = {}): Promise<void> {
    return new Snapshot(this.connection, tag).setPool(size, o);
  }
}

/** Records of how sandboxes and snapshots were made. */
export class Receipts extends Group {
  /** Lists receipts, newest first. */
  list(o: CallOptions & { sandbox?: string; snapshot?: string; op?: string; limit?: number } = {}): Promise<m.Receipt[]> {
    const { signal, ...query } = o;
    return this.many("/v1/receipts", "Receipt", { signal, query });
  }
}

/** The store of layers. */
export class Store extends Group {
  /** Removes layers that are in no use. With `dryRun` it only lists them. */
  gc(o: CallOptions & { dryRun?: boolean } = {}): Promise<m.CollectResult> {
    const json = { dry_run: o.dryRun ?? false };
    return this.one("POST", "/v1/store/gc", "CollectResult", { signal: o.signal, timeout: LONG, json });
  }
}

/** Options that select lines of the audit log. */
export interface AuditOptions extends CallOptions {
  since?: string;
  sandbox?: string;
  tenant?: string;
  action?: string;
  result?: string;
  request?: string;
  changes?: boolean;
  /** Number of lines. The default is 1000; 0 means all. */
  limit?: number;
  /** Continues with new lines, until the caller leaves. */
  follow?: boolean;
}

/** Options that select events. */
export interface EventsOptions extends CallOptions {
  /** Id of the last known event. 0 begins with the oldest that the daemon has. The default is new events only. */
  after?: number;
  sandbox?: string;
  snapshot?: string;
  /** Kinds. One that ends in a dot is a prefix. */
  kinds?: readonly string[];
  /** Events of objects that have all of these labels. */
  labels?: Record<string, string | null>;
  /** Texts such as `label=job=7`. */
  filter?: readonly string[];
}

/** Yields the events of a stream of server-sent events. */
export async function* eventsOf(lines: AsyncIterable<string>): AsyncGenerator<m.Event> {
  let name = "";
  for await (const line of lines) {
    const colon = line.indexOf(":");
    const key = colon < 0 ? line.trim() : line.slice(0, colon);
    const value = colon < 0 ? "" : line.slice(colon + 1).trim();
    if (key === "event") name = value;
    else if (key === "data" && name === "end") throw errorOf(JSON.parse(value));
    else if (key === "data") yield fromWire<m.Event>(JSON.parse(value), "Event");
    else if (key === "") name = "";
  }
}
