// Methods of the Python SDK in TypeScript: their requests, and their ends over broken links.
import assert from "node:assert/strict";
import http from "node:http";
import { mkdtempSync, readFileSync, readdirSync, rmSync, statSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { ConflictError, ConnectionBrokenError, Entry, ExecResult, Forkd, GuestTimeoutError, InvalidRequestError, NotFoundError,
  NotRestorableError, Output, TooLargeError, Controller } from "../dist/index.js";
import { encode, padding } from "../dist/tar.js";
import { ended, frame, json, output, serve, started } from "./daemon.mjs";

const within = { timeout: 20_000 }; // a test that hangs fails

async function withDaemon(handler, use, options = {}) {
  const daemon = await serve(handler);
  const client = new Forkd({ url: daemon.url, token: "t", retryForMs: 0, ...options });
  try {
    return await use(client, daemon);
  } finally {
    await client.close();
    await daemon.close();
  }
}

/** Starts a server that gets requests before their bodies. */
async function rawServer(handler) {
  const server = http.createServer(handler);
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  return { server, url: `http://127.0.0.1:${server.address().port}`, close: () => new Promise((resolve) => {
    server.closeAllConnections();
    server.close(resolve);
  }) };
}

async function withDirectory(use) {
  const dir = mkdtempSync(join(tmpdir(), "forkd-"));
  try {
    return await use(dir);
  } finally {
    rmSync(dir, { recursive: true });
  }
}

const stream = (a) => a.writeHead(200, { "Content-Type": "application/connect+json" });
const caught = (p) => p.then(() => assert.fail("it must fail"), (e) => e);

test("each method sends its request", within, async () => {
  const seen = [];
  await withDaemon((r, a, body) => {
    seen.push([r.method, r.url, body.length ? JSON.parse(body) : undefined]);
    if (r.url === "/v1/workspaces/gone") return json(a, { name: "gone", status: "suspended" });
    if (r.method === "HEAD") return a.writeHead(r.url.endsWith("none") ? 404 : 200, { "Forkd-Digest": "sha256:1" }).end();
    json(a, r.url === "/v1/snapshots" ? { tag: "new" } : { live_sandbox_id: "sb-1", sandboxes: [] });
  }, async (client) => {
    const last = () => seen[seen.length - 1];
    assert.equal((await client.createSnapshot("new", { from: "py", exec: ["true"] })).tag, "new");
    assert.deepEqual(last(), ["POST", "/v1/snapshots", { tag: "new", from: "py", exec: ["true"] }]);
    await client.collect({ dryRun: true });
    assert.deepEqual(last(), ["POST", "/v1/store/gc", { dry_run: true }]);
    await client.snapshot("py").setPool(3);
    assert.deepEqual(last(), ["PUT", "/v1/snapshots/py/pool", { size: 3 }]);
    await client.keep({ best: 1, by: "cat /score", of: "py" });
    assert.deepEqual(last(), ["POST", "/v1/sandboxes/keep", { best: 1, of: "py", args: ["sh", "-c", "cat /score"] }]);
    await client.keep({ best: 1, by: ["cat", "/score"] });
    assert.deepEqual(last()[2].args, ["cat", "/score"]);
    await client.sandbox("x").promote({ discard: true });
    assert.deepEqual(last(), ["POST", "/v1/sandboxes/x/promote", { parent: "kill" }]);
    assert.deepEqual([await client.images.has("i", "sha256:1"), await client.images.has("i", "sha256:2"),
      await client.images.has("i", ""), await client.images.has("none", "sha256:1")], [true, false, false, false]);
    assert.equal((await client.workspaces.sandbox("w")).id, "sb-1");
    const e = await caught(client.workspaces.sandbox("gone"));
    assert.ok(e instanceof NotFoundError);
    assert.match(`${e.message} ${e.hint}`, /suspended.*resume/);
  });
});

test("a program's input and signals", within, async () => {
  const calls = [];
  let first;
  await withDaemon((r, a, body) => {
    const method = r.url.split("/").pop();
    if (method !== "Start") {
      calls.push([method, JSON.parse(body)]);
      return json(a, {});
    }
    first = r.headers;
    stream(a).write(started);
  }, async (client) => {
    const p = await client.sandbox("x").spawn("cat", { timeoutMs: 1500.2 });
    await p.write("one");
    await p.feed((async function* () { yield "two"; yield new Uint8Array([0, 255]); })());
    await p.terminate();
    await p.stdin.write("three");
    p.close();
  });
  const text = (s) => Buffer.from(s).toString("base64");
  const process = { pid: 7 };
  assert.deepEqual(calls, [
    ["SendInput", { process, input: { stdin: text("one") } }], ["SendInput", { process, input: { stdin: text("two") } }],
    ["SendInput", { process, input: { stdin: text([0, 255]) } }], ["CloseStdin", { process }],
    ["SendSignal", { process, signal: "SIGNAL_SIGTERM" }], ["SendInput", { process, input: { stdin: text("three") } }],
  ]);
  // Without the header the guest's program outlives a client that left it.
  assert.equal(first["forkd-kill-on-disconnect"], "1");
  assert.equal(first["connect-timeout-ms"], "1501");
});

test("a program over its limit", within, () => withDaemon((r, a) => {
  stream(a).end(Buffer.concat([started, output("begin"), frame({ error: { code: "deadline_exceeded", message: "over" } }, 2)]));
}, async (client) => {
  const sandbox = client.sandbox("x");
  const result = await (await sandbox.spawn("sleep 9", { timeoutMs: 10 })).wait();
  assert.deepEqual([result.exitCode, result.timedOut, result.stdout, result.ok], [124, true, "begin", false]);
  const seen = [];
  const p = await sandbox.spawn("sleep 9", { timeoutMs: 10 });
  const e = await caught((async () => { for await (const piece of p) seen.push(piece.text); })());
  assert.ok(e instanceof GuestTimeoutError);
  assert.deepEqual(seen, ["begin"]);
  for (const timeoutMs of [0, -1, NaN]) await assert.rejects(sandbox.spawn("true", { timeoutMs }), InvalidRequestError);
}));

test("results, pieces and entries", () => {
  assert.equal(new ExecResult(new Uint8Array(), new Uint8Array(), 0).ok, true);
  assert.equal(new Output("stdout", Buffer.from("é")).text, "é");
  const entry = new Entry({ name: "d", type: "FILE_TYPE_DIRECTORY", size: "12" });
  assert.deepEqual([entry.isDir, entry.size, entry.type, new Entry(undefined).isDir], [true, 12, "directory", false]);
  assert.deepEqual(JSON.parse(JSON.stringify(entry)).name, "d");
});

test("a file in pieces, in another encoding, and one that breaks off", within, () => withDaemon((r, a) => {
  a.writeHead(200, { "Content-Length": 4 });
  if (r.url.includes("broken")) {
    a.write(Buffer.from([0xe9]));
    return setTimeout(() => r.socket.destroy(), 30);
  }
  a.end(Buffer.from([0x63, 0x61, 0x66, 0xe9]));
}, async (client) => {
  const { files } = client.sandbox("x");
  assert.equal(await files.readText("/f", { encoding: "latin1" }), "café");
  await assert.rejects(files.readText("/f", { encoding: "no such" }), InvalidRequestError);
  await assert.rejects(files.readText("/f", { maxBytes: 3 }), TooLargeError);
  const pieces = [];
  await assert.rejects((async () => { for await (const b of files.iter("/broken")) pieces.push(...b); })(), ConnectionBrokenError);
  assert.deepEqual(pieces, [0xe9]);
}));

/** Returns a tar of files. */
function tar(files) {
  const parts = Object.entries(files).flatMap(([name, content]) => {
    const data = Buffer.from(content);
    return [encode({ name, size: data.length }), data, new Uint8Array(padding(data.length))];
  });
  return Buffer.concat([...parts, new Uint8Array(1024)]);
}

const blob = (n) => "blobs/sha256/" + String(n).repeat(64);
const digest = (n) => "sha256:" + String(n).repeat(64);
const layout = (content = "frames") => tar({
  [blob(3)]: content, [blob(2)]: "{}", [blob(1)]: JSON.stringify({ config: { digest: digest(2) }, layers: [{ digest: digest(3) }],
    annotations: { "org.opencontainers.image.title": "py" } }),
  "index.json": JSON.stringify({ manifests: [{ digest: digest(1) }] }),
});

test("a snapshot goes to a file and from it", within, () => withDirectory(async (dir) => {
  const file = join(dir, "py.tar");
  let sent;
  await withDaemon((r, a, body) => {
    if (r.method === "GET") return a.writeHead(200, { "Content-Type": "application/x-tar" }).end(layout());
    sent = [r.url, body];
    json(a, { tag: "x" }, 201);
  }, async (client) => {
    const written = [];
    await client.snapshot("py").export(file, { progress: (n) => written.push(n) });
    assert.equal(written.at(-1), statSync(file).size);
    assert.equal(statSync(file).mode & 0o77, 0, "others can read the guest's memory");
    assert.equal((await client.importSnapshot(file)).tag, "py");
    assert.equal(sent[0], "/v1/snapshots/py");
    const bytes = [];
    assert.equal((await client.importSnapshot(file, { tag: "other", progress: (n) => bytes.push(n) })).tag, "other");
    assert.equal(bytes.at(-1), sent[1].length);
    writeFileSync(join(dir, "sent.tar"), sent[1]);
    const names = [...sent[1].toString("latin1").matchAll(/(manifest\.json|config\.json|blobs\/sha256\/3+)\0/g)].map((m) => m[1]);
    assert.deepEqual(names, ["manifest.json", "config.json", blob(3)]);
    assert.ok(sent[1].includes("frames"));
  });
  assert.deepEqual(readdirSync(dir).sort(), ["py.tar", "sent.tar"]);
}));

test("an export that fails leaves no file and keeps the old one", within, () => withDirectory(async (dir) => {
  const file = join(dir, "py.tar");
  writeFileSync(file, "old");
  const stop = new AbortController();
  const reason = new Error("enough");
  for (const [how, handler, want] of [
    ["the daemon goes", (r, a) => {
      a.writeHead(200, { "Content-Type": "application/x-tar" }).write(layout().subarray(0, 700));
      setTimeout(() => r.socket.destroy(), 30);
    }, ConnectionBrokenError],
    ["the daemon could not finish", (r, a) => a.end(tar({ "forkd-failure": "the disk broke" })), ConflictError],
    ["a proxy's page", (r, a) => a.end("<html>".repeat(300)), InvalidRequestError],
    ["an empty answer", (r, a) => a.end(), InvalidRequestError],
    ["no such snapshot", (r, a) => json(a, { error: "no", code: "not_found" }, 404), NotFoundError],
    ["the caller leaves", (r, a) => {
      a.writeHead(200).write(layout().subarray(0, 700));
      setTimeout(() => stop.abort(reason), 30);
    }, reason],
  ]) {
    await withDaemon(handler, async (client) => {
      const e = await caught(client.snapshot("py").export(file, { signal: stop.signal }));
      if (want === reason) assert.equal(e, reason, how);
      else assert.ok(e instanceof want, `${how}: ${e}`);
    });
    assert.deepEqual([readdirSync(dir), readFileSync(file, "utf8")], [["py.tar"], "old"], how);
  }
  await withDaemon((r, a) => a.end(layout()), async (client) => {
    assert.equal((await caught(client.snapshot("py").export(join(dir, "no", "f")))).code, "ENOENT");
    const e = await caught(client.snapshot("py").export(file, { progress: () => { throw reason; } }));
    assert.equal(e, reason);
  });
  assert.deepEqual(readdirSync(dir), ["py.tar"]);
}));

test("files that are no snapshot are not sent", within, () => withDirectory((dir) => withDaemon((r, a) => json(a, {}),
  async (client) => {
    const file = join(dir, "f");
    const index = JSON.stringify({ manifests: [{ digest: digest(1) }] });
    const manifest = JSON.stringify({ config: { digest: digest(2) }, layers: [], annotations: {} });
    for (const [name, content, text] of [
      ["nothing", "", /no file of a snapshot: it has no index.json/],
      ["no tar", "x".repeat(2000), /no file of a snapshot/],
      ["no JSON", tar({ "index.json": "{" }), /no file of a snapshot/],
      ["no manifests", tar({ "index.json": "[]" }), /no file of a snapshot/],
      ["no manifest", tar({ "index.json": index }), /it has no blobs/],
      ["a manifest that is no object", tar({ "index.json": index, [blob(1)]: "null" }), /no file of a snapshot/],
      ["a huge index", tar({ "index.json": "{" + " ".repeat(5 << 20) }), /has 5242881 bytes/],
      ["a tar that was cut", tar({ "index.json": index }).subarray(0, 530), /ends within index.json/],
      ["a blob that is missing", tar({ "index.json": index, [blob(1)]: manifest }), /has no blobs\/sha256\/2/],
      ["no tag", layout().toString("latin1").replace(/image\.title/, "image_title"), /is no name/],
    ]) {
      writeFileSync(file, content, "latin1");
      const e = await caught(client.importSnapshot(file, name === "a blob that is missing" ? { tag: "x" } : {}));
      assert.ok(e instanceof InvalidRequestError, `${name}: ${e}`);
      assert.match(e.message, text, name);
    }
    writeFileSync(file, tar({ "forkd-failure": "the daemon's reason" }));
    const e = await caught(client.importSnapshot(file));
    assert.ok(e instanceof ConflictError);
    assert.match(e.message, /the daemon's reason/);
    assert.equal((await caught(client.importSnapshot(join(dir, "none")))).code, "ENOENT");
  })));

test("an import that is refused, breaks or is left ends at once", within, () => withDirectory(async (dir) => {
  const file = join(dir, "py.tar");
  writeFileSync(file, layout(Buffer.alloc(64 << 20))); // more than sockets keep
  const stop = new AbortController();
  const reason = new Error("enough");
  const refusal = JSON.stringify({ error: "another processor", code: "not_restorable", request_id: "1" });
  for (const [how, handler, check] of [
    ["refused before the content", (r, a) => {
      a.writeHead(409, { "Content-Type": "application/json", "Content-Length": refusal.length }).end(refusal);
    }, (e) => assert.ok(e instanceof NotRestorableError, String(e))],
    ["the daemon goes", (r) => { r.once("data", () => r.socket.destroy()); }, (e) => {
      assert.ok(e instanceof ConnectionBrokenError, String(e));
      assert.equal(e.reason, "maybe_done");
    }],
    ["the caller leaves", (r) => { r.once("data", () => stop.abort(reason)); }, (e) => assert.equal(e, reason)],
  ]) {
    const daemon = await rawServer(handler);
    const client = new Forkd({ url: daemon.url, token: "t", retryForMs: 0 });
    const before = Date.now();
    check(await caught(client.importSnapshot(file, { signal: stop.signal })));
    assert.ok(Date.now() - before < 10_000, how);
    await client.close();
    await daemon.close();
  }
}));

/** Runs a server whose ports are served by a handler of the upgraded socket. */
async function withPort(handler, use, options = {}) {
  const server = http.createServer();
  const sockets = new Set();
  server.on("upgrade", (r, socket, head) => {
    sockets.add(socket.on("error", () => {}));
    socket.write("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: forkd-tcp\r\n\r\n");
    handler(socket, head, r);
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  const client = new Forkd({ url: `http://127.0.0.1:${server.address().port}`, token: "t", ...options });
  try {
    await use(client.sandbox("x"));
  } finally {
    await client.close();
    for (const s of sockets) s.destroy();
    await new Promise((resolve) => server.close(resolve));
  }
}

test("a request to a port", within, () => withPort((socket) => {
  let got = "";
  socket.on("data", (b) => { got += b; }).on("end", () => socket.end(got.toUpperCase()));
}, async (sandbox) => {
  assert.equal(Buffer.from(await sandbox.requestPort(80, "hello")).toString(), "HELLO");
  assert.equal((await sandbox.requestPort(80, new Uint8Array(), { timeoutMs: 0 })).length, 0);
  assert.equal((await sandbox.requestPort(80, "x", { timeoutMs: 1e12 })).length, 1);
}));

test("a port that never ends, sends nothing or breaks", within, async () => {
  await withPort((socket) => {
    const more = () => { while (!socket.destroyed && socket.write(Buffer.alloc(60_000))); };
    socket.on("drain", more);
    more();
  }, async (sandbox) => {
    const e = await caught(sandbox.requestPort(80, "x", { maxBytes: 1 << 20 }));
    assert.ok(e instanceof TooLargeError, String(e));
    assert.match(e.hint, /maxBytes/);
  });
  await withPort(() => {}, async (sandbox) => {
    assert.ok(await caught(sandbox.requestPort(80, "x", { timeoutMs: 50 })) instanceof GuestTimeoutError);
    const stop = new AbortController();
    const reason = new Error("enough");
    setTimeout(() => stop.abort(reason), 50);
    assert.equal(await caught(sandbox.requestPort(80, "x", { signal: stop.signal })), reason);
    assert.equal(await caught(sandbox.requestPort(80, "x", { signal: stop.signal })), reason);
  });
  await withPort((socket) => {
    socket.write("begin");
    setTimeout(() => socket.resetAndDestroy(), 30);
  }, async (sandbox) => {
    const e = await caught(sandbox.requestPort(80, "x"));
    assert.ok(e instanceof ConnectionBrokenError, String(e));
  });
});

test("a refusal to connect that breaks off is an error", within, async () => {
  const daemon = await rawServer((r, a) => {
    a.writeHead(404, { "Content-Type": "application/json", "Content-Length": 1000 }).write('{"error"');
    setTimeout(() => r.socket.destroy(), 30);
  });
  const client = new Forkd({ url: daemon.url, token: "t" });
  assert.ok(await caught(client.sandbox("x").dial(80)) instanceof NotFoundError);
  await daemon.close();
});

const parent = "00-0123456789abcdef0123456789abcdef-0123456789abcdef-01";

test("requests continue the caller's trace", within, async () => {
  const seen = [];
  const handler = (r, a) => {
    seen.push(r.headers.traceparent);
    if (r.url.includes("Start")) return stream(a).end(Buffer.concat([started, ended]));
    json(a, r.url.includes("events") ? [] : { version: "1", api: "v1" });
  };
  await withDaemon(handler, async (client) => {
    await client.version();
    await client.sandbox("x").exec("true");
    await client.sandbox("x").ping();
  }, { traceparent: parent });
  assert.deepEqual(seen, [parent, parent, parent]);
  const values = [parent.replace(/01$/, "00"), undefined, "x\r\nEvil: 1", 7, parent];
  seen.length = 0;
  await withDaemon(handler, async (client) => {
    for (let i = values.length; i > 0; i--) await client.version();
  }, { traceparent: () => values[seen.length] });
  assert.deepEqual(seen, [values[0], undefined, undefined, undefined, parent]);
  await withPort((socket, _, r) => socket.end(String(r.headers.traceparent)), async (sandbox) => {
    assert.equal(Buffer.from(await sandbox.requestPort(80, "")).toString(), parent);
  }, { traceparent: parent });
});

test("a propagator's carrier has the trace's state, too", within, async () => {
  const seen = [];
  const states = ["a=1,b=2", "", "x\r\nEvil: 1", "y".repeat(513), undefined];
  await withDaemon((r, a) => {
    seen.push([r.headers.traceparent, r.headers.tracestate]);
    json(a, { version: "1", api: "v1" });
  }, async (client) => {
    for (let i = states.length; i > 0; i--) await client.version();
  }, { traceparent: () => ({ traceparent: parent, tracestate: states[seen.length] }) });
  assert.deepEqual(seen, ["a=1,b=2", undefined, undefined, undefined, undefined].map((s) => [parent, s]));
});

test("a traceparent of another form is refused", () => {
  for (const traceparent of ["", "x", parent.toUpperCase(), parent + "\r\nEvil: 1", "00-" + parent]) {
    assert.throws(() => new Forkd({ url: "http://localhost:1", traceparent }), InvalidRequestError);
  }
});

test("the original's client is closed, and has the options of the Python one", within, () => withDaemon((r, a, body) => {
  const got = JSON.parse(body);
  if (r.url.endsWith("/eval")) return json(a, { result: String(got.timeout_secs) });
  if (r.url.endsWith("/branch")) return json(a, { tag: JSON.stringify(got), children: [] });
  a.writeHead(201, { "Content-Type": "application/x-ndjson" });
  a.end(JSON.stringify({ child: { id: JSON.stringify(got), index: 1 } }) + '\n{"fork":{}}\n');
}, async (_, daemon) => {
  const controller = new Controller({ url: daemon.url, token: "t" });
  assert.equal((await controller.evalCode("x", "1", { timeoutSecs: 7 })).result, "7");
  assert.deepEqual(JSON.parse((await controller.branchSandbox("x", { diff: true, measureDiff: true })).tag), { diff: true, measure_diff: true });
  const [child] = await controller.spawnSandboxes("py", { liveFork: true, hugepages: false, prewarm: true });
  assert.deepEqual(JSON.parse(child.id), { snapshot_tag: "py", n: 1, live_fork: true, hugepages: false, prewarm: true });
  await controller.close();
  await assert.rejects(controller.listSandboxes(), InvalidRequestError);
}));

test("an error of the caller's source comes back as it is", within, () => withDaemon((r, a) => json(a, {}), async (client) => {
  const reason = new Error("no more");
  const source = async function* () {
    yield Buffer.from("begin");
    throw reason;
  };
  assert.equal(await caught(client.sandbox("x").files.write("/f", source())), reason);
  assert.equal(await caught(client.images.import("i", source())), reason);
}));

test("a limit beyond the timers of JavaScript does not end a program at once", within, () => withDaemon((r, a) => {
  stream(a).write(started);
  setTimeout(() => a.end(ended), 50);
}, async (client) => assert.equal((await client.sandbox("x").exec("true", { timeoutMs: 1e12 })).timedOut, false)));
