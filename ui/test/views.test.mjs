import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { TENANT_KEY } from "../mock/server.mjs";
import { Stage, real, until } from "./harness.mjs";

const stage = new Stage();
const tag = `ui-views-${Date.now()}`;
let page;
let ids;
let from;
before(async () => {
  await stage.begin();
  ({ page } = await stage.enter());
  from = await stage.snapshot(page);
  ids = (await stage.fork(page, 2)).map((s) => s.id);
  await stage.api(page, "POST", `/v1/sandboxes/${ids[0]}/branch`, { tag });
});
after(async () => {
  await stage.kill(page, ...ids);
  await stage.api(page, "DELETE", `/v1/snapshots/${tag}`).catch(() => {});
  await stage.end();
});

test("limits as meters", async () => {
  await stage.go(page, "#/limits");
  await page.getByRole("heading", { name: "Host" }).waitFor();
  const memory = page.getByRole("meter", { name: "Memory", exact: true });
  await memory.waitFor();
  assert.ok(Number(await memory.getAttribute("aria-valuemax")) > 2 ** 20);
  await page.getByRole("heading", { name: "Operator" }).waitFor();
});

test("a tenant sees its own use, and asks for nothing that it may not see", { skip: real && "it needs a tenant's key" }, async () => {
  const { page: theirs } = await stage.open();
  await stage.logIn(theirs, "#/", TENANT_KEY);
  await theirs.getByText("ci · acme").waitFor();
  await stage.go(theirs, "#/limits");
  await theirs.getByRole("heading", { name: "Your use" }).waitFor();
  assert.equal(await theirs.getByRole("heading", { name: "Host" }).count(), 0);
});

test("compare snapshots", async () => {
  await stage.go(page, "#/compare");
  await page.getByLabel("First").fill(from);
  await page.getByLabel("Second").fill(tag);
  await page.getByRole("button", { name: "Compare" }).click();
  await page.getByText("compared in").waitFor();
  for (const name of ["Files", "Processes", "Packages", "Memory"]) await page.getByRole("heading", { name }).waitFor();
});

test("compare sandboxes by a merge that changes nothing", async () => {
  await stage.go(page, `#/compare/${ids[0]}/${ids[1]}`);
  for (const id of ids) await page.getByRole("heading", { name: `Changed in ${id}` }).waitFor();
  const own = page.getByRole("row", { name: /^Memory of its own/ });
  assert.match(await own.innerText(), /iB.*iB/s);
});

test("compare the processes of running sandboxes", async () => {
  await stage.go(page, `#/compare/${ids[0]}/${ids[1]}`);
  await page.getByText("as their guests list them").waitFor();
  const part = page.getByRole("region", { name: "Processes" });
  await part.getByRole("row", { name: /^changed 1 / }).waitFor();
  if (real) return; // what else runs depends on the image
  for (const id of ids) await part.getByRole("row", { name: new RegExp(`^only in ${id} \\d+ worker --sandbox ${id}`) }).waitFor();
  assert.equal(await part.getByText("python3 -i").count(), 0, "a process without a difference is listed");
});

test("what guests say of their processes is only text, and bounded", { skip: real }, async () => {
  const b64 = (s) => Buffer.from(s).toString("base64");
  const frame = (m, flags = 0) => {
    const data = Buffer.from(JSON.stringify(m));
    const head = Buffer.from([flags, 0, 0, 0, 0]);
    head.writeUInt32BE(data.length, 1);
    return Buffer.concat([head, data]);
  };
  const same = (state, anon) => ({ pid: 7, startTicks: "70", args: b64("python3\0<img src=x onerror=alert(1)>\u202e\x1b[2J"), state: b64(state), rssKib: "9", pssKib: "8", anonKib: String(anon) });
  const answers = {
    [ids[0]]: [{ processes: [same("S", 5), null, 3, { pid: "x", rssKib: "-1", args: 7, name: "%%%" }] }, { end: { processesCut: "2" } }],
    [ids[1]]: [{ files: [{ path: b64("/x") }] }, { processes: [same("T", 6), ...Array.from({ length: 1200 }, (_, i) => ({ pid: 100 + i, startTicks: "1", name: b64("p") }))] }, { end: {} }],
  };
  const it = await stage.enter();
  await it.page.route("**/*.Inventory/List", (route) => {
    const id = ids.find((i) => route.request().url().includes(i));
    return route.fulfill({ contentType: "application/connect+json", body: Buffer.concat([...answers[id].map((m) => frame(m)), frame({}, 2)]) });
  });
  await stage.go(it.page, `#/compare/${ids[0]}/${ids[1]}`);
  const part = it.page.getByRole("region", { name: "Processes" });
  const row = await part.getByRole("row", { name: /^changed 7 / }).innerText();
  assert.match(row, /sleeping → stopped/);
  assert.match(row, /<img src=x onerror=alert\(1\)>\ufffd\ufffd\[2J/);
  assert.ok(await part.getByRole("row").count() <= 1010, "the list has no bound");
  await it.page.getByText("200 more differ. Some could not be read.").waitFor();
});

test("nothing is wider than a page of 400 px", async () => {
  const { page: narrow } = await stage.enter({ viewport: { width: 400, height: 800 } });
  const views = ["#/", "#/limits", `#/compare/${from}/${tag}`, `#/snapshot/${tag}`,
    ...["overview", "receipt", "console", "terminal", "files", "network"].map((t) => `#/sandbox/${ids[0]}/${t}`)];
  for (const view of views) {
    await stage.go(narrow, view);
    await narrow.locator("h1").waitFor();
    await narrow.waitForTimeout(400);
    const wide = await narrow.evaluate(() => document.documentElement.scrollWidth);
    assert.ok(wide <= 400, `${view} is ${wide} px wide`);
  }
});

test("the first key leads to a link that skips the header", async () => {
  await stage.go(page, "#/limits");
  await page.getByRole("heading", { level: 1, name: "Limits" }).waitFor();
  await page.evaluate(() => document.activeElement?.blur());
  await page.keyboard.press("Tab");
  assert.equal(await page.evaluate(() => document.activeElement?.textContent), "Skip to the content");
  await page.keyboard.press("Enter");
  assert.equal(await page.evaluate(() => document.activeElement?.id), "main");
  assert.match(page.url(), /#\/limits$/);
});

test("a hidden page gives its connection back, and catches up when it is seen", async () => {
  const it = await stage.enter();
  const other = it.page;
  const hide = (hidden) => other.evaluate((h) => {
    Object.defineProperty(document, "hidden", { value: h, configurable: true });
    document.dispatchEvent(new Event("visibilitychange"));
  }, hidden);
  await other.getByText("Live", { exact: true }).waitFor();
  await hide(true);
  await other.getByText("Paused", { exact: true }).first().waitFor();
  const [{ id }] = await stage.fork(page, 1);
  ids.push(id);
  await hide(false);
  await other.getByText("Live", { exact: true }).waitFor();
  await other.getByLabel("Filter", { exact: true }).fill(id);
  await until("the new sandbox", async () => (await other.locator(`[data-key="b:${id}"]`).count()) === 1);
});

test("no page had an error", () => stage.clean());
