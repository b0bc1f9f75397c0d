// A daemon without virtual machines, to develop and test the page: `node mock/server.mjs [PORT]`. The operator's key is "mock-key",
// a tenant's "tenant-key".
import { randomUUID } from "node:crypto";
import { readFile } from "node:fs/promises";
import { createServer } from "node:http";
import { fileURLToPath } from "node:url";
import { Agent } from "./agent.mjs";
import { routesOf } from "./routes.mjs";
import { Refusal, World } from "./world.mjs";

export const KEY = "mock-key";
export const TENANT_KEY = "tenant-key";

const users = {
  [KEY]: { name: "operator", tenant: "", admin: true },
  [TENANT_KEY]: { name: "ci", tenant: "acme", admin: false },
};

const dist = new URL("../../internal/api/ui/dist/", import.meta.url);
const types = { html: "text/html; charset=utf-8", js: "text/javascript; charset=utf-8", css: "text/css; charset=utf-8", txt: "text/plain; charset=utf-8" };

const CSP = "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; connect-src 'self'; " +
  "font-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'";

/** Starts the mock, and returns its address and a function that stops it. */
export async function start(port = 0, count = 1000) {
  const world = new World(count);
  const routes = routesOf(world, new Agent()).map(([method, pattern, act]) => ({ method, match: matcher(pattern), act }));
  const sessions = new Map();
  const server = createServer((request, answer) => {
    handle(request, answer, { routes, sessions }).catch((e) => refuse(answer, e));
  });
  await new Promise((r) => server.listen(port, "127.0.0.1", r));
  return {
    url: `http://127.0.0.1:${server.address().port}`, world,
    stop: () => new Promise((r) => { server.close(r); server.closeAllConnections(); }),
  };
}

function matcher(pattern) {
  const source = pattern.replace(/:(\w+)/g, "(?<$1>[^/]+)").replace(/\*$/, "(?<rest>.+)");
  const expression = new RegExp(`^${source}$`);
  return (path) => expression.exec(path)?.groups ?? (expression.test(path) ? {} : null);
}

async function handle(request, answer, { routes, sessions }) {
  const url = new URL(request.url, "http://mock");
  const raw = await bodyOf(request);
  if (url.pathname === "/ui/session") return session(request, answer, sessions, raw);
  if (url.pathname === "/ui") return answer.writeHead(308, { Location: "/ui/" }).end();
  if (url.pathname.startsWith("/ui/")) return file(answer, url.pathname.slice(4) || "index.html");
  const user = userOf(request, sessions);
  if (!user) throw new Refusal(401, "unauthorized", "a token or key is required");
  for (const { method, match, act } of routes) {
    const at = (method === "*" || method === request.method) && match(url.pathname);
    if (!at) continue;
    for (const name in at) at[name] = decodeURIComponent(at[name]);
    const isJSON = (request.headers["content-type"] ?? "").startsWith("application/json");
    const body = isJSON && raw.length ? JSON.parse(raw.toString()) : {};
    return act({ user, request, answer, at: at ?? {}, query: url.searchParams, raw, body });
  }
  throw new Refusal(404, "not_found", `no route ${request.method} ${url.pathname}`);
}

function session(request, answer, sessions, raw) {
  if (request.method === "GET") {
    const user = userOf(request, sessions);
    if (!user) return answer.writeHead(204).end();
    answer.setHeader("Content-Type", "application/json");
    return answer.end(JSON.stringify(user));
  }
  if (request.method === "DELETE") {
    sessions.delete(cookieOf(request));
    return answer.writeHead(204, { "Set-Cookie": "forkd-ui=; Path=/; Max-Age=0; HttpOnly; SameSite=Strict" }).end();
  }
  const user = users[JSON.parse(raw.toString() || "{}").key];
  if (!user) throw new Refusal(401, "unauthorized", "the key is unknown, revoked or expired");
  const made = randomUUID();
  const proof = randomUUID();
  sessions.set(made, { user, proof });
  answer.writeHead(200, { "Set-Cookie": `forkd-ui=${made}; Path=/; HttpOnly; SameSite=Strict`, "Content-Type": "application/json" });
  answer.end(JSON.stringify({ proof }));
}

/** The user of a session with both secrets: the cookie and the header. */
function userOf(request, sessions) {
  const session = sessions.get(cookieOf(request));
  return session && request.headers["x-forkd-ui"] === session.proof ? session.user : undefined;
}

const cookieOf = (request) => /(?:^|; )forkd-ui=([^;]+)/.exec(request.headers.cookie ?? "")?.[1] ?? "";

async function file(answer, name) {
  if (name.includes("..")) throw new Refusal(404, "not_found", "no such file");
  let data;
  try {
    data = await readFile(fileURLToPath(new URL(name, dist)));
  } catch {
    throw new Refusal(404, "not_found", "no such file");
  }
  answer.writeHead(200, {
    "Content-Type": types[name.split(".").at(-1)] ?? "application/octet-stream", "Content-Security-Policy": CSP,
    "X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer", "Cache-Control": "no-cache",
  });
  answer.end(data);
}

async function bodyOf(request) {
  const chunks = [];
  for await (const chunk of request) chunks.push(chunk);
  return Buffer.concat(chunks);
}

function refuse(answer, e) {
  if (answer.headersSent) return answer.destroy();
  const known = e instanceof Refusal;
  if (!known) console.error(e);
  answer.writeHead(known ? e.status : 500, { "Content-Type": "application/json" });
  answer.end(JSON.stringify({
    error: e.message, code: known ? e.code : "internal", request_id: randomUUID().replaceAll("-", "").slice(0, 16),
    ...(e.reason ? { reason: e.reason } : {}), ...(e.details ? { details: e.details } : {}),
  }));
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const { url } = await start(Number(process.argv[2] ?? 8899));
  console.log(`${url}/ui/ with the key ${KEY}`);
}
