// Prints the time per call of the client and of fetch, in one run against one local server.
import { Forkd } from "../dist/index.js";
import { json, serve } from "../test/daemon.mjs";

const rows = Array.from({ length: 5 }, (_, i) => ({ id: `sb-${i}`, snapshot_tag: "py", created_at_unix: 1, status: "running" }));
const daemon = await serve((r, a) => json(a, rows));
const client = new Forkd({ url: daemon.url, token: "0123456789abcdef" });
const calls = {
  fetch: async () => (await fetch(daemon.url + "/v1/sandboxes", { headers: { Authorization: "Bearer 0123456789abcdef" } })).json(),
  client: () => client.sandboxes.list(),
};
const times = { fetch: [], client: [] };
for (let i = 0; i < 2200; i++) {
  for (const [name, call] of Object.entries(calls)) {
    const begin = performance.now();
    await call();
    if (i >= 200) times[name].push(performance.now() - begin);
  }
}
const median = (t) => t.sort((a, b) => a - b)[t.length >> 1];
const [raw, ours] = [median(times.fetch), median(times.client)];
console.log(`median of 2000 calls: fetch ${raw.toFixed(3)} ms, client ${ours.toFixed(3)} ms, overhead ${(ours - raw).toFixed(3)} ms`);
await client.close();
await daemon.close();
