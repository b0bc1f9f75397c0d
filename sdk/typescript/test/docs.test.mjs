// Runs the examples of docs/use/typescript.md against a daemon with VMs, as live.test.mjs does.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";

const tag = process.env.FORKD_TEST_SNAPSHOT;

test("the page's examples print what it shows", { skip: tag ? false : "FORKD_TEST_SNAPSHOT is not set" }, () => {
  const page = readFileSync(new URL("../../../docs/use/typescript.md", import.meta.url), "utf8");
  const code = [...page.matchAll(/```js\n(.*?)```/gs)].map((m) => m[1]).join("\n")
    .replace('"@forkd/sdk"', JSON.stringify(new URL("../dist/index.js", import.meta.url).href)).replaceAll('"py"', JSON.stringify(tag));
  const want = [...code.matchAll(/\/\/> (.*)/g)].map((m) => m[1]);
  assert.ok(want.length > 12, `only ${want.length} outputs`);
  const dir = mkdtempSync(join(tmpdir(), "forkd-docs-"));
  try {
    writeFileSync(join(dir, "page.mjs"), code);
    const got = execFileSync(process.execPath, [join(dir, "page.mjs")], { timeout: 120_000, encoding: "utf8" });
    assert.deepEqual(got.trim().split("\n"), want);
  } finally {
    rmSync(dir, { recursive: true });
  }
});
