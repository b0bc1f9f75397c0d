/**
 * Entries of tar streams (POSIX.1-2001, pax), as the agent reads and writes them. The stream comes from a guest, so all
 * sizes are bounded and all names are checked by the caller.
 */
import { concat, decodeText, encodeText } from "./bytes.js";
import { make } from "./errors.js";

export const BLOCK = 512;
/** Limit in bytes of the records before an entry. A path has at most 4096. */
const MAX_RECORDS = 64 << 10;
/** Largest size in the 11 digits of an entry, 8 GiB less one. Larger ones are in the records. */
const MAX_OCTAL = 8 ** 11 - 1;

/** Type flags of entries. */
export const FILE = "0", HARD_LINK = "1", SYMLINK = "2", DIRECTORY = "5";

/** The description of an entry. */
export interface Header {
  name: string;
  type: string;
  link: string;
  size: number;
  /** Permission bits. */
  mode: number;
  /** Seconds since 1970. */
  mtime: number;
  /** Records of pax other than path, linkpath, size and mtime. */
  records: Record<string, string>;
}

/** Returns the blocks that begin an entry. */
export function encode(h: Partial<Header> & { name: string }): Uint8Array {
  const records: Record<string, string> = { ...h.records };
  if (!fits(h.name)) records.path = h.name;
  if (!fits(h.link ?? "")) records.linkpath = h.link!;
  const large = (h.size ?? 0) > MAX_OCTAL;
  if (large) records.size = String(h.size);
  const own = block({ type: FILE, link: "", mode: 0o644, mtime: 0, records: {}, ...h, size: large ? 0 : h.size ?? 0 });
  if (Object.keys(records).length === 0) return own;
  const text = encodeText(Object.entries(records).map(([k, v]) => record(k, v)).join(""));
  const before = block({ name: "pax", type: "x", link: "", size: text.length, mode: 0o644, mtime: 0, records: {} });
  return concat([before, text, new Uint8Array(padding(text.length)), own]);
}

/** Returns the number of bytes that fill the last block. */
export const padding = (size: number): number => (BLOCK - size % BLOCK) % BLOCK;

const fits = (s: string): boolean => /^[\x20-\x7e]{0,100}$/.test(s);

/** Returns a record: its own length in bytes, key and value. */
function record(key: string, value: string): string {
  const rest = encodeText(` ${key}=${value}\n`).length;
  let length = rest;
  while (rest + String(length).length !== length) length = rest + String(length).length;
  return `${length} ${key}=${value}\n`;
}

function block(h: Header): Uint8Array {
  const b = new Uint8Array(BLOCK);
  const put = (at: number, text: string): void => b.set(encodeText(text), at);
  const octal = (at: number, width: number, n: number): void => put(at, n.toString(8).padStart(width - 1, "0"));
  put(0, fits(h.name) ? h.name : "long");
  octal(100, 8, h.mode);
  octal(108, 8, 0);
  octal(116, 8, 0);
  octal(124, 12, h.size);
  octal(136, 12, Math.max(0, Math.floor(h.mtime)));
  put(148, "        ");
  put(156, h.type);
  put(157, fits(h.link) ? h.link : "long");
  put(257, "ustar\x0000");
  octal(148, 7, b.reduce((sum, c) => sum + c, 0));
  return b;
}

/** Reads entries from the pieces of a stream. */
export class Reader {
  readonly #source: AsyncIterator<Uint8Array>;
  #buffer: Uint8Array = new Uint8Array(0);
  #rest = 0; // bytes of the current entry's content, with padding
  #pad = 0;
  /** Bytes of the stream before the next one to read. */
  position = 0;

  constructor(source: AsyncIterable<Uint8Array>) {
    this.#source = source[Symbol.asyncIterator]();
  }

  /** Ends the stream. */
  async close(): Promise<void> {
    await this.#source.return?.();
  }

