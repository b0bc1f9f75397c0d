import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { Stage, act, row, until } from "./harness.mjs";

const stage = new Stage();
const tag = `ui-test-${Date.now()}`;
let page;
let expected;
const mine = new Set();
before(async () => {
  await stage.begin();
  ({ page, expected } = await stage.enter());
});
after(async () => {
  await stage.kill(page, ...mine);
  await stage.api(page, "DELETE", `/v1/snapshots/${tag}?cascade=true`).catch(() => {});
  await stage.end();
});

const done = (text) => page.locator(".toast.done").filter({ hasText: text }).waitFor();
const get = (id) => stage.api(page, "GET", `/v1/sandboxes/${id}`);
const childrenOf = async (snapshot) => (await stage.api(page, "GET", "/v1/sandboxes")).filter((s) => s.snapshot_tag === snapshot).map((s) => s.id);

let first;
let child;

test("fork N", async () => {
  const from = await stage.snapshot(page);
  const before = new Set(await childrenOf(from));
  await act(page, from, "Fork …");
  await page.getByRole("dialog").getByLabel("Sandboxes").fill("2");
  await page.getByRole("dialog").getByLabel("Lifetime in minutes").fill("30");
  await page.getByRole("dialog").getByRole("button", { name: "Fork" }).click();
  await done("Forked 2 sandboxes");
  const made = (await childrenOf(from)).filter((id) => !before.has(id));
  assert.equal(made.length, 2);
  made.forEach((id) => mine.add(id));
  [first] = made;
  assert.equal((await get(first)).life.at_end, "kill");
});

test("branch N, and the branch is below its source", async () => {
  await act(page, first, "Branch …");
  await page.getByRole("dialog").getByLabel("Name of the snapshot").fill(tag);
  await page.getByRole("dialog").getByLabel("Children to fork from it").fill("2");
  await page.getByRole("dialog").getByRole("button", { name: "Branch" }).click();
  await done(`to ${tag}`);
  const children = await childrenOf(tag);
  assert.equal(children.length, 2);
  children.forEach((id) => mine.add(id));
  [child] = children;
  await page.getByLabel("Filter", { exact: true }).fill(child);
  await row(page, child).waitFor();
  const level = async (name) => Number(await row(page, name).getAttribute("aria-level"));
  assert.equal(await level(tag), (await level(first)) + 1);
  assert.equal(await level(child), (await level(tag)) + 1);
});

test("an error is shown with its hint, and the dialog stays", async () => {
  expected.push(/\/branch$/);
  await act(page, first, "Branch …");
  await page.getByRole("dialog").getByLabel("Name of the snapshot").fill(tag);
  await page.getByRole("dialog").getByRole("button", { name: "Branch" }).click();
  const error = page.getByRole("dialog").locator(".toast.error");
  await error.filter({ hasText: tag }).waitFor();
  assert.match(await error.textContent(), /Choose another name\./);
  assert.equal(await page.locator(".dialog-error").getAttribute("aria-live"), "assertive");
  await page.keyboard.press("Escape");
  assert.equal(await page.getByRole("dialog").count(), 0);
});

test("rollback to the branch", async () => {
  await act(page, first, "Roll back …");
  await page.getByRole("dialog").getByLabel("Snapshot", { exact: true }).selectOption(tag);
  await page.getByRole("dialog").getByRole("button", { name: "Roll back" }).click();
  await done(`back to ${tag}`);
  assert.equal((await get(first)).rolled_back_to, tag);
  await page.getByLabel("Filter", { exact: true }).fill(first);
  await row(page, first).waitFor(); // its place is below its own branch now, and not a circle
});

test("pause and resume", async () => {
  await act(page, first, "Pause …");
  await page.getByRole("dialog").getByRole("button", { name: "Pause" }).click();
  await done("Paused");
  await until("the badge", async () => (await row(page, first).textContent()).includes("paused"));
  assert.equal((await get(first)).status, "paused");
  await act(page, first, "Resume");
  await done("runs again");
  assert.equal((await get(first)).status, "running");
});

test("promote a child", async () => {
  await stage.go(page, `#/sandbox/${child}`);
  await page.getByRole("heading", { level: 1, name: child }).waitFor();
  await page.getByRole("group", { name: "Actions" }).getByRole("button", { name: "Promote …" }).click();
  await page.getByRole("dialog").getByLabel("The old state of that sandbox").selectOption("kill");
  await page.getByRole("dialog").getByRole("button", { name: "Promote" }).click();
  await done(`now has the state of ${child}`);
  await page.getByRole("heading", { level: 1, name: first }).waitFor();
  assert.equal((await get(first)).promoted_from, child);
  mine.delete(child);
});

test("kill asks first", async () => {
  await page.getByRole("group", { name: "Actions" }).getByRole("button", { name: "Kill …" }).click();
  const dialog = page.getByRole("dialog", { name: `Kill ${first}?` });
  await dialog.waitFor();
  assert.equal(await page.evaluate(() => document.activeElement?.textContent), "Cancel");
  await page.keyboard.press("Enter");
  assert.equal((await get(first)).status, "running");
  await page.getByRole("group", { name: "Actions" }).getByRole("button", { name: "Kill …" }).click();
  await dialog.getByRole("button", { name: "Kill" }).click();
  await done(`Killed ${first}`);
  await page.getByRole("heading", { level: 1, name: "Fork tree" }).waitFor();
  mine.delete(first);
});

test("no page had an error", () => stage.clean());
