// Runs the real AI SDK with its own stub model against a daemon with VMs: FORKD_URL, FORKD_TOKEN, FORKD_TEST_SNAPSHOT.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { generateText, stepCountIs, tool } from "ai";
import { MockLanguageModelV4 } from "ai/test";
import { z } from "zod";
import { Forkd } from "@forkd/sdk";
import { forkdSandbox, policyOf } from "../dist/index.js";

const snapshot = process.env.FORKD_TEST_SNAPSHOT ?? "py";
const mark = `t${process.pid}`;
const client = new Forkd();
const provider = forkdSandbox({ client, snapshot, ttlSecs: 600, ports: [8123] });
let s, saved;

before(async () => { s = await provider.createSession(); });
after(async () => {
  await s.destroy();
  if (saved) await client.snapshot(saved).delete({ cascade: true });
  await client.close();
});

test("a model uses tools in the sandbox", async () => {
  const usage = { inputTokens: { total: 1 }, outputTokens: { total: 1 } };
  const call = (toolName, input) => ({
    content: [{ type: "tool-call", toolCallId: toolName + Math.random(), toolName, input: JSON.stringify(input) }],
    finishReason: { unified: "tool-calls" }, usage, warnings: [],
  });
  const model = new MockLanguageModelV4({ doGenerate: [
    call("write", { path: "sum.py", content: "print(sum(range(101)))" }),
    call("shell", { command: "python3 sum.py" }),
    { content: [{ type: "text", text: "The sum is 5050." }], finishReason: { unified: "stop" }, usage, warnings: [] },
  ] });
  const seen = [];
  const { text } = await generateText({
    model, prompt: "Add the numbers up to 100.", stopWhen: stepCountIs(5), experimental_sandbox: s.restricted(),
    tools: {
      write: tool({
        inputSchema: z.object({ path: z.string(), content: z.string() }),
        execute: (input, { experimental_sandbox: sandbox }) => sandbox.writeTextFile(input).then(() => "ok"),
      }),
      shell: tool({
        inputSchema: z.object({ command: z.string() }),
        execute: async (input, { experimental_sandbox: sandbox }) => {
          const got = await sandbox.run(input);
          seen.push(got);
          return got;
        },
      }),
    },
  });
  assert.equal(text, "The sum is 5050.");
  assert.deepEqual(seen, [{ exitCode: 0, stdout: "5050\n", stderr: "" }]);
});

test("files: text, lines, bytes, streams, and those that are not there", async () => {
  await s.writeTextFile({ path: "deep/er/größe.txt", content: "one\ntwo\nthree\n" });
  assert.equal(await s.readTextFile({ path: "deep/er/größe.txt", startLine: 2, endLine: 9 }), "two\nthree\n");
  const bytes = Uint8Array.from({ length: 100_000 }, (_, i) => i % 256);
  await s.writeFile({ path: "/tmp/bytes", content: new Blob([bytes]).stream() });
  assert.deepEqual(Buffer.from(await s.readBinaryFile({ path: "/tmp/bytes" })), Buffer.from(bytes));
  assert.equal((await new Response(await s.readFile({ path: "/tmp/bytes" })).arrayBuffer()).byteLength, 100_000);
  for (const read of ["readFile", "readBinaryFile", "readTextFile"]) assert.equal(await s[read]({ path: "none" }), null);
});

test("programs: environment, directory, exit code, streams, kill and abort", async () => {
  const got = await s.run({ command: "pwd; echo $A >&2; exit 3", workingDirectory: "/tmp", env: { A: "of the call" } });
  assert.deepEqual(got, { exitCode: 3, stdout: "/tmp\n", stderr: "of the call\n" });
  const p = await s.spawn({ command: "echo out; echo err >&2; sleep 100" });
  const reader = p.stdout.getReader();
  assert.equal(Buffer.from((await reader.read()).value).toString(), "out\n");
  await p.kill();
  assert.equal((await p.wait()).exitCode, 137);
  assert.equal(await new Response(p.stderr).text(), "err\n");
  const abort = new AbortController();
  const q = await s.spawn({ command: "sleep 100", abortSignal: abort.signal });
  abort.abort(new Error("enough"));
  await assert.rejects(q.wait(), { message: "enough" });
  await assert.rejects(s.run({ command: "sleep 100", abortSignal: AbortSignal.timeout(500) }));
});

test("forks continue from the same moment, and a rollback brings it back", async () => {
  const count = async () => (await client.snapshots.list()).length;
  const before = await count();
  await s.writeTextFile({ path: "state", content: "before" });
  const forks = await s.fork(2);
  const tag = await s.branch();
  await s.writeTextFile({ path: "state", content: "after" });
  assert.deepEqual(await Promise.all(forks.map((f) => f.readTextFile({ path: "state" }))), ["before", "before"]);
  await s.rollback(tag);
  assert.equal(await s.readTextFile({ path: "state" }), "before");
  await Promise.all(forks.map((f) => f.destroy()));
  assert.equal(await count(), before + 1); // the branch alone: the last fork took its snapshot with it
  saved = tag;
});

test("a port is reached", async () => {
  const server = await s.spawn({ command: "exec python3 -m http.server 8123 --bind 127.0.0.1" });
  await s.sandbox.waitForPort(8123, { timeoutMs: 60_000 });
  const { url } = await s.getPortEndpoint({ port: 8123 });
  assert.equal((await fetch(url)).status, 200);
  await server.kill();
});

test("policies", async () => {
  assert.deepEqual(policyOf({ mode: "custom", allowedHosts: ["pypi.org"], allowedCIDRs: ["192.0.2.0/24"] }),
    { allow: ["pypi.org", "192.0.2.0/24"] });
  assert.throws(() => policyOf({ mode: "custom", allowedHosts: ["pypi.org"], deniedCIDRs: ["192.0.2.0/24"] }), /deniedCIDRs/);
  await s.setNetworkPolicy({ mode: "deny-all" });
  assert.equal((await s.sandbox.network()).policy, "none");
});

test("an identity is set up once", async () => {
  const before = new Set((await client.snapshots.list()).map((info) => info.tag)); // those of a user's own sessions stay
  let times = 0;
  const create = () => provider.createSession({
    identity: mark,
    onFirstCreate: async (session) => { times++; await session.writeTextFile({ path: "ready", content: "yes" }); },
  });
  const first = await create();
  const second = await create();
  assert.equal(await second.readTextFile({ path: "ready" }), "yes");
  assert.equal(times, 1);
  await Promise.all([first.destroy(), second.destroy()]);
  await assert.rejects(provider.createSession({ identity: mark + "-bad", onFirstCreate: async () => { throw new Error("no"); } }), /no/);
  const made = (await client.snapshots.list()).filter((info) => info.tag.startsWith("ai-") && !before.has(info.tag));
  assert.equal(made.length, 1);
  await client.snapshot(made[0].tag).delete();
});

test("a session is stopped and resumed", async () => {
  const one = await provider.createSession({ sessionId: mark });
  await one.writeTextFile({ path: "state", content: "kept" });
  await one.stop();
  await one.stop();
  const again = await provider.resumeSession({ sessionId: mark });
  assert.equal(await again.readTextFile({ path: "state" }), "kept");
  await again.destroy();
  await again.destroy();
});
