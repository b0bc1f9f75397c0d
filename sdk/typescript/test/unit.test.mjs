import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { chmodSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { inspect } from "node:util";
import { errorOf, Controller, ConnectionBrokenError, Forkd, ForkdError, ForkError, InvalidRequestError, NotFoundError, TooLargeError,
  UnauthorizedError, UnreachableError } from "../dist/index.js";
import { ended, frame, json, output, serve, started } from "./daemon.mjs";

const token = "secret-token-0123456789";

async function withDaemon(handler, use, where) {
  const daemon = await serve(handler, where);
  const client = new Forkd({ url: daemon.url, token, retryForMs: 0 });
  try {
    return await use(client, daemon);
  } finally {
    await client.close();
    await daemon.close();
  }
}

test("generated files are those of api/", () => {
  execFileSync(process.execPath, [new URL("../scripts/generate.mjs", import.meta.url).pathname, "--check"], { stdio: "pipe" });
});

test("names are converted, and names of users are not", () => withDaemon((r, a, body) => {
  const got = JSON.parse(body);
  assert.deepEqual(got, { snapshot_tag: "py", n: 2, ttl_secs: 5, env: { MY_VAR_x: "1" }, net: "none" });
  a.writeHead(201, { "Content-Type": "application/x-ndjson" });
  a.write('{"child":{"id":"b","index":2,"snapshot_tag":"py","future_field":{"x_y":1}}}\n{"child":{"id":"a","index":1}}\n');
  a.end('{"fork":{"pool_ready":0}}\n');
}, async (client) => {
  const forks = await client.fork("py", 2, { ttlSecs: 5, env: { MY_VAR_x: "1" }, network: "none" });
  assert.deepEqual(forks.map((f) => f.id), ["a", "b"]);
  assert.equal(forks[1].lastInfo.snapshotTag, "py");
  assert.deepEqual(forks[1].lastInfo.futureField, { xY: 1 });
}));

test("a fork with a failed child has the others", () => withDaemon((r, a) => {
  a.writeHead(201, { "Content-Type": "application/x-ndjson" });
  a.end('{"child":{"id":"a","index":1}}\n{"child":{"id":"","index":2,"error":"no room","code":"no_memory"}}\n{"fork":{}}\n');
}, async (client) => {
  const e = await client.fork("py", 2).catch((x) => x);
  assert.ok(e instanceof ForkError);
  assert.equal(e.sandboxes[0].id, "a");
  assert.equal(e.errors[0].code, "no_memory");
  assert.equal((await client.fork("py", 2, { partial: true })).length, 1);
}));

test("errors have class, hint, reason and request id", () => withDaemon((r, a) => json(a, {
  error: "branch failed", code: "conflict", reason: "branch_failed", details: { tag: "T" }, request_id: "00ff" }, 409),
async (client) => {
  const e = await client.sandbox("x").info().catch((x) => x);
  assert.equal(e.name, "ConflictError");
  assert.match(e.hint, /forkd snapshot rm T/);
  assert.equal(e.requestId, "00ff");
  assert.equal(e.status, 409);
}));

test("codes of a newer daemon are ForkdErrors", () => withDaemon((r, a) => json(a, { error: "no", code: "constructor" }, 499),
  async (client) => {
    const e = await client.version().catch((x) => x);
    assert.equal(e.constructor, ForkdError);
    assert.equal(e.code, "constructor");
  }));

test("a wrong token is Unauthorized, and no text shows it", () => withDaemon((r, a) => {
  assert.equal(r.headers.authorization, `Bearer ${token}`);
  json(a, { error: "wrong token", code: "unauthorized" }, 401);
}, async (client) => {
  const e = await client.version().catch((x) => x);
  assert.ok(e instanceof UnauthorizedError);
  const sandbox = client.sandbox("x");
  for (const thing of [client, e, sandbox, sandbox.files, client.keys, client.snapshot("t")]) {
    assert.ok(!inspect(thing, { depth: 20, showHidden: true }).includes(token));
    assert.ok(!(JSON.stringify(thing) ?? "").includes(token));
  }
}));

test("a token that no header carries is refused without showing it", () => {
  const bad = "geheim\u4e16\nx";
  assert.throws(() => new Forkd({ url: "http://localhost:1", token: bad }), (e) => !inspect(e).includes("geheim"));
  assert.throws(() => new Forkd({ url: "http://u:geheim@localhost:1" }), (e) => !inspect(e).includes("geheim"));
});

test("no daemon is Unreachable", async () => {
  const client = new Forkd({ url: "http://127.0.0.1:1", token, retryForMs: 0 });
  await assert.rejects(client.version(), UnreachableError);
});

test("GET is repeated while the daemon restarts, POST is not", async () => {
  let n = 0;
  const daemon = await serve((r, a) => ++n < 3 ? r.socket.destroy() : json(a, { version: "1", api: "v1" }));
  const client = new Forkd({ url: daemon.url, token });
  assert.equal((await client.version()).version, "1");
  n = 0;
  const e = await client.sandbox("x").ping().catch((x) => x);
  assert.ok(e instanceof ConnectionBrokenError);
  assert.equal(e.reason, "maybe_done");
  assert.equal(n, 1);
  await daemon.close();
});

test("a daemon that goes mid-stream is ConnectionBroken", () => withDaemon((r, a) => {
  a.writeHead(200, { "Content-Type": "application/connect+json" });
  a.write(Buffer.concat([started, output("begin")]));
  setTimeout(() => r.socket.destroy(), 50);
}, async (client) => {
  const seen = [];
  await assert.rejects(client.sandbox("x").exec("true", { onStdout: (b) => seen.push(...b) }), ConnectionBrokenError);
  assert.equal(Buffer.from(seen).toString(), "begin");
}));

test("a stream that ends without its last message is ConnectionBroken", () => withDaemon((r, a) => {
  a.writeHead(200, { "Content-Type": "application/connect+json" });
  a.end(started);
}, (client) => assert.rejects(client.sandbox("x").exec("true"), ConnectionBrokenError)));

test("huge output is bounded", () => withDaemon((r, a) => {
  a.writeHead(200, { "Content-Type": "application/connect+json" });
  a.write(started);
  const more = () => { while (!a.destroyed && a.write(output(Buffer.alloc(60_000)))); };
  a.on("drain", more);
  more();
}, async (client) => {
  const e = await client.sandbox("x").exec("yes", { maxOutput: 1 << 20 }).catch((x) => x);
  assert.ok(e instanceof TooLargeError);
  assert.match(e.hint, /maxOutput/);
}));

test("an aborted exec rejects with the reason and ends the request", async () => {
  let gone;
  const left = new Promise((resolve) => { gone = resolve; });
  await withDaemon((r, a) => {
    a.writeHead(200, { "Content-Type": "application/connect+json" });
    a.write(started);
    a.on("close", gone);
  }, async (client) => {
    const stop = new AbortController();
    const reason = new Error("enough");
    setTimeout(() => stop.abort(reason), 50);
    assert.equal(await client.sandbox("x").exec("sleep 9", { signal: stop.signal }).catch((e) => e), reason);
    await left;
  });
});

test("frames are found in any pieces, and bytes stay as they are", () => withDaemon(async (r, a) => {
  a.writeHead(200, { "Content-Type": "application/connect+json" });
  for (const b of Buffer.concat([started, output([0, 255, 10, 195]), ended])) {
    a.write(Buffer.of(b));
    if (b === 125) await new Promise(setImmediate);
  }
  a.end();
}, async (client) => {
  const r = await client.sandbox("x").exec(["true"]);
  assert.deepEqual([...r.stdoutBytes], [0, 255, 10, 195]);
  assert.equal(r.exitCode, 0);
}));

test("the agent's errors have codes", () => withDaemon((r, a) => {
  a.writeHead(200, { "Content-Type": "application/connect+json" });
  a.end(frame({ error: { code: "unavailable", message: "killed" } }, 2));
}, async (client) => {
  const e = await client.sandbox("x").exec("true").catch((x) => x);
  assert.equal(e.name, "GuestGoneError");
}));

test("a full disk, a missing user and a broken guest have the codes of the other clients", () => {
  for (const [code, want, reason] of [["resource_exhausted", "no_space", ""], ["unauthenticated", "invalid_request", ""],
    ["data_loss", "guest_gone", "sandbox_broken"]]) {
    const e = errorOf({ code, message: "in the guest" }, 400, false);
    assert.deepEqual([e.code, e.reason], [want, reason]);
  }
});

test("Unicode paths and names of routes", () => withDaemon((r, a) => {
  const u = new URL(r.url, "http://x");
  json(a, { entry: { name: u.pathname } });
}, async (client) => {
  assert.equal((await client.sandbox("a/../b").files.stat("/tmp/世")).name, "/v1/sandboxes/a%2F..%2Fb/agent/filesystem.Filesystem/Stat");
  await assert.rejects(client.sandbox("..").info(), InvalidRequestError);
}));

test("events, and the end of them", () => withDaemon((r, a) => {
  a.writeHead(200, { "Content-Type": "text/event-stream" });
  a.end('id: 1\nevent: x\ndata: {"id":1,"kind":"x","detail":{"a_b":"c"}}\n\nevent: end\ndata: {"error":"closing","code":"closing"}\n\n');
}, async (client) => {
  const seen = [];
  const e = await (async () => { for await (const x of client.events({ after: 0 })) seen.push(x); })().catch((x) => x);
  assert.deepEqual(seen[0].detail, { a_b: "c" });
  assert.equal(e.code, "closing");
}));

test("a Unix socket", async () => {
  const dir = mkdtempSync(join(tmpdir(), "forkd-"));
  await withDaemon((r, a) => json(a, { version: "u", api: "v1" }), async (client) => {
    assert.equal((await client.version()).version, "u");
  }, { path: join(dir, "s.sock") });
  rmSync(dir, { recursive: true });
});

test("the program forkd gives the address", () => withDaemon((r, a) => json(a, { version: r.headers.authorization, api: "v1" }),
  async (_, daemon) => {
    const dir = mkdtempSync(join(tmpdir(), "forkd-"));
    const program = join(dir, "forkd");
    writeFileSync(program, `#!/bin/sh\n[ "$*" = "daemon address --json --machine-name m" ] && echo '{"url":"${daemon.url}","token":"from-program"}'\n`);
    chmodSync(program, 0o755);
    const client = new Forkd({ program, machine: "m" });
    assert.equal((await client.version()).version, "Bearer from-program");
    const lost = new Forkd({ program: join(dir, "none"), machine: "m" });
    await assert.rejects(lost.version(), (e) => e instanceof UnreachableError && /no such program/.test(e.message));
    rmSync(dir, { recursive: true });
  }));

test("the original's names answer with the API's fields", () => withDaemon((r, a) =>
  json(a, { stdout: "x", stderr: "", exit_code: 0 }), async (_, daemon) => {
  const got = await new Controller({ url: daemon.url, token }).execCommand("x", ["true"]);
  assert.equal(got.exit_code, 0);
}));

test("await using kills, and a sandbox that has ended is no error", () => withDaemon((r, a) => {
  assert.equal(r.method, "DELETE");
  json(a, { error: "gone", code: "not_found", request_id: "1" }, 404);
}, async (client) => {
  await client.sandbox("x")[Symbol.asyncDispose]();
  await assert.rejects(client.sandbox("x").kill(), NotFoundError);
}));
