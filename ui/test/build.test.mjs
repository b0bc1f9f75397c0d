// The built files are checked in. They must be those of the sources, and the same in every build.
import assert from "node:assert/strict";
import { mkdtemp, readFile, readdir, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { build } from "vite";

const root = fileURLToPath(new URL("..", import.meta.url));
const dist = fileURLToPath(new URL("../../internal/api/ui/dist", import.meta.url));

async function filesOf(dir) {
  const all = await readdir(dir, { recursive: true, withFileTypes: true });
  const files = all.filter((f) => f.isFile()).map((f) => join(f.parentPath ?? f.path, f.name)).sort();
  return new Map(await Promise.all(files.map(async (f) => [f.slice(dir.length + 1), await readFile(f)])));
}

test("the checked-in files are a build of these sources", async () => {
  const outDir = await mkdtemp(join(tmpdir(), "forkd-ui-"));
  try {
    await build({ root, logLevel: "error", build: { outDir, emptyOutDir: true } });
    const [made, kept] = [await filesOf(outDir), await filesOf(dist)];
    assert.deepEqual([...made.keys()], [...kept.keys()]);
    for (const [name, data] of made) assert.ok(data.equals(kept.get(name)), `${name} differs: run npm run build`);
  } finally {
    await rm(outDir, { recursive: true });
  }
});

test("they have stable names, no source maps, and less than 700 kB", async () => {
  const files = await filesOf(dist);
  assert.deepEqual([...files.keys()], ["assets/app.css", "assets/app.js", "index.html", "licenses.txt"]);
  const size = [...files.values()].reduce((sum, f) => sum + f.length, 0);
  assert.ok(size < 700_000, `${size} bytes`);
  for (const [name, data] of files) assert.ok(!data.includes("sourceMappingURL"), name);
});

test("the lock file names no registry", async () => {
  assert.ok(!(await readFile(join(root, "package-lock.json"), "utf8")).includes("resolved"));
});
