/** Connections to TCP ports of a guest, over HTTP upgrades. They need node:net, which Deno and Bun have too. */
import "./dispose.js";
import net from "node:net";
import type { Duplex } from "node:stream";
import { all, sandboxPath, type CallOptions, type Connection } from "./connection.js";
import { ForkdError, errorOfAnswer, make } from "./errors.js";
import { nodeTransport } from "./node-transport.js";

/** Milliseconds in which a daemon must answer the request for a connection. */
const CONNECT_LIMIT = 30_000;

/** Connects to a port of the guest. The caller ends the stream. */
export async function dial(connection: Connection, sandbox: string, port: number, o: CallOptions = {}): Promise<Duplex> {
  const address = await connection.address();
  const transport = nodeTransport(address);
  const headers: Record<string, string> = { Connection: "Upgrade", Upgrade: "forkd-tcp", ...connection.traceHeaders() };
  if (address.token) headers.Authorization = `Bearer ${address.token}`;
  const path = sandboxPath(sandbox, `/ports/${port}/connect`);
  return new Promise<Duplex>((resolve, reject) => {
    if (o.signal?.aborted) return reject(o.signal.reason);
    const request = transport.start({ method: "GET", path, headers });
    const stop = (): void => void request.destroy(o.signal?.reason as Error);
    o.signal?.addEventListener("abort", stop, { once: true });
    const timer = setTimeout(() => request.destroy(new Error(`no answer in ${CONNECT_LIMIT / 1000} s`)), CONNECT_LIMIT);
    const settled = (): void => {
      clearTimeout(timer);
      o.signal?.removeEventListener("abort", stop);
    };
    request.once("error", (e) => {
      settled();
      reject(o.signal?.aborted ? o.signal.reason
        : make(`GET ${path}: the connection to ${connection.url} broke: ${e.message}`, { code: "connection_broken" }));
    });
    request.once("response", (answer) => {
      let text = "";
      const done = (): void => {
        settled();
        reject(o.signal?.aborted ? o.signal.reason : errorOfAnswer(answer.statusCode ?? 0, text, true));
      };
      answer.setEncoding("utf8").on("data", (s: string) => text.length < 1 << 16 && (text += s));
      answer.once("end", done).once("close", done).once("error", done);
    });
    request.once("upgrade", (_, socket: Duplex, head: Uint8Array) => {
      settled();
      if (head.length > 0) socket.unshift(head);
      resolve(socket);
    });
    request.end();
  });
}

/** Sends data to a port of the guest, and returns all bytes until the other side closes. */
export async function exchange(connection: Connection, sandbox: string, port: number, data: Uint8Array,
  o: CallOptions & { timeoutMs?: number; maxBytes?: number }): Promise<Uint8Array> {
  const { signal, timeoutMs = 30_000, maxBytes = 256 << 20 } = o;
  const stream = await dial(connection, sandbox, port, o);
  const where = `port ${port} of ${sandbox}`;
  let cause: unknown;
  const leave = (why: unknown): void => {
    cause ??= why;
    stream.destroy(why as Error);
  };
  const stop = (): void => leave(signal?.reason);
  if (signal?.aborted) stop();
  signal?.addEventListener("abort", stop, { once: true });
  const silent = (): void => leave(make(`${where} sent nothing for ${timeoutMs / 1000} s`, { code: "timeout" }));
  let timer: ReturnType<typeof setTimeout> | undefined;
  const renew = (): void => {
    clearTimeout(timer);
    if (timeoutMs > 0 && timeoutMs < 2 ** 31) timer = setTimeout(silent, timeoutMs);
  };
  renew();
  stream.on("error", () => {}); // the reader gets it
  try {
    stream.end(data);
    return await all(renewed(), maxBytes, `the answer of ${where}`, "read it in pieces with dial, or give a higher maxBytes");
  } catch (e) {
    if (cause) throw cause;
    if (e instanceof ForkdError) throw e;
    throw make(`the connection to ${where} broke: ${(e as Error).message}`, { code: "connection_broken", reason: "maybe_done" });
  } finally {
    clearTimeout(timer);
    signal?.removeEventListener("abort", stop);
    stream.destroy();
  }

  async function* renewed(): AsyncGenerator<Uint8Array> {
    for await (const chunk of stream) {
      renew();
      yield chunk as Uint8Array;
    }
  }
}

/** Listens on this host's loopback, and forwards to a port of the guest. */
export class PortForward implements AsyncDisposable {
  readonly host = "127.0.0.1";
  readonly #server: net.Server;
  readonly #open = new Set<Duplex>();

  private constructor(server: net.Server, /** Port on this host. */ readonly port: number, open: Set<Duplex>) {
    this.#server = server;
    this.#open = open;
  }

  /** @internal */
  static async listen(connection: Connection, sandbox: string, port: number, localPort = 0): Promise<PortForward> {
    const open = new Set<Duplex>();
    const keep = (s: Duplex): void => {
      open.add(s);
      s.once("close", () => open.delete(s)).on("error", () => s.destroy());
    };
    const server = net.createServer({ allowHalfOpen: true }, (local) => {
      keep(local);
      dial(connection, sandbox, port).then((remote) => {
        keep(remote);
        local.pipe(remote).pipe(local);
        local.once("close", () => remote.destroy());
        remote.once("close", () => local.end());
      }, () => local.destroy());
    });
    await new Promise<void>((resolve, reject) => server.once("error", reject).listen(localPort, "127.0.0.1", resolve));
    return new PortForward(server, (server.address() as net.AddressInfo).port, open);
  }

  /** The address on this host, such as 127.0.0.1:41234. */
  get address(): string {
    return `${this.host}:${this.port}`;
  }

  /** Closes the listener and all connections. */
  async close(): Promise<void> {
    for (const s of this.#open) s.destroy();
    await new Promise<void>((resolve) => this.#server.close(() => resolve()));
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }
}
