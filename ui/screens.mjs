// Writes the pictures of docs/use/ui.md, from the mock: npm run screens.
import { mkdir } from "node:fs/promises";
import { fileURLToPath } from "node:url";
import { chromium } from "playwright-core";
import { KEY, start } from "./mock/server.mjs";
import { idOf } from "./mock/world.mjs";

const to = fileURLToPath(new URL("../docs/img/", import.meta.url));
await mkdir(to, { recursive: true });
const mock = await start(0);
const browser = await chromium.launch({ executablePath: process.env.UI_BROWSER ?? "/usr/bin/chromium", args: ["--no-sandbox"] });
const page = await browser.newPage({ viewport: { width: 1280, height: 760 }, colorScheme: "light" });
await page.goto(`${mock.url}/ui/`);
await page.getByLabel("Key or token").fill(KEY);
await page.getByRole("button", { name: "Log in" }).click();
await page.locator(".row").first().waitFor();
await page.waitForTimeout(500);
await page.screenshot({ path: `${to}ui-tree.png` });

await page.goto(`${mock.url}/ui/#/sandbox/${idOf(4, 1)}`);
await page.getByRole("tab", { name: "Terminal" }).click();
await page.waitForTimeout(1500);
await page.screenshot({ path: `${to}ui-sandbox.png` });
await browser.close();
process.exit(0);
