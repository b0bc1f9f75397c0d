/** Files of a sandbox. */
import { decodeText, encodeText } from "./bytes.js";
import { agentPath, all, type CallOptions, type Connection, type Fields } from "./connection.js";
import { ConflictError, NotFoundError, errorOf, make } from "./errors.js";

/** A file, directory or link of a sandbox. The guest chooses all of it. */
export class Entry {
  readonly name: string;
  readonly path: string;
  readonly type: "file" | "directory" | "symlink" | "other";
  /** Bytes. */
  readonly size: number;
  /** Permission bits. */
  readonly mode: number;
  readonly owner: string;
  readonly group: string;
  readonly modified: Date | undefined;
  readonly symlinkTarget: string | undefined;

  /** @internal The description by the agent. */
  constructor(value: unknown) {
    const e = (value ?? {}) as Record<string, string | undefined>;
    this.name = e.name ?? "";
    this.path = e.path ?? "";
    this.type = TYPES[e.type ?? ""] ?? "other";
    this.size = Number(e.size ?? 0);
    this.mode = Number(e.mode ?? 0);
    this.owner = e.owner ?? "";
    this.group = e.group ?? "";
    this.modified = e.modifiedTime ? new Date(e.modifiedTime) : undefined;
    this.symlinkTarget = e.symlinkTarget;
  }

  /** Whether it is a directory. */
  get isDir(): boolean {
    return this.type === "directory";
  }
}

/** A change below a watched directory. */
export interface Change {
  type: "create" | "write" | "remove" | "rename" | "chmod" | (string & {});
  /** Relative to the directory. */
  name: string;
}

/** Content of a file. */
export type Content = string | Uint8Array | AsyncIterable<Uint8Array>;

/** Reads and writes the files of a sandbox, with the rights of a user of the guest. */
export class Files {
  readonly #connection: Connection;
  readonly #user: string | undefined;

  /** @internal */
  constructor(connection: Connection, readonly sandboxId: string, user?: string) {
    this.#connection = connection;
    this.#user = user;
  }

