import { after, before, test } from "node:test";
import { Stage, act } from "./harness.mjs";

const stage = new Stage();
const tag = `ui-axe-${Date.now()}`;
let ids;
let from;
let owner;
before(async () => {
  await stage.begin();
  ({ page: owner } = await stage.enter());
  from = await stage.snapshot(owner);
  ids = (await stage.fork(owner, 2, { net: "public" })).map((s) => s.id);
  await stage.api(owner, "POST", `/v1/sandboxes/${ids[0]}/branch`, { tag });
});
after(async () => {
  await stage.kill(owner, ...ids);
  await stage.api(owner, "DELETE", `/v1/snapshots/${tag}`).catch(() => {});
  await stage.end();
});

const views = () => [
  ["#/", "[role=treeitem]"],
  ["#/limits", "[role=meter]"],
  [`#/compare/${from}/${tag}`, "text=compared in"],
  [`#/compare/${ids[0]}/${ids[1]}`, `text=Changed in ${ids[1]}`],
  [`#/snapshot/${tag}`, "text=Steps of the daemon"],
  [`#/sandbox/${ids[0]}/overview`, "text=Guest memory"],
  [`#/sandbox/${ids[0]}/receipt`, "text=Random digest"],
  [`#/sandbox/${ids[0]}/console`, ".output"],
  [`#/sandbox/${ids[0]}/terminal`, "text=Shift+Esc"],
  [`#/sandbox/${ids[0]}/files`, "table.files"],
  [`#/sandbox/${ids[0]}/network`, "text=Open connections"],
];

for (const colorScheme of ["light", "dark"]) {
  for (const [size, viewport] of [["wide", { width: 1440, height: 900 }], ["narrow", { width: 400, height: 800 }]]) {
    test(`axe finds nothing: ${colorScheme}, ${size}`, async (t) => {
      const { page, expected } = await stage.open({ colorScheme, viewport });
      await page.goto(`${stage.origin}/ui/`);
      await page.getByLabel("Key or token").waitFor();
      await t.test("login", () => stage.accessible(page, "login"));
      await stage.logIn(page);
      for (const [hash, ready] of views()) {
        await t.test(hash, async () => {
          await stage.go(page, hash);
          await page.locator(ready).first().waitFor();
          await page.waitForTimeout(300);
          await stage.accessible(page, hash);
        });
      }
      await t.test("menu, dialog, error", async () => {
        expected.push(/\/branch$/);
        await stage.go(page, "#/");
        await act(page, ids[0], "Branch …");
        await stage.accessible(page, "dialog");
        await page.getByRole("dialog").getByLabel("Name of the snapshot").fill(tag);
        await page.getByRole("dialog").getByRole("button", { name: "Branch" }).click();
        await page.locator(".toast.error").waitFor();
        await stage.accessible(page, "error in a dialog");
        await page.keyboard.press("Escape");
        await page.locator(`[data-key="b:${ids[0]}"] .dots`).click();
        await page.getByRole("menu").waitFor();
        await stage.accessible(page, "menu");
      });
    });
  }
}

test("no page had an error", () => stage.clean());
