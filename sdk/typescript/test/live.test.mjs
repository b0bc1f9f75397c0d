// Runs against a daemon with VMs: FORKD_URL, FORKD_TOKEN and FORKD_TEST_SNAPSHOT (python-numpy, warm).
import assert from "node:assert/strict";
import { mkdirSync, mkdtempSync, rmSync, statSync, symlinkSync, writeFileSync } from "node:fs";
import { get } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { EvalError, Forkd, InvalidRequestError, NotFoundError, UnauthorizedError } from "../dist/index.js";

const tag = process.env.FORKD_TEST_SNAPSHOT;
const live = (name, f) => test(name, { skip: tag ? false : "FORKD_TEST_SNAPSHOT is not set", timeout: 120_000 }, f);
let client, s;

before(async () => {
  if (!tag) return;
  client = new Forkd();
  s = await client.fork(tag, { ttlSecs: 300 });
});
after(async () => {
  await s?.kill().catch(() => {});
  await client?.close();
});

live("exec: streams, codes, input, limit", async () => {
  const r = await s.exec("echo hé; echo bad >&2; exit 3");
  assert.deepEqual([r.stdout, r.stderr, r.exitCode], ["hé\n", "bad\n", 3]);
  assert.equal((await s.exec(["cat"], { stdin: "in" })).stdout, "in");
  assert.equal((await s.exec(["true"], { stdin: "unread" })).exitCode, 0);
  const late = await s.exec("echo first; sleep 30", { timeoutMs: 1500 });
  assert.deepEqual([late.stdout, late.exitCode, late.timedOut], ["first\n", 124, true]);
  await assert.rejects(s.exec(["no-such-program"]), InvalidRequestError);
  assert.equal((await s.exec("kill -9 $$")).exitCode, 137);
});

live("spawn: input and output of a program that runs", async () => {
  const p = await s.spawn(["cat"]);
  await p.stdin.write("ping");
  for await (const { data } of p) {
    assert.equal(Buffer.from(data).toString(), "ping");
    break;
  }
});

live("eval: repr, JSON and errors", async () => {
  assert.equal(await s.eval("6 * 7"), "42");
  assert.deepEqual(await s.eval("x = ['🙂', None]\nx", { as: "json" }), ["🙂", null]);
  await assert.rejects(s.eval("1 / 0"), (e) => e instanceof EvalError && /ZeroDivisionError/.test(e.traceback));
});

live("files: any name, any bytes", async () => {
  const path = "/tmp/привет 世界/a.bin";
  const bytes = Uint8Array.from({ length: 100_000 }, (_, i) => i % 256);
  await s.files.write(path, bytes);
  assert.deepEqual(Buffer.from(await s.files.read(path)), Buffer.from(bytes));
  assert.equal((await s.files.stat(path)).size, bytes.length);
  assert.equal((await s.files.list("/tmp/привет 世界"))[0].name, "a.bin");
  await s.files.rename(path, path + "2");
  assert.equal(await s.files.exists(path), false);
  await s.files.remove("/tmp/привет 世界");
  await assert.rejects(s.files.read(path), NotFoundError);
});

live("files: a tree there and back", async () => {
  const dir = mkdtempSync(join(tmpdir(), "forkd-live-"));
  try {
    mkdirSync(join(dir, "a", "größe"), { recursive: true });
    writeFileSync(join(dir, "a", "größe", "big"), Buffer.alloc(700_000, "x"));
    symlinkSync("größe/big", join(dir, "a", "link"));
    await s.files.copyTo(join(dir, "a"), "/tmp/tree");
    await s.files.copyFrom("/tmp/tree", join(dir, "b"));
    assert.equal(statSync(join(dir, "b", "link")).size, 700_000);
    await s.files.remove("/tmp/tree");
  } finally {
    rmSync(dir, { recursive: true });
  }
});

live("branch: a child has the memory of its parent", async () => {
  await s.eval("state = 41");
  const b = await s.branch({ n: 1 });
  try {
    assert.equal(await b.children[0].eval("state + 1"), "42");
  } finally {
    await b[Symbol.asyncDispose]();
    await client.snapshot(b.tag).delete();
  }
});

live("ports: a server of the guest on this host", async () => {
  const p = await s.spawn(["python3", "-m", "http.server", "8123", "--bind", "127.0.0.1"]);
  await s.waitForPort(8123);
  const forward = await s.forwardPort(8123);
  assert.equal((await fetch(`http://${forward.address}/`)).status, 200);
  if (!process.env.FORKD_URL.startsWith("unix:")) {
    const { host, pathname } = new URL(await s.url(8123));
    const answer = await new Promise((done) => get(process.env.FORKD_URL + pathname, { headers: { Host: host } }, done));
    assert.equal(answer.resume().statusCode, 200);
  }
  await forward.close();
  p.close();
});

live("a sandbox that has ended, and a wrong token", async () => {
  const other = await client.fork(tag, { ttlSecs: 60 });
  const running = other.exec("sleep 60").catch((e) => e);
  await new Promise((r) => setTimeout(r, 500));
  await other.kill();
  assert.match((await running).code, /guest_gone|not_found/);
  await assert.rejects(other.exec("true"), NotFoundError);
  const wrong = new Forkd({ url: process.env.FORKD_URL, token: "wrong-token-0123456789" });
  await assert.rejects(wrong.version(), UnauthorizedError);
});