  /** Returns the next entry, or undefined at the end of the stream. */
  async next(): Promise<Header | undefined> {
    for await (const _ of this.content()); // skips the rest
    let records: Record<string, string> = {};
    for (;;) {
      const b = await this.#take(BLOCK);
      if (b.length < BLOCK || b.every((c) => c === 0)) return undefined;
      const h = decode(b);
      if (h.type !== "x" && h.type !== "g") {
        const { path, linkpath, size, mtime, ...others } = records;
        const out = { ...h, name: path ?? h.name, link: linkpath ?? h.link, size: number(size, h.size),
          mtime: number(mtime, h.mtime), records: others };
        if (out.type === FILE) [this.#rest, this.#pad] = [out.size, padding(out.size)];
        return out;
      }
      if (h.size > MAX_RECORDS) throw broken(`an entry has ${h.size} bytes of records`);
      const text = await this.#take(h.size + padding(h.size));
      if (h.type === "x") records = { ...records, ...parse(text.subarray(0, h.size)) };
    }
  }

  /** Yields the content of the current entry. */
  async *content(): AsyncGenerator<Uint8Array> {
    while (this.#rest > 0) {
      if (this.#buffer.length === 0 && !(await this.#fill())) throw broken("it ends within a file");
      const part = this.#buffer.subarray(0, this.#rest);
      this.#buffer = this.#buffer.subarray(part.length);
      this.#rest -= part.length;
      this.position += part.length;
      yield part;
    }
    const pad = this.#pad;
    this.#pad = 0;
    if (pad) await this.#take(pad);
  }

  async #take(n: number): Promise<Uint8Array> {
    while (this.#buffer.length < n && await this.#fill());
    const out = this.#buffer.subarray(0, n);
    this.#buffer = this.#buffer.subarray(out.length);
    this.position += out.length;
    return out;
  }

  async #fill(): Promise<boolean> {
    const { value, done } = await this.#source.next();
    if (done) return false;
    this.#buffer = this.#buffer.length ? concat([this.#buffer, value]) : value;
    return true;
  }
}

const broken = (why: string): Error =>
  make(`the sandbox sent a broken stream of files: ${why}`, { code: "connection_broken", hint: "copy again" });

function decode(b: Uint8Array): Header {
  const text = (at: number, n: number): string => {
    const part = b.subarray(at, at + n);
    const end = part.indexOf(0);
    return decodeText(end < 0 ? part : part.subarray(0, end));
  };
  const octal = (at: number, n: number): number => {
    const s = text(at, n).trim();
    if (!/^[0-7]*$/.test(s)) throw broken("a number in it is not octal");
    return parseInt(s || "0", 8);
  };
  const sum = b.reduce((n, c, i) => n + (i >= 148 && i < 156 ? 32 : c), 0);
  if (sum !== octal(148, 8)) throw broken("a checksum is wrong");
  const prefix = text(257, 5) === "ustar" ? text(345, 155) : "";
  return { name: (prefix ? prefix + "/" : "") + text(0, 100), type: text(156, 1) || FILE, link: text(157, 100), size: octal(124, 12),
    mode: octal(100, 8) & 0o777, mtime: octal(136, 12), records: {} };
}

function number(text: string | undefined, otherwise: number): number {
  if (text === undefined) return otherwise;
  const n = Number(text);
  if (!Number.isFinite(n) || n < 0 || n > Number.MAX_SAFE_INTEGER) throw broken(`${text.slice(0, 40)} is no number`);
  return n;
}

function parse(b: Uint8Array): Record<string, string> {
  const out: Record<string, string> = Object.create(null) as Record<string, string>;
  for (let at = 0; at < b.length;) {
    const space = b.indexOf(32, at);
    const length = Number(decodeText(b.subarray(at, space < 0 ? at : space)));
    if (!Number.isInteger(length) || length < 4 || at + length > b.length) throw broken("a record has a wrong length");
    const [key, ...value] = decodeText(b.subarray(space + 1, at + length - 1)).split("=");
    out[key!] = value.join("=");
    at += length;
  }
  return out;
}
