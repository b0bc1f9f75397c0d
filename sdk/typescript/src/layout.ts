/** Files of snapshots: OCI layouts in a tar (docs/inside/formats/hub.md). They need a file system (Node, Deno, Bun). */
import { promises as fs } from "node:fs";
import { pid } from "node:process";
import { decodeText } from "./bytes.js";
import { ForkdError, make } from "./errors.js";
import { FILE, Reader, encode, padding } from "./tar.js";

const PIECE = 256 << 10;
const MAX_SMALL = 4 << 20;
/** Most entries of a layout. A snapshot has at most 640 files and layers, with two blobs each. */
const MAX_ENTRIES = 4096;
const FAILURE = "forkd-failure";

interface Descriptor {
  digest: string;
}

interface Manifest {
  config: Descriptor;
  layers: Descriptor[];
  annotations?: Record<string, unknown>;
}

/** A snapshot's file. The daemon verifies all content, so this class only finds it. */
export class Layout {
  readonly #file: fs.FileHandle;
  readonly #at = new Map<string, { offset: number; size: number }>();
  #raw: Uint8Array = new Uint8Array();
  #manifest: Manifest = { config: { digest: "" }, layers: [] };
  /** The tag that the snapshot had. */
  title = "";

  private constructor(readonly path: string, file: fs.FileHandle) {
    this.#file = file;
  }

  /** Opens a file. Throws InvalidRequestError if it is none, and ConflictError if its export failed. */
  static async open(path: string): Promise<Layout> {
    const layout = new Layout(path, await fs.open(path, "r"));
    try {
      await layout.#find();
      return layout;
    } catch (e) {
      await layout.close();
      const known = e instanceof ForkdError && e.code === "conflict" || (e as NodeJS.ErrnoException).syscall !== undefined;
      throw known ? e : make(`${path} is no file of a snapshot: ${(e as Error).message}`, {
        code: "invalid_request", hint: "make one with Snapshot.export or `forkd snapshot export`", cause: e,
      });
    }
  }

  async #find(): Promise<void> {
    const end = (await this.#file.stat()).size;
    for (let at = 0; at < end;) {
      const reader = new Reader(pieces(this.#file, at, end - at, 4096));
      const h = await reader.next();
      if (!h) break;
      const offset = at + reader.position;
      if (offset + h.size > end) throw new Error(`it ends within ${h.name}`);
      if (h.type === FILE) this.#at.set(h.name.replace(/^\.\//, ""), { offset, size: h.size });
      if (this.#at.size > MAX_ENTRIES) throw new Error(`it has more than ${MAX_ENTRIES} entries`);
      at = offset + h.size + padding(h.size);
    }
    if (this.#at.has(FAILURE)) {
      throw make(`the export of ${this.path} failed: ${decodeText(await this.#small(FAILURE))}`, { code: "conflict" });
    }
    const index = JSON.parse(decodeText(await this.#small("index.json"))) as { manifests: Descriptor[] };
    this.#raw = await this.#small(blob(index.manifests[0]!));
    this.#manifest = JSON.parse(decodeText(this.#raw)) as Manifest;
    this.title = String(this.#manifest.annotations?.["org.opencontainers.image.title"] ?? "");
  }

  /** Closes the file. */
  close(): Promise<void> {
    return this.#file.close();
  }

  async #small(name: string): Promise<Uint8Array> {
    const found = this.#at.get(name);
    if (!found) throw new Error(`it has no ${name}`);
    if (found.size > MAX_SMALL) throw new Error(`${name} has ${found.size} bytes`);
    const b = new Uint8Array(found.size);
    let n = 0;
    for await (const piece of pieces(this.#file, found.offset, found.size)) {
      b.set(piece, n);
      n += piece.length;
    }
    return b;
  }

  /** Yields the stream that a daemon takes: manifest, configuration, and the blobs in their order. */
  async *stream(): AsyncGenerator<Uint8Array> {
    yield encode({ name: "manifest.json", type: FILE, size: this.#raw.length });
    yield this.#raw;
    yield new Uint8Array(padding(this.#raw.length));
    yield* this.#copy("config.json", this.#manifest.config);
    for (const d of this.#manifest.layers) yield* this.#copy(blob(d), d);
    yield new Uint8Array(1024);
  }

  async *#copy(name: string, descriptor: Descriptor): AsyncGenerator<Uint8Array> {
    const from = blob(descriptor);
    const found = this.#at.get(from);
    if (!found) throw make(`${this.path} has no ${from}`, { code: "invalid_request" });
    yield encode({ name, type: FILE, size: found.size });
    yield* pieces(this.#file, found.offset, found.size);
    yield new Uint8Array(padding(found.size));
  }
}

const blob = (d: Descriptor): string => "blobs/" + String(d.digest).replace(":", "/");

/** Yields a part of a file. A file that became shorter is an error. */
async function* pieces(file: fs.FileHandle, offset: number, size: number, piece = PIECE): AsyncGenerator<Uint8Array> {
  for (let left = size; left > 0;) {
    const b = new Uint8Array(Math.min(piece, left));
    const { bytesRead } = await file.read(b, 0, b.length, offset + size - left);
    if (!bytesRead) throw make("the file of the snapshot became shorter while it was read", { code: "invalid_request" });
    left -= bytesRead;
    yield b.subarray(0, bytesRead);
  }
}

let saves = 0;

/** Writes an export to a file. The file appears when it is complete. */
export async function save(path: string, source: AsyncIterable<Uint8Array>, progress?: (bytes: number) => void): Promise<void> {
  const part = `${path}.${pid}-${++saves}.part`;
  try {
    const file = await fs.open(part, "wx", 0o600); // it has the guest's memory
    try {
      let written = 0;
      for await (const chunk of source) {
        for (let n = 0; n < chunk.length;) n += (await file.write(chunk, n, chunk.length - n)).bytesWritten;
        written += chunk.length;
        progress?.(written);
      }
    } finally {
      await file.close();
    }
    await (await Layout.open(part)).close();
    await fs.rename(part, path);
  } catch (e) {
    await fs.rm(part, { force: true });
    throw e;
  }
}
