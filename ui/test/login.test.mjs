import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { Stage } from "./harness.mjs";

const stage = new Stage();
before(() => stage.begin());
after(() => stage.end());

test("a wrong key is refused with a text that screen readers announce", async () => {
  const { page } = await stage.open();
  await page.goto(`${stage.origin}/ui/`);
  await page.getByLabel("Key or token").fill("wrong");
  await page.getByRole("button", { name: "Log in" }).click();
  const error = page.locator("#key-error");
  await error.filter({ hasText: "not valid" }).waitFor();
  assert.equal(await error.getAttribute("aria-live"), "assertive");
  assert.equal(await page.getByLabel("Key or token").getAttribute("type"), "password");
});

test("a login outlives a reload, and the key is nowhere in the page", async () => {
  const { page, context } = await stage.enter();
  await page.reload();
  await page.getByRole("heading", { level: 1, name: "Fork tree" }).waitFor();
  const kept = await page.evaluate(() => JSON.stringify([{ ...localStorage }, { ...sessionStorage }, document.cookie, location.href, document.documentElement.outerHTML]));
  assert.ok(!kept.includes(stage.key), "the key is in the page");
  const cookies = await context.cookies();
  assert.ok(cookies.length > 0 && cookies.every((c) => c.httpOnly && c.sameSite === "Strict"), JSON.stringify(cookies));
});

test("the cookie alone is no session", async () => {
  const { page, expected } = await stage.enter();
  expected.push(/\/v1\/sandboxes$/);
  const status = await page.evaluate(async () => {
    const all = [];
    for (const proof of [undefined, "1", "none"]) {
      const answer = await fetch("/v1/sandboxes", proof ? { headers: { "X-Forkd-UI": proof } } : {});
      all.push(answer.status);
    }
    return all;
  });
  assert.deepEqual(status, [401, 401, 401]);
});

test("logging out ends the session", async () => {
  const { page } = await stage.enter();
  await page.getByRole("button", { name: "Log out" }).click();
  await page.getByLabel("Key or token").waitFor();
  await page.reload();
  await page.getByLabel("Key or token").waitFor();
});

test("a session that has ended leads back to the login form", async () => {
  const { page, context, expected } = await stage.enter();
  expected.push(/\/v1\//);
  await context.clearCookies();
  await stage.go(page, "#/limits");
  await page.getByLabel("Key or token").waitFor();
});

test("the page's policy admits nothing from elsewhere", async () => {
  const { page } = await stage.open();
  const answer = await page.goto(`${stage.origin}/ui/`);
  const policy = answer.headers()["content-security-policy"] ?? "";
  for (const part of ["default-src 'none'", "script-src 'self'", "connect-src 'self'", "frame-ancestors 'none'"]) {
    assert.ok(policy.includes(part), `${part} is not in ${policy}`);
  }
  assert.ok(!policy.includes("unsafe-eval"));
});

test("no page had an error", () => stage.clean());
