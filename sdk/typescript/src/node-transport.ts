/**
 * HTTP by node:http, for Unix sockets, pinned certificates, upgrades, and answers that take longer than fetch waits.
 * The package loads this module only if it is needed; Deno and Bun have the same modules.
 */
import { readFileSync } from "node:fs";
import http from "node:http";
import https from "node:https";
import tls from "node:tls";
import type { Socket } from "node:net";
import type { Address } from "./address.js";
import { make } from "./errors.js";
import type { Transport, WireAnswer, WireRequest } from "./transport.js";

/** Returns a transport without a limit of silence. */
export function nodeTransport(address: Address): NodeTransport {
  return new NodeTransport(address);
}

/** Sends requests by node:http. */
export class NodeTransport implements Transport {
  readonly #agent: http.Agent;
  readonly #options: http.RequestOptions;
  readonly #module: typeof http | typeof https;

  constructor(address: Address) {
    const secure = address.url.startsWith("https:");
    this.#module = secure ? https : http;
    const options = { keepAlive: true, ...(secure ? clientCertificate(address) : {}) };
    this.#agent = secure && address.fingerprint ? pinned(address, options) : new this.#module.Agent(options);
    this.#options = { agent: this.#agent, ...place(address.url) };
  }

  /** Starts a request. The caller sets its headers by options. */
  start(r: Pick<WireRequest, "method" | "path" | "headers">): http.ClientRequest {
    return this.#module.request({ ...this.#options, method: r.method, path: r.path, headers: r.headers });
  }

  send(r: WireRequest): Promise<WireAnswer> {
    return new Promise((resolve, reject) => {
      if (r.signal.aborted) return reject(r.signal.reason);
      const headers = { ...r.headers };
      if (typeof r.body === "string") headers["Content-Length"] = String(Buffer.byteLength(r.body));
      else if (r.body instanceof Uint8Array) headers["Content-Length"] = String(r.body.length);
      else if (r.method === "POST" && !r.body) headers["Content-Length"] = "0";
      const request = this.start({ ...r, headers });
      const stop = (): void => void request.destroy(r.signal.reason as Error);
      r.signal.addEventListener("abort", stop, { once: true });
      request.once("close", () => r.signal.removeEventListener("abort", stop));
      request.once("error", reject);
      request.once("response", (answer) => resolve({
        status: answer.statusCode ?? 0,
        header: (name) => String(answer.headers[name.toLowerCase()] ?? ""),
        body: pieces(answer),
      }));
      write(request, r.body).catch((e: Error) => request.destroy(e));
    });
  }

  close(): void {
    this.#agent.destroy();
  }
}

async function* pieces(answer: http.IncomingMessage): AsyncGenerator<Uint8Array> {
  try {
    for await (const chunk of answer) yield chunk as Uint8Array;
    if (!answer.complete) throw new Error("the answer broke off");
  } finally {
    answer.destroy();
  }
}

async function write(request: http.ClientRequest, body: WireRequest["body"]): Promise<void> {
  if (body === undefined || typeof body === "string" || body instanceof Uint8Array) {
    request.end(body);
    return;
  }
  for await (const chunk of body) {
    if (request.destroyed) return;
    if (!request.write(chunk)) await drained(request);
  }
  request.end();
}

const drained = (r: http.ClientRequest): Promise<void> => new Promise((resolve) => {
  const go = (): void => {
    r.off("drain", go).off("close", go);
    resolve();
  };
  r.once("drain", go).once("close", go);
});

function place(url: string): http.RequestOptions {
  if (url.startsWith("unix://")) return { socketPath: decodeURI(url.slice(7)), host: "forkd" };
  const u = new URL(url);
  return { host: u.hostname.replace(/^\[|\]$/g, ""), port: u.port || (u.protocol === "https:" ? 443 : 80) };
}

/** Reads the client's certificate, if it has one. */
function clientCertificate(address: Address): Pick<https.AgentOptions, "cert" | "key"> {
  if (!address.clientCert && !address.clientKey) return {};
  if (!address.clientCert || !address.clientKey) {
    throw make("a client certificate needs both its file and its key", {
      code: "invalid_request", hint: "set tlsClientCert and tlsClientKey, or FORKD_TLS_CLIENT_CERT and FORKD_TLS_CLIENT_KEY",
    });
  }
  try {
    return { cert: readFileSync(address.clientCert), key: readFileSync(address.clientKey) };
  } catch (e) {
    throw make(`read the client certificate: ${(e as Error).message}`, { code: "invalid_request" });
  }
}

/** Returns an agent that sends nothing before it has compared the certificate's SHA-256. */
function pinned(address: Address, options: https.AgentOptions): https.Agent {
  const agent = new https.Agent(options);
  type Done = (e: Error | null, s?: Socket) => void;
  (agent as unknown as { createConnection(o: tls.ConnectionOptions, done: Done): undefined }).createConnection = (o, done) => {
    const socket = tls.connect({ ...o, rejectUnauthorized: false });
    socket.once("error", done);
    socket.once("secureConnect", () => {
      const got = (socket.getPeerCertificate().fingerprint256 ?? "").replaceAll(":", "").toLowerCase();
      socket.off("error", done);
      if (got === address.fingerprint) return done(null, socket);
      socket.destroy();
      done(make(`the certificate of ${address.url} has the SHA-256 ${got}, want ${address.fingerprint}`,
        { code: "unreachable", reason: "tls_untrusted" }));
    });
    return undefined;
  };
  return agent;
}
