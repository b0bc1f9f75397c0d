import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { idOf } from "../mock/world.mjs";
import { Stage, real, row, until } from "./harness.mjs";

const stage = new Stage();
let page;
let forked = [];
before(async () => {
  await stage.begin();
  ({ page } = await stage.enter());
  forked = await stage.fork(page, 6);
});
after(async () => {
  await stage.kill(page, ...forked.map((s) => s.id));
  await stage.end();
});

const focused = () => page.evaluate(() => document.activeElement?.getAttribute("data-key"));

test("sandboxes that another client forks appear by themselves", async () => {
  await page.getByLabel("Filter", { exact: true }).fill(forked[0].id);
  await row(page, forked[0].id).waitFor();
  assert.match(await row(page, forked[0].id).textContent(), /^Sandbox .*running/);
});

test("siblings of one fork are a group, below their snapshot", async () => {
  await page.getByLabel("Filter", { exact: true }).fill(`fork=${forked[0].id}`);
  const group = page.locator(".row.group").filter({ hasText: forked[0].id.replace("sb-", "") });
  await group.waitFor();
  const level = async (l) => Number(await l.getAttribute("aria-level"));
  assert.equal(await level(row(page, forked[0].id)), (await level(group)) + 1);
});

test("the filter leaves what matches, with what leads to it", async () => {
  await page.getByLabel("Filter", { exact: true }).fill(forked[2].id);
  await until("one sandbox", async () => (await page.locator(".row.sandbox").count()) === 1);
  await page.getByLabel("State").selectOption("failed");
  await page.getByText("Nothing matches the filter.").waitFor();
  await page.getByLabel("State").selectOption("");
  await page.getByLabel("Filter", { exact: true }).fill(`fork=${forked[0].id}`);
});

test("the filter finds labels, and a sandbox shows its own", async () => {
  const [labelled] = await stage.fork(page, 1, { labels: { job: "ui-4711" } });
  try {
    await page.getByLabel("Filter", { exact: true }).fill("job=ui-4711");
    await until("one sandbox", async () => (await page.locator(".row.sandbox").count()) === 1);
    await row(page, labelled.id).waitFor();
    await stage.go(page, `#/sandbox/${labelled.id}`);
    await page.getByText("job=ui-4711", { exact: true }).waitFor();
    await stage.go(page, "#/");
  } finally {
    await stage.kill(page, labelled.id);
  }
  await page.getByLabel("Filter", { exact: true }).fill(`fork=${forked[0].id}`);
});

test("arrow keys move, open and close as in the tree pattern", async () => {
  const group = page.locator(".row.group").first();
  await group.waitFor();
  await page.locator("[role=treeitem][tabindex='0']").focus();
  await page.keyboard.press("Home");
  const first = await focused();
  await page.keyboard.press("End");
  assert.equal(await focused(), `b:${forked.at(-1).id}`);
  await page.keyboard.press("ArrowUp");
  assert.equal(await focused(), `b:${forked.at(-2).id}`);
  await page.keyboard.press("ArrowLeft");
  assert.match(await focused(), /^g:/);
  await page.keyboard.press("ArrowLeft");
  assert.equal(await group.getAttribute("aria-expanded"), "false");
  await page.keyboard.press("ArrowRight");
  assert.equal(await group.getAttribute("aria-expanded"), "true");
  await page.keyboard.press("ArrowRight");
  assert.equal(await focused(), `b:${forked[0].id}`);
  assert.equal(await page.locator("[role=treeitem][tabindex='0']").count(), 1);
  await page.keyboard.press("Home");
  assert.equal(await focused(), first);
});

test("the keyboard opens a row's menu, and Escape gives the focus back", async () => {
  await page.keyboard.press("End");
  const at = await focused();
  await page.keyboard.press("Shift+F10");
  await page.getByRole("menu").waitFor();
  assert.equal(await page.evaluate(() => document.activeElement?.getAttribute("role")), "menuitem");
  await page.keyboard.press("ArrowDown");
  await page.keyboard.press("Escape");
  assert.equal(await page.getByRole("menu").count(), 0);
  assert.equal(await focused(), at);
});

test("Enter opens the details, and Back leads to the same row", async () => {
  const at = await focused();
  await page.keyboard.press("Enter");
  await page.getByRole("heading", { level: 1, name: forked.at(-1).id }).waitFor();
  await until("the focus", () => page.evaluate(() => document.activeElement?.tagName === "H1"));
  await page.goBack();
  await page.getByRole("heading", { level: 1, name: "Fork tree" }).waitFor();
  await until("the focus", async () => (await focused()) === at);
});

test("an end elsewhere removes the row", async () => {
  const gone = forked.pop();
  await page.getByLabel("Filter", { exact: true }).fill(gone.id);
  await row(page, gone.id).waitFor();
  await stage.kill(page, gone.id);
  await row(page, gone.id).waitFor({ state: "detached" });
  await page.getByLabel("Filter", { exact: true }).fill("");
});

test("a thousand rows scroll smoothly, and only those in view are in the page", async () => {
  const { page: p } = await stage.open();
  // A real daemon need not run a thousand sandboxes for this: the list repeats those that it has.
  if (real) {
    await p.route("**/v1/sandboxes", async (r) => {
      if (r.request().method() !== "GET") return r.continue();
      const answer = await r.fetch();
      const some = await answer.json();
      const many = Array.from({ length: 1000 }, (_, i) => ({ ...some[i % some.length], id: idOf(0, i + 1) }));
      return r.fulfill({ response: answer, json: many });
    });
  }
  await stage.logIn(p);
  await p.getByRole("button", { name: "Open all" }).click();
  const rows = await until("a thousand rows", async () => {
    const n = await p.evaluate(() => document.querySelector(".tree").getBoundingClientRect().height / 36);
    return n >= 1000 && n;
  });
  const got = await p.evaluate(() => new Promise((done) => {
    const box = document.querySelector(".tree-scroll");
    const times = [];
    let most = 0;
    let last = performance.now();
    const long = [];
    const watch = new PerformanceObserver((l) => long.push(...l.getEntries().map((e) => e.duration)));
    watch.observe({ entryTypes: ["longtask"] });
    const step = (now) => {
      times.push(now - last);
      last = now;
      most = Math.max(most, document.querySelectorAll(".row").length);
      box.scrollTop += 120;
      if (times.length < 300 && box.scrollTop + box.clientHeight < box.scrollHeight) requestAnimationFrame(step);
      else {
        watch.disconnect();
        done({ times: times.slice(2), most, long });
      }
    };
    requestAnimationFrame(step);
  }));
  const sorted = got.times.toSorted((a, b) => a - b);
  const at = (q) => sorted[Math.floor(sorted.length * q)];
  const fps = 1000 / (got.times.reduce((a, b) => a + b, 0) / got.times.length);
  console.log(`${Math.round(rows)} rows, 120 px a frame: ${got.times.length} frames, ${fps.toFixed(1)} fps, median ${at(0.5).toFixed(1)} ms, ` +
    `p95 ${at(0.95).toFixed(1)} ms, longest ${sorted.at(-1).toFixed(1)} ms, ${got.long.length} long tasks, at most ${got.most} rows in the page`);
  assert.ok(got.most < 120, `${got.most} rows are in the page`);
  assert.ok(at(0.5) < 18, `the median frame takes ${at(0.5)} ms`);
  assert.ok(fps > 50, `${fps} frames a second`);
});

test("no page had an error", () => stage.clean());
