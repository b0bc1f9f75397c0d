// What the suites share: the server, the browser, and what must never happen on a page.
//
// Without UI_URL they run against the mock. With UI_URL and UI_KEY they run against that daemon: they fork sandboxes of
// UI_SNAPSHOT (or of the first snapshot that can be forked), and kill them.
import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { createRequire } from "node:module";
import { chromium } from "playwright-core";
import { KEY, start } from "../mock/server.mjs";

export const real = Boolean(process.env.UI_URL);
const axePath = createRequire(import.meta.url).resolve("axe-core/axe.min.js");

export class Stage {
  #browser;
  #mock;
  #axe;
  pages = [];

  async begin() {
    this.#mock = real ? null : await start();
    this.origin = new URL(process.env.UI_URL ?? this.#mock.url).origin;
    this.key = process.env.UI_KEY ?? KEY;
    this.#browser = await chromium.launch({ executablePath: process.env.UI_BROWSER ?? "/usr/bin/chromium", args: ["--no-sandbox"] });
    this.#axe = await readFile(axePath, "utf8");
  }

  async end() {
    await this.#browser.close();
    await this.#mock?.stop();
  }

  /** Opens a page, and notes its errors and the requests that leave the origin. */
  async open(options = {}) {
    const context = await this.#browser.newContext({
      viewport: { width: 1440, height: 900 }, reducedMotion: "reduce", ignoreHTTPSErrors: true, ...options,
    });
    const page = await context.newPage();
    page.setDefaultTimeout(real ? 60_000 : 10_000);
    const problems = [];
    const expected = [/\/ui\/session$/]; // "nobody is logged in" is an answer with a status that browsers report
    page.on("console", (m) => {
      if (m.type() !== "error" && m.type() !== "warning") return;
      if (m.text().startsWith("Failed to load resource") && expected.some((e) => e.test(m.location().url))) return;
      problems.push(`${m.type()}: ${m.text()} (${m.location().url})`);
    });
    page.on("pageerror", (e) => problems.push(`exception: ${e.stack}`));
    page.on("request", (r) => {
      const url = new URL(r.url());
      if (url.origin !== this.origin && !/^(data|blob):$/.test(url.protocol)) problems.push(`request to ${r.url()}`);
    });
    const it = { page, problems, expected, context };
    this.pages.push(it);
    return it;
  }

  async logIn(page, to = "#/", key = this.key) {
    await page.goto(`${this.origin}/ui/`);
    await page.getByLabel("Key or token").fill(key);
    await page.getByRole("button", { name: "Log in" }).click();
    await page.getByRole("heading", { level: 1, name: "Fork tree" }).waitFor();
    if (to !== "#/") await this.go(page, to);
    await page.locator(".row").first().waitFor({ state: "attached" });
  }

  go(page, to) {
    return page.evaluate((hash) => { location.hash = hash; }, to);
  }

  /** A page that is logged in. */
  async enter(options) {
    const it = await this.open(options);
    await this.logIn(it.page);
    return it;
  }

  /** Calls the API as the page does. */
  async api(page, method, path, json) {
    const { status, body } = await page.evaluate(async ([method, path, json]) => {
      const answer = await fetch(path, {
        method, headers: { "X-Forkd-UI": localStorage.getItem("forkd-ui-proof"), "Content-Type": "application/json" }, body: json === null ? undefined : JSON.stringify(json),
      });
      const text = await answer.text();
      return { status: answer.status, body: text ? JSON.parse(text) : null };
    }, [method, path, json ?? null]);
    assert.ok(status < 300, `${method} ${path}: ${status} ${JSON.stringify(body)}`);
    return body;
  }

  async snapshot(page) {
    if (process.env.UI_SNAPSHOT) return process.env.UI_SNAPSHOT;
    const all = await this.api(page, "GET", "/v1/snapshots");
    return all.find((s) => s.bootable && s.status === "ready" && !s.transient).tag;
  }

  async fork(page, n = 1, more = {}) {
    return this.api(page, "POST", "/v1/sandboxes", { snapshot_tag: await this.snapshot(page), n, ...more });
  }

  async kill(page, ...ids) {
    for (const id of ids) await this.api(page, "DELETE", `/v1/sandboxes/${id}`).catch(() => {});
  }

  /** Fails with each violation that axe finds, and where. */
  async accessible(page, what) {
    await page.evaluate(this.#axe);
    const found = await page.evaluate(async () => {
      const r = await globalThis.axe.run(document, { resultTypes: ["violations"] });
      return r.violations.map((v) => `${v.id}: ${v.help}\n    ` + v.nodes.slice(0, 4).map((n) => `${n.target.join(" ")} ${n.any.map((a) => a.message).join("; ")}`).join("\n    "));
    });
    assert.deepEqual(found, [], `${what}: axe`);
  }

  /** Asserts that nothing went wrong on any page so far. */
  clean() {
    for (const { problems } of this.pages) assert.deepEqual(problems, []);
  }
}

/** Waits until a function returns something true. */
export async function until(what, f, limit = real ? 60_000 : 8_000) {
  const end = Date.now() + limit;
  for (;;) {
    const got = await f();
    if (got) return got;
    assert.ok(Date.now() < end, `waited in vain for ${what}`);
    await new Promise((r) => setTimeout(r, 50));
  }
}

export const row = (page, name) => page.locator(`[role=treeitem][data-key$=":${name}"]`);

/** Chooses an action in the menu of a row. */
export async function act(page, name, action) {
  await page.getByLabel("Filter", { exact: true }).fill(name);
  await row(page, name).locator(".dots").click();
  await page.getByRole("menuitem", { name: action }).click();
}
