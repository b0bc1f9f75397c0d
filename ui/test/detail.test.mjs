import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { after, before, test } from "node:test";
import { Stage, real, until } from "./harness.mjs";

const stage = new Stage();
let page;
let expected;
let id;
before(async () => {
  await stage.begin();
  ({ page, expected } = await stage.enter());
  [{ id }] = await stage.fork(page, 1, { net: "public" });
});
after(async () => {
  await stage.kill(page, id);
  await stage.end();
});

const tab = async (name) => {
  await page.getByRole("tab", { name }).click();
  await page.getByRole("tabpanel", { name }).waitFor();
};

test("overview", async () => {
  await stage.go(page, `#/sandbox/${id}`);
  await page.getByRole("heading", { level: 1, name: id }).waitFor();
  const panel = page.getByRole("tabpanel");
  await panel.getByText("Guest memory").waitFor();
  assert.match(await panel.textContent(), new RegExp(await stage.snapshot(page)));
});

test("tabs move with the arrow keys", async () => {
  await page.getByRole("tab", { name: "Overview" }).focus();
  await page.keyboard.press("ArrowRight");
  await page.getByRole("tab", { name: "Receipt", selected: true }).waitFor();
  assert.equal(await page.evaluate(() => document.activeElement?.id), "tab-receipt");
});

test("receipt", async () => {
  await page.getByText("Random digest").waitFor();
  await page.getByRole("rowheader", { name: "identity" }).first().waitFor();
});

test("console, followed", async () => {
  await tab("Console");
  if (real) { // a fork prints nothing by itself
    const args = ["sh", "-c", "printf 'from \\033[1mthe guest\\n' > /dev/console"];
    await stage.api(page, "POST", `/v1/sandboxes/${id}/exec`, { args, user: "root" });
  }
  await until("output", async () => (await page.getByLabel("Output of the console").textContent()) !== "No output yet.");
  const text = await page.getByLabel("Output of the console").textContent();
  assert.ok(!text.includes("\u001b"), "an escape sequence is shown");
});

test("terminal: input, output, size, end", async () => {
  await tab("Terminal");
  const screen = () => page.locator(".xterm-rows").evaluate((el) => [...el.children].map((r) => r.textContent.replace(/\u00a0/g, " ").trimEnd()).join("\n"));
  await page.getByText("Shift+Esc leaves the terminal.").waitFor();
  await page.locator(".xterm-helper-textarea").focus();
  await page.keyboard.type("echo forkd-works\n", { delay: 5 });
  await until("the output", async () => /^forkd-works$/m.test(await screen()));
  await page.keyboard.type("stty size\n");
  const size = await until("the size", async () => /^(\d+) (\d+)$/m.exec(await screen()));
  assert.ok(Number(size[2]) > 60, `the terminal has ${size[2]} columns`);
  await page.setViewportSize({ width: 1200, height: 700 });
  await page.waitForTimeout(500);
  await page.keyboard.type("stty size\n");
  await until("another size", async () => {
    const all = [...(await screen()).matchAll(/^(\d+) (\d+)$/gm)];
    return all.length > 1 && all.at(-1)[2] !== size[2];
  });
  await page.setViewportSize({ width: 1440, height: 900 });
  await page.keyboard.press("Shift+Escape");
  assert.equal(await page.evaluate(() => document.activeElement?.id), "tab-terminal");
  await page.locator(".xterm-helper-textarea").focus();
  await page.keyboard.type("exit\n");
  await page.getByText("The shell has ended.").waitFor();
  await page.getByRole("button", { name: "New shell" }).click();
  await page.getByText("Shift+Esc leaves the terminal.").waitFor();
});

test("files: upload, list, view, download", async () => {
  await tab("Files");
  await page.getByLabel("Folder").fill("/tmp");
  await page.getByRole("button", { name: "Go" }).click();
  const text = "Grüße from the page\n";
  await page.locator("input[type=file]").setInputFiles([
    { name: "ui-test.txt", mimeType: "text/plain", buffer: Buffer.from(text) },
    { name: "ui-test.bin", mimeType: "application/octet-stream", buffer: Buffer.from([0, 159, 146, 150]) },
    { name: "ui-test.big", mimeType: "text/plain", buffer: Buffer.alloc(1.5 * 2 ** 20, "x") },
  ]);
  await page.locator(".toast.done").filter({ hasText: "Uploaded ui-test.big" }).waitFor();
  await page.getByRole("button", { name: "ui-test.txt", exact: true }).click();
  await until("the text", async () => (await page.getByLabel("Content of ui-test.txt").textContent()) === text);
  const [download] = await Promise.all([page.waitForEvent("download"), page.getByRole("button", { name: "Download" }).click()]);
  assert.equal(download.suggestedFilename(), "ui-test.txt");
  assert.equal(await readFile(await download.path(), "utf8"), text);
  await page.getByRole("button", { name: "Back to the folder" }).click();
  await page.getByRole("button", { name: "ui-test.bin", exact: true }).click();
  await page.getByText("This file is no text").waitFor();
  await page.getByRole("button", { name: "Back to the folder" }).click();
  await page.getByRole("button", { name: "ui-test.big", exact: true }).click();
  await page.getByText("more than 1 MiB").waitFor();
  await page.getByRole("button", { name: "Parent folder" }).click();
  await page.getByRole("button", { name: "etc/" }).waitFor();
});

test("a folder that is not there is an error", async () => {
  expected.push(/\/agent\//);
  await page.getByLabel("Folder").fill("/no/such/folder");
  await page.getByRole("button", { name: "Go" }).click();
  await page.getByRole("alert").waitFor();
});

test("network: policy, flows, log, change", async () => {
  await tab("Network");
  await page.getByRole("heading", { name: "Open connections" }).waitFor();
  await page.getByRole("heading", { name: "Log" }).waitFor();
  if (!real) {
    await page.getByRole("cell", { name: "pypi.org", exact: true }).first().waitFor();
    await page.getByText("no rule allows example.com:443").waitFor();
  }
  await page.getByRole("button", { name: "Change …" }).click();
  await page.getByRole("dialog").getByLabel("Connections without a rule").selectOption("deny");
  await page.getByRole("dialog").getByLabel("Allow", { exact: true }).fill("pypi.org:443\nexample.org:80");
  await page.getByRole("dialog").getByRole("button", { name: "Change" }).click();
  await page.locator(".rules").getByText("example.org:80").waitFor();
});

test("a bad rule is an error with a hint", async () => {
  expected.push(/\/network$/);
  await page.getByRole("button", { name: "Change …" }).click();
  await page.getByRole("dialog").getByLabel("Allow", { exact: true }).fill("!!");
  await page.getByRole("dialog").getByRole("button", { name: "Change" }).click();
  await page.getByRole("dialog").getByText("A rule is host").waitFor();
  await page.keyboard.press("Escape");
});

test("a sandbox that is not there", async () => {
  expected.push(/sb-none/);
  await stage.go(page, "#/sandbox/sb-none");
  await page.getByRole("alert").filter({ hasText: "not found" }).waitFor();
});

test("snapshot", async () => {
  expected.push(/\/receipt$/); // a snapshot from elsewhere has none
  const tag = await stage.snapshot(page);
  await stage.go(page, `#/snapshot/${tag}`);
  await page.getByRole("heading", { level: 1, name: tag }).waitFor();
  await page.getByRole("heading", { name: "Size" }).waitFor();
  await page.getByRole("link", { name: id }).or(page.getByText("more", { exact: false })).first().waitFor();
});

test("no page had an error", () => stage.clean());
