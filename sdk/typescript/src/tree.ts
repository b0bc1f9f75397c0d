/**
 * Trees of files as tar streams, in the agent's format (docs/inside/formats/agent-protocol.md, "Trees"): a file is one
 * entry or several consecutive pieces, and the last entry is a note. It needs a file system (Node, Deno, Bun).
 */
import { promises as fs, constants, type Stats } from "node:fs";
import path from "node:path";
import { make } from "./errors.js";
import { DIRECTORY, FILE, HARD_LINK, Reader, SYMLINK, encode, padding, type Header } from "./tar.js";

const PIECE = 256 << 10;

/**
 * Yields a file or a directory as a stream, with modes, times, links and hard links. Sockets, pipes and devices are
 * left out.
 */
export async function* pack(source: string): AsyncGenerator<Uint8Array> {
  const seen = new Map<string, string>();
  for await (const [at, name] of walk(source)) {
    const st = await fs.lstat(at);
    const common = { name, mode: st.mode & 0o777, mtime: st.mtimeMs / 1000 };
    if (st.isFile() && st.nlink > 1) {
      const id = `${st.dev}:${st.ino}`;
      const first = seen.get(id);
      if (first !== undefined) {
        yield encode({ ...common, type: HARD_LINK, link: first });
        continue;
      }
      seen.set(id, name);
    }
    if (st.isDirectory()) yield encode({ ...common, type: DIRECTORY });
    else if (st.isSymbolicLink()) yield encode({ ...common, type: SYMLINK, link: await fs.readlink(at) });
    else if (st.isFile()) yield* file(at, common);
  }
  yield encode({ name: "end", records: { "FORKD.note": "end" } });
  yield new Uint8Array(1024);
}

/** Yields paths and names in the tree. The content of a directory follows it at once. */
async function* walk(top: string): AsyncGenerator<[string, string]> {
  const waiting: [string, string][] = [[top, "."]];
  for (let next = waiting.pop(); next; next = waiting.pop()) {
    yield next;
    const [at, name] = next;
    if (!(await fs.lstat(at)).isDirectory()) continue;
    const entries = (await fs.readdir(at)).sort().reverse();
    waiting.push(...entries.map((e): [string, string] => [path.join(at, e), name === "." ? e : `${name}/${e}`]));
  }
}

/** Yields a file in pieces. A file that shrinks meanwhile ends early. */
async function* file(at: string, common: Partial<Header> & { name: string }): AsyncGenerator<Uint8Array> {
  const f = await fs.open(at, "r");
  try {
    let offset = 0;
    let piece = await read(f);
    for (;;) {
      const later = piece.length === PIECE ? await read(f) : new Uint8Array(0);
      const records: Record<string, string> = {};
      if (offset) records["FORKD.at"] = String(offset);
      if (later.length) records["FORKD.more"] = "1";
      yield encode({ ...common, type: FILE, size: piece.length, records });
      yield piece;
      if (padding(piece.length)) yield new Uint8Array(padding(piece.length));
      if (!later.length) return;
      offset += piece.length;
      piece = later;
    }
  } finally {
    await f.close();
  }
}

async function read(f: fs.FileHandle): Promise<Uint8Array> {
  const b = new Uint8Array(PIECE);
  let n = 0;
  while (n < PIECE) {
    const { bytesRead } = await f.read(b, n, PIECE - n);
    if (!bytesRead) break;
    n += bytesRead;
  }
  return b.subarray(0, n);
}

/**
 * Creates the tree of a stream at target, which must not exist. The guest chooses names and links: names with .. are
 * refused, and symbolic links are made last, so no file is written through one.
 */
export async function unpack(stream: AsyncIterable<Uint8Array>, target: string): Promise<void> {
  const reader = new Reader(stream);
  const links: [string, Header][] = [];
  const directories: [string, Header][] = [];
  const failed: string[] = [];
  let ended = false;
  try {
    for (let h = await reader.next(); h && !ended; h = ended ? undefined : await reader.next()) {
      const note = h.records["FORKD.note"];
      ended = note === "end";
      if (note === "failed") failed.push(`${h.name}: ${h.records["FORKD.text"] ?? ""}`);
      if (note) continue;
      const at = place(target, h.name);
      if (h.type === DIRECTORY) {
        await fs.mkdir(at).catch((e: NodeJS.ErrnoException) => {
          if (e.code !== "EEXIST" || at !== target) throw e;
        });
        directories.push([at, h]);
      } else if (h.type === FILE) await writePiece(reader, h, at);
      else if (h.type === SYMLINK) links.push([at, h]);
      else if (h.type === HARD_LINK) await fs.link(place(target, h.link), at);
    }
  } finally {
    await reader.close();
  }
  for (const [at, h] of links) await fs.symlink(h.link, at);
  for (const [at, h] of directories.reverse()) {
    await fs.chmod(at, h.mode);
    await fs.utimes(at, h.mtime, h.mtime);
  }
  if (!ended) throw make(`the copy to ${target} broke off`, { code: "connection_broken", hint: "its files are incomplete: copy again" });
  if (failed.length) {
    throw make(`copy to ${target}: ${failed.length} files could not be read, the first is ${failed[0]}`, { code: "partial" });
  }
}

async function writePiece(reader: Reader, h: Header, at: string): Promise<void> {
  const offset = Number(h.records["FORKD.at"] ?? 0);
  if (!Number.isSafeInteger(offset) || offset < 0) throw make(`the piece of ${at} has a wrong offset`, { code: "connection_broken" });
  const flags = constants.O_WRONLY | constants.O_CREAT | constants.O_NOFOLLOW | (offset ? 0 : constants.O_EXCL);
  const f = await fs.open(at, flags, 0o600);
  try {
    let to = offset;
    for await (const part of reader.content()) {
      await f.write(part, 0, part.length, to);
      to += part.length;
    }
    if (!h.records["FORKD.more"]) await f.truncate(Math.max(to, (await f.stat()).size));
    await f.chmod(h.mode);
    await f.utimes(h.mtime, h.mtime);
  } finally {
    await f.close();
  }
}

function place(target: string, name: string): string {
  const parts = name.split("/").filter((p) => p !== "" && p !== ".");
  if (name.startsWith("/") || parts.includes("..") || name.includes("\0")) {
    throw make(`the sandbox sent a file named ${JSON.stringify(name)}, outside of ${target}`, { code: "invalid_request" });
  }
  return path.join(target, ...parts);
}

/** Reports whether there is something at a path of this host, a broken link included. */
export async function present(at: string): Promise<boolean> {
  return fs.lstat(at).then((_: Stats) => true, () => false);
}
