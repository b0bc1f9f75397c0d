import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { chmodSync, linkSync, lstatSync, mkdirSync, mkdtempSync, readFileSync, readlinkSync, rmSync, symlinkSync, utimesSync,
  writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { Forkd } from "../dist/index.js";
import { encode } from "../dist/tar.js";
import { pack, unpack } from "../dist/tree.js";
import { json, serve } from "./daemon.mjs";

function within(use) {
  return async () => {
    const dir = mkdtempSync(join(tmpdir(), "forkd-tree-"));
    try {
      await use(dir);
    } finally {
      rmSync(dir, { recursive: true, force: true });
    }
  };
}

const long = "long name ü".repeat(12);

function plant(top) {
  mkdirSync(join(top, "sub", long), { recursive: true });
  writeFileSync(join(top, "empty"), "");
  writeFileSync(join(top, "big"), Buffer.alloc(600_001, "0123456789"));
  writeFileSync(join(top, "sub", long, "größe"), "text");
  chmodSync(join(top, "big"), 0o755);
  utimesSync(join(top, "big"), 1_000_000_000, 1_000_000_000);
  linkSync(join(top, "big"), join(top, "sub", "same"));
  symlinkSync("../" + long, join(top, "sub", "link"));
  symlinkSync("/etc/passwd", join(top, "out"));
}

function check(top) {
  assert.deepEqual(readFileSync(join(top, "big")), Buffer.alloc(600_001, "0123456789"));
  assert.equal(readFileSync(join(top, "sub", long, "größe"), "utf8"), "text");
  assert.equal(lstatSync(join(top, "empty")).size, 0);
  const st = lstatSync(join(top, "big"));
  assert.deepEqual([st.mode & 0o777, st.mtimeMs, st.nlink], [0o755, 1_000_000_000_000, 2]);
  assert.equal(st.ino, lstatSync(join(top, "sub", "same")).ino);
  assert.equal(readlinkSync(join(top, "sub", "link")), "../" + long);
  assert.equal(readlinkSync(join(top, "out")), "/etc/passwd");
}

/** Splits a stream at odd places. */
async function* splinters(stream, size) {
  for await (const piece of stream) for (let i = 0; i < piece.length; i += size) yield piece.subarray(i, i + size);
}

test("a tree comes back as it was", within(async (dir) => {
  mkdirSync(join(dir, "a"));
  plant(join(dir, "a"));
  await unpack(splinters(pack(join(dir, "a")), 997), join(dir, "b"));
  check(join(dir, "b"));
}));

test("a single file is a tree", within(async (dir) => {
  writeFileSync(join(dir, "a"), "one");
  await unpack(pack(join(dir, "a")), join(dir, "b"));
  assert.equal(readFileSync(join(dir, "b"), "utf8"), "one");
}));

test("tar reads the names, types and links", within(async (dir) => {
  mkdirSync(join(dir, "a"));
  plant(join(dir, "a"));
  const parts = [];
  for await (const piece of pack(join(dir, "a"))) parts.push(piece);
  const listed = execFileSync("tar", ["-tvf", "-"], { input: Buffer.concat(parts), env: { ...process.env, LC_ALL: "C.UTF-8" } }).toString();
  for (const text of ["sub/same link to big", "sub/link -> ../long name", "out -> /etc/passwd", "größe"]) {
    assert.ok(listed.includes(text), `${text} is not in\n${listed}`);
  }
}));

const from = (...entries) => (async function* () {
  for (const e of entries) yield typeof e === "string" ? Buffer.from(e) : encode(e);
})();
const end = { name: "end", records: { "FORKD.note": "end" } };
const top = { name: ".", type: "5", mode: 0o755 };

test("hostile streams stay within the target", within(async (dir) => {
  const target = join(dir, "t");
  const bad = {
    "a parent": [top, { name: "../x", type: "0" }, end],
    "an absolute name": [top, { name: "/tmp/forkd-x", type: "0" }, end],
    "a hard link out": [top, { name: "x", type: "1", link: "../../etc/passwd" }, end],
    "a file twice": [top, { name: "x", type: "0" }, { name: "x", type: "0" }, end],
    "an offset that is none": [top, { name: "x", type: "0", records: { "FORKD.at": "-5" } }, end],
    "no end": [top],
    "garbage": ["x".repeat(512)],
    "half a block": [top, "x"],
    "a file that is cut": [top, { name: "x", type: "0", size: 5000 }, "short"],
    "a failed file": [top, { name: "x", records: { "FORKD.note": "failed", "FORKD.text": "no" } }, end],
  };
  for (const [name, entries] of Object.entries(bad)) {
    await assert.rejects(unpack(from(...entries), target), { message: /./ }, name);
    rmSync(target, { recursive: true, force: true });
  }
  // A file through a link to elsewhere: links are made last, so the name is taken by the file's directory.
  mkdirSync(join(dir, "else"));
  const through = [top, { name: "l", type: "2", link: join(dir, "else") }, { name: "l", type: "5", mode: 0o755 }, { name: "l/x", type: "0" }, end];
  await assert.rejects(unpack(from(...through), target), { code: "EEXIST" });
  assert.throws(() => lstatSync(join(dir, "else", "x")));
}));

test("trees go to and from a sandbox", within(async (dir) => {
  mkdirSync(join(dir, "a"));
  plant(join(dir, "a"));
  let kept;
  const daemon = await serve((r, a, body) => {
    if (r.method === "POST") {
      kept = body;
      return json(a, r.url.includes("full") ? { failed: [{ name: "big", message: "no room" }] } : { copied: 7 });
    }
    a.writeHead(200, { "Content-Type": "application/x-tar" });
    a.end(kept);
  });
  const client = new Forkd({ url: daemon.url, token: "secret-token-0123456789" });
  try {
    const { files } = client.sandbox("sb-1");
    const told = [];
    await files.copyTo(join(dir, "a"), "/tmp/a", { onProgress: (n) => told.push(n) });
    assert.ok(told.at(-1) > 600_000);
    await files.copyFrom("/tmp/a", join(dir, "b"));
    check(join(dir, "b"));
    await assert.rejects(files.copyFrom("/tmp/a", join(dir, "b")), { code: "invalid_request" });
    await assert.rejects(files.copyTo(join(dir, "a"), "/tmp/full"), { code: "partial" });
    await assert.rejects(files.copyTo(join(dir, "none"), "/tmp/a"), { code: "invalid_request" });
  } finally {
    await client.close();
    await daemon.close();
  }
}));

test("the URL of a port", async () => {
  let domain = "forkd.localhost";
  const daemon = await serve((r, a) => json(a, r.url === "/version" ? { version: "1", api: "v1", domain } : { id: "sb-1", dns_id: "sb1" }));
  const client = new Forkd({ url: daemon.url });
  try {
    const { port } = new URL(daemon.url);
    assert.equal(await client.sandbox("sb-1").url(8080), `http://8080-sb1.forkd.localhost:${port}/`);
    domain = undefined;
    await assert.rejects(client.sandbox("sb-1").url(8080), { code: "unsupported" });
  } finally {
    await client.close();
    await daemon.close();
  }
});