  /** Returns the same files with the rights of another user. */
  asUser(user: string): Files {
    return new Files(this.#connection, this.sandboxId, user);
  }

  /** Returns the content of a file. More than maxBytes (256 MiB) is an error. */
  read(path: string, o: CallOptions & { maxBytes?: number } = {}): Promise<Uint8Array> {
    const hint = "read it in pieces with iter, or give a higher maxBytes";
    return all(this.iter(path, o), o.maxBytes ?? 256 << 20, `${path} in ${this.sandboxId}`, hint);
  }

  /** Returns the content of a file as text. `encoding` is a label such as `latin1`. The default is UTF-8. */
  async readText(path: string, o: CallOptions & { encoding?: string; maxBytes?: number } = {}): Promise<string> {
    const { encoding, ...rest } = o;
    const decoder = encoding === undefined ? undefined : decoderOf(encoding);
    const bytes = await this.read(path, rest);
    return decoder ? decoder.decode(bytes) : decodeText(bytes);
  }

  /** Yields the content of a file in pieces. Leaving the iteration ends the request. */
  iter(path: string, o: CallOptions = {}): AsyncGenerator<Uint8Array> {
    return this.#connection.bytes("GET", agentPath(this.sandboxId, "files"), {
      ...o, query: this.#at(path), headers: { "Accept-Encoding": "identity" },
    });
  }

  /** Is `iter`, by the name of earlier versions. */
  open(path: string, o: CallOptions = {}): AsyncGenerator<Uint8Array> {
    return this.iter(path, o);
  }

  /** Writes a file and creates the directories above it. The old content stays until all has arrived. */
  async write(path: string, content: Content, o: CallOptions & { mode?: number } = {}): Promise<void> {
    const mode = o.mode === undefined ? undefined : (o.mode & 0o777).toString(8);
    await this.#connection.call("POST", agentPath(this.sandboxId, "files"), {
      signal: o.signal, timeout: 600_000, query: { ...this.#at(path), mode },
      body: typeof content === "string" ? encodeText(content) : content,
      headers: { "Content-Type": "application/octet-stream" },
    });
  }

  /** Describes a file. */
  async stat(path: string, o: CallOptions = {}): Promise<Entry> {
    return new Entry((await this.#call("Stat", { path }, o)).entry);
  }

  /** Reports whether there is a file. */
  async exists(path: string, o: CallOptions = {}): Promise<boolean> {
    try {
      await this.stat(path, o);
      return true;
    } catch (e) {
      if (e instanceof NotFoundError && !e.reason) return this.#agentHas(e);
      throw e;
    }
  }

  /** A missing sandbox is an error, a missing file is not. */
  #agentHas(e: NotFoundError): false {
    if (e.requestId) throw e;
    return false;
  }

  /** Lists a directory, `depth` levels deep. */
  async list(path: string, o: CallOptions & { depth?: number } = {}): Promise<Entry[]> {
    const got = await this.#call("ListDir", { path, depth: o.depth ?? 1 }, o);
    return (Array.isArray(got.entries) ? got.entries : []).map((e) => new Entry(e));
  }

  /** Makes a directory, and those above it. */
  async mkdir(path: string, o: CallOptions & { existOk?: boolean } = {}): Promise<void> {
    try {
      await this.#call("MakeDir", { path }, o);
    } catch (e) {
      if (!(o.existOk && e instanceof ConflictError)) throw e;
    }
  }

  /** Renames a file or a directory. */
  async rename(source: string, target: string, o: CallOptions = {}): Promise<void> {
    await this.#call("Move", { source, destination: target }, o);
  }

  /** Removes a file, or a directory with all its content. */
  async remove(path: string, o: CallOptions = {}): Promise<void> {
    await this.#call("Remove", { path }, o);
  }

  /**
   * Copies a file or a directory of this host to target, with modes, times, links and hard links. Its parent directory
   * must exist. `progress` gets the number of bytes sent so far; `onProgress` is the name of earlier versions. Throws an
   * error if a file could not be written.
   */
  async copyTo(source: string, target: string,
    o: CallOptions & { progress?: (bytes: number) => void; onProgress?: (bytes: number) => void } = {}): Promise<void> {
    const { pack, present } = await import("./tree.js");
    if (!(await present(source))) throw make(`there is no file ${source} on this host`, { code: "invalid_request" });
    const got = await this.#connection.call("POST", agentPath(this.sandboxId, "files/tree"), {
      signal: o.signal, timeout: 600_000, query: this.#at(target), body: counted(pack(source), o.progress ?? o.onProgress),
      headers: { "Content-Type": "application/x-tar" },
    }) as { stopped?: { code?: number; message?: string }; failed?: { name?: string; message?: string }[] } | undefined;
    if (got?.stopped) throw errorOf({ error: got.stopped.message || "the copy stopped" }, Number(got.stopped.code) || 500);
    const [first] = got?.failed ?? [];
    if (first) {
      throw make(`copy to ${this.sandboxId}:${target}: ${got!.failed!.length} files failed, the first is ${first.name}: ${first.message}`,
        { code: "partial" });
    }
  }

  /** Copies a file or a directory of the sandbox to target, which must not exist on this host. */
  async copyFrom(source: string, target: string, o: CallOptions = {}): Promise<void> {
    const { present, unpack } = await import("./tree.js");
    if (await present(target)) throw make(`${target} exists on this host`, { code: "invalid_request", hint: "remove it, or choose another name" });
    await unpack(this.#connection.bytes("GET", agentPath(this.sandboxId, "files/tree"), {
      ...o, query: this.#at(source), headers: { "Accept-Encoding": "identity" },
    }), target);
  }

  /** Yields changes below a directory, until the caller leaves. */
  async *watch(path: string, o: CallOptions & { recursive?: boolean; onReady?: () => void } = {}): AsyncGenerator<Change> {
    const body = { path, recursive: o.recursive ?? false };
    const stream = this.#connection.agentStream(this.sandboxId, "filesystem.Filesystem/WatchDir", body, this.#user,
      { signal: o.signal });
    for await (const message of stream) {
      const event = (message.event ?? message) as Fields;
      if (event.start) o.onReady?.();
      const change = event.filesystem as Fields | undefined;
      if (!change) continue;
      yield { type: String(change.type ?? "").replace("EVENT_TYPE_", "").toLowerCase(), name: String(change.name ?? "") };
    }
  }

  #at(path: string): Record<string, string | undefined> {
    if (!path) throw make("the path is empty", { code: "invalid_request" });
    return { path, username: this.#user };
  }

  #call(method: string, body: object, o: CallOptions): Promise<Fields> {
    return this.#connection.agent(this.sandboxId, "filesystem.Filesystem/" + method, body, this.#user, { signal: o.signal });
  }
}

/** Yields the pieces of a request's body, and reports the bytes so far. */
export async function* counted(pieces: AsyncIterable<Uint8Array>, tell?: (bytes: number) => void): AsyncGenerator<Uint8Array> {
  let sent = 0;
  for await (const piece of pieces) {
    yield piece;
    sent += piece.length;
    tell?.(sent);
  }
}

const TYPES: Record<string, Entry["type"]> = {
  FILE_TYPE_FILE: "file", FILE_TYPE_DIRECTORY: "directory", FILE_TYPE_SYMLINK: "symlink",
};

function decoderOf(encoding: string): TextDecoder {
  try {
    return new TextDecoder(encoding, { ignoreBOM: true });
  } catch {
    throw make(`${JSON.stringify(encoding)} is no encoding`, { code: "invalid_request" });
  }
}
