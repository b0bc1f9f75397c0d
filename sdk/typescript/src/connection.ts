/** Requests to one daemon: JSON, lines, streams, and the Connect protocol of the guests' agents. */
import { findAddress, knownAddress, shownUrl, type Address, type AddressOptions } from "./address.js";
import { concat, decodeText, encodeText } from "./bytes.js";
import { ForkdError, errorOf, errorOfAnswer, make } from "./errors.js";
import { beyondFetch, transportOf, type Body, type Transport, type WireAnswer } from "./transport.js";
import { VERSION } from "./version.js";

/** Longest answer that is read at once, in bytes. */
const MAX_ANSWER = 256 << 20;
/** Longest message of an agent, and longest line of a stream, in bytes. */
const MAX_MESSAGE = 64 << 20;
/** Seconds without output after which an agent's stream carries a keepalive message. */
const KEEPALIVE = 30;

/** Options of every call that sends requests. */
export interface CallOptions {
  /** Cancels the call. The promise is rejected with its reason. */
  signal?: AbortSignal;
}

/** Options of one request. */
export interface RequestOptions extends CallOptions {
  json?: unknown;
  body?: Body;
  query?: Record<string, string | number | boolean | readonly string[] | undefined | null>;
  headers?: Record<string, string>;
  /** Milliseconds. For a stream: without a byte; 0 means no limit. */
  timeout?: number;
}

/**
 * A W3C traceparent, or a function that returns the one of the current span. The function may also return a propagator's
 * carrier, with traceparent and tracestate.
 */
export type TraceParent = string | (() => string | { traceparent?: string; tracestate?: string } | undefined);

const isTraceState = (s: string): boolean => /^[ -~]{1,512}$/.test(s);
const isTraceParent = (s: string): boolean => /^[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$/.test(s);

/** Sends requests to one daemon. Neither inspect nor JSON shows its token. */
export class Connection {
  readonly #options: AddressOptions;
  readonly #timeout: number;
  readonly #retry: number;
  readonly #trace: TraceParent | undefined;
  readonly #fetch: typeof fetch;
  #address: Address | undefined;
  #ready: Promise<Transport> | undefined;
  #patient: Promise<Transport> | undefined;
  #closed = false;

  constructor(options: AddressOptions & { timeout?: number; retryFor?: number; fetch?: typeof fetch; traceparent?: TraceParent }) {
    this.#options = options;
    this.#timeout = options.timeout ?? 60_000;
    this.#retry = options.retryFor ?? 3_000;
    this.#trace = options.traceparent;
    if (typeof this.#trace === "string" && !isTraceParent(this.#trace)) {
      throw make(`${JSON.stringify(this.#trace.slice(0, 100))} is no traceparent`, {
        code: "invalid_request", hint: "the form is 00-TRACE_ID-SPAN_ID-FLAGS, in lowercase hex",
      });
    }
    this.#fetch = options.fetch ?? ((...a: Parameters<typeof fetch>) => globalThis.fetch(...a));
    this.#address = knownAddress(options);
  }

  /** The daemon's URL, without secrets. It is empty before the first request, if the program forkd is asked. */
  get url(): string {
    return this.#address ? shownUrl(this.#address.url) : "";
  }

  /** Returns the headers that continue the caller's trace, if there is one. A value of another form is not sent. */
  traceHeaders(): Record<string, string> {
    const value = typeof this.#trace === "function" ? this.#trace() : this.#trace;
    const { traceparent, tracestate } = typeof value === "object" && value !== null ? value : { traceparent: value };
    if (typeof traceparent !== "string" || !isTraceParent(traceparent)) return {};
    return typeof tracestate === "string" && isTraceState(tracestate) ? { traceparent, tracestate } : { traceparent };
  }

  /** Finds the daemon, and returns its address. */
  async address(): Promise<Address> {
    return this.#address ??= await findAddress(this.#options);
  }

  /** Closes idle connections, and refuses further requests. */
  close(): void {
    this.#closed = true;
    for (const t of [this.#ready, this.#patient]) void t?.then((x) => x.close(), () => {});
  }

  async #transport(timeout: number): Promise<Transport> {
    if (this.#closed) throw make("the client is closed", { code: "invalid_request" });
    if (beyondFetch(timeout)) {
      return this.#patient ??= this.address().then(async (a) => (await import("./node-transport.js")).nodeTransport(a));
    }
    this.#ready ??= this.address().then((a) => transportOf(a, this.#fetch));
    try {
      return await this.#ready;
    } catch (e) {
      this.#ready = undefined; // the daemon may be found the next time
      throw e;
    }
  }

  /** Sends one request, and returns the decoded answer: JSON, text, or undefined if it is empty. */
  async call(method: string, path: string, options: RequestOptions = {}): Promise<unknown> {
    return (await this.exchange(method, path, options)).value;
  }

  /** Is call, with the answer's headers. */
  async exchange(method: string, path: string, options: RequestOptions = {}):
    Promise<{ value: unknown; header: (name: string) => string }> {
    const scope = new Scope(options.signal, options.timeout ?? this.#timeout);
    try {
      const answer = await this.#begin(method, path, options, scope);
      const text = await this.#read(answer, method, path, scope);
      return { value: decoded(text, answer, method, path), header: answer.header };
    } catch (e) {
      if (uploads(options)) scope.cancel();
      throw e;
    } finally {
      scope.end();
    }
  }

  async #read(answer: WireAnswer, method: string, path: string, scope: Scope): Promise<string> {
    try {
      const size = answer.header("content-length");
      // Node does not always settle a read of an answer whose last bytes arrive together with the abort of its signal.
      if (answer.text && size && Number(size) <= MAX_ANSWER) return await scope.race(answer.text());
      return decodeText(await scope.race(all(answer.body, MAX_ANSWER, `the answer to ${method} ${path}`)));
    } catch (e) {
      throw this.#broken(method, path, e, scope, false);
    }
  }

  /** Sends a request until an answer begins, and throws if the answer is an error. */
  async #begin(method: string, path: string, o: RequestOptions, scope: Scope): Promise<WireAnswer> {
    const headers: Record<string, string> = {
      "User-Agent": `forkd-typescript/${VERSION}`, ...this.traceHeaders(), ...o.headers,
    };
    let fault: { error: unknown } | undefined;
    let body = uploads(o) ? watched(o.body, (error) => { fault = { error }; }) : o.body;
    if (o.json !== undefined) {
      body = JSON.stringify(o.json);
      headers["Content-Type"] ??= "application/json";
    }
    const full = path + queryOf(o.query);
    const until = Date.now() + this.#retry;
    for (let wait = 50; ; wait = Math.min(wait * 2, 1000)) {
      let answer: WireAnswer;
      try {
        const transport = await scope.race(this.#transport(scope.limit || (o.timeout === 0 ? Infinity : 0)));
        if (this.#address?.token) headers.Authorization = `Bearer ${this.#address.token}`;
        answer = await transport.send({ method, path: full, headers, body, signal: scope.signal });
      } catch (e) {
        if (fault) throw fault.error; // of the caller's source, however the runtime wraps it
        const error = this.#broken(method, path, e, scope, true);
        const again = method === "GET" && !scope.signal.aborted && isLink(error) && Date.now() + wait < until;
        if (!again) throw error;
        await scope.sleep(wait);
        continue;
      }
      if (answer.status >= 200 && answer.status < 300) return answer;
      const text = decodeText(await all(answer.body, 1 << 20, "").catch(() => new Uint8Array()));
      throw errorOfAnswer(answer.status, text, !path.includes("/agent/") || answer.header("forkd-error") !== "");
    }
  }

  #broken(method: string, path: string, e: unknown, scope: Scope, connecting: boolean): unknown {
    if (e instanceof ForkdError) return e;
    const at = this.url || "the daemon";
    const reason = method === "GET" ? "" : "maybe_done";
    if (scope.timedOut) {
      return make(`${method} ${path}: ${at} did not answer in ${scope.limit / 1000} s`, { code: "connection_broken", reason });
    }
    if (scope.signal.aborted) return scope.signal.reason;
    const text = causeText(e);
    if (connecting && unconnected.test(text)) {
      return make(`no daemon answers at ${at}: ${text}`, { code: "unreachable" });
    }
    return make(`${method} ${path}: the connection to ${at} broke: ${text}`, { code: "connection_broken", reason });
  }

  /** Yields the bytes of an answer. Leaving the iteration ends the request. */
  async *bytes(method: string, path: string, options: RequestOptions = {}): AsyncGenerator<Uint8Array> {
    for await (const chunk of (await this.open(method, path, options)).body) yield chunk;
  }

  /** Sends a request, and returns the answer with its body open. The body must be read or left. */
  async open(method: string, path: string, options: RequestOptions = {}): Promise<WireAnswer> {
    const silence = options.timeout ?? this.#timeout;
    const scope = new Scope(options.signal, silence);
    try {
      const answer = await this.#begin(method, path, options, scope);
      return { ...answer, text: undefined, body: this.#body(answer, method, path, scope) };
    } catch (e) {
      if (uploads(options)) scope.cancel();
      scope.end();
      throw e;
    }
  }

  async *#body(answer: WireAnswer, method: string, path: string, scope: Scope): AsyncGenerator<Uint8Array> {
    const it = answer.body[Symbol.asyncIterator]();
    let whole = false;
    try {
      for (;;) {
        scope.restart();
        let step: IteratorResult<Uint8Array>;
        try {
          step = await scope.race(it.next());
        } catch (e) {
          throw this.#broken(method, path, e, scope, false);
        }
        scope.pause(); // the reader's own time is not silence
        if (step.done) {
          whole = true;
          return;
        }
        yield step.value;
      }
    } finally {
      if (!whole) scope.cancel();
      scope.end();
      void it.return?.().catch(() => {});
    }
  }

  /** Yields the objects of an answer in lines of JSON. An older daemon answers with one value. */
  async *lines(method: string, path: string, options: RequestOptions = {}): AsyncGenerator<unknown> {
    const headers = { Accept: "application/x-ndjson, application/json", ...options.headers };
    const answer = await this.open(method, path, { ...options, headers });
    if (!answer.header("content-type").startsWith("application/x-ndjson")) {
      yield JSON.parse(decodeText(await all(answer.body, MAX_ANSWER, `the answer to ${method} ${path}`)));
      return;
    }
    for await (const line of linesOf(answer.body)) {
      if (line.trim()) yield parsed(line, method, path);
    }
  }

  /** Calls a method of a sandbox's agent, such as filesystem.Filesystem/Stat. */
  async agent(sandbox: string, method: string, json: object, user?: string, o: RequestOptions = {}): Promise<Fields> {
    const got = await this.call("POST", agentPath(sandbox, method), { ...o, json, headers: agentUser(user) });
    return typeof got === "object" && got !== null ? got as Fields : {};
  }

  /** Calls a method of a sandbox's agent with a stream of answers. */
  async *agentStream(sandbox: string, method: string, message: object, user?: string, o: RequestOptions = {}):
    AsyncGenerator<Fields> {
    const path = agentPath(sandbox, method);
    const answer = await this.open("POST", path, {
      timeout: 4 * KEEPALIVE * 1000, ...o, body: frame(message),
      headers: {
        ...o.headers, "Content-Type": "application/connect+json", "Connect-Protocol-Version": "1",
        "Keepalive-Ping-Interval": String(KEEPALIVE), ...agentUser(user),
      },
    });
    for await (const { flags, data } of frames(answer.body, sandbox)) {
      const got = parsed(decodeText(data) || "{}", "POST", path) as Fields;
      if (!(flags & 2)) {
        yield got;
        continue;
      }
      if (got.error) throw errorOf(got.error, 0, false);
      return;
    }
    throw make(`the stream from ${sandbox} broke off`, { code: "connection_broken", reason: "maybe_done" });
  }

  toJSON(): object {
    return { url: this.url };
  }
}

/** An object of JSON that is not checked. */
export type Fields = Record<string, unknown>;

/** The signal and the limit of one request. */
class Scope {
  readonly #controller = new AbortController();
  readonly #outer: AbortSignal | undefined;
  readonly #stop = (): void => this.#controller.abort(this.#outer?.reason);
  #timer: ReturnType<typeof setTimeout> | undefined;
  timedOut = false;

  constructor(outer: AbortSignal | undefined, readonly limit: number) {
    this.#outer = outer;
    if (outer?.aborted) this.#stop();
    else outer?.addEventListener("abort", this.#stop, { once: true });
    this.restart();
  }

  get signal(): AbortSignal {
    return this.#controller.signal;
  }

  restart(): void {
    this.pause();
    // setTimeout takes at most 2^31-1 ms.
    if (this.limit > 0 && this.limit < 2 ** 31) this.#timer = setTimeout(() => this.#expire(), this.limit);
  }

  pause(): void {
    clearTimeout(this.#timer);
  }

  #expire(): void {
    this.timedOut = true;
    this.cancel();
  }

  cancel(): void {
    this.#controller.abort(new DOMException("the request was left", "AbortError"));
  }

  end(): void {
    this.pause();
    this.#outer?.removeEventListener("abort", this.#stop);
  }

  /** Waits for a promise, and is rejected at once when the request is cancelled. */
  race<T>(p: Promise<T>): Promise<T> {
    return new Promise((resolve, reject) => {
      const signal = this.signal;
      const stop = (): void => reject(signal.reason);
      if (signal.aborted) stop();
      signal.addEventListener("abort", stop, { once: true });
      p.then(resolve, reject).finally(() => signal.removeEventListener("abort", stop));
    });
  }

  sleep(ms: number): Promise<void> {
    return this.race(new Promise((r) => setTimeout(r, ms)));
  }
}

/**
 * Reports whether a request sends a stream, which must not go on after a refusal. Other requests are not cancelled
 * after their answer: Node then closes the connection, on which the next request may be under way.
 */
function uploads(o: RequestOptions): o is RequestOptions & { body: AsyncIterable<Uint8Array> } {
  return typeof o.body === "object" && Symbol.asyncIterator in o.body;
}

/** Yields the pieces of a source, and reports its error. */
async function* watched(source: AsyncIterable<Uint8Array>, failed: (error: unknown) => void): AsyncGenerator<Uint8Array> {
  try {
    yield* source;
  } catch (e) {
    failed(e);
    throw e;
  }
}

const isLink = (e: unknown): boolean =>
  e instanceof ForkdError && e.status === 0 && (e.code === "unreachable" || e.code === "connection_broken");

const unconnected = new RegExp(["ECONNREFUSED", "ENOENT", "EACCES", "ENOTFOUND", "EAI_AGAIN", "EHOSTUNREACH", "ENETUNREACH",
  "UND_ERR_CONNECT_TIMEOUT", "ETIMEDOUT", "ConnectionRefused", "Connection refused", "Unable to connect", "FailedToOpenSocket",
  "dns error", "certificate", "tcp connect error", "bad port"].join("|"), "i");

/** Returns the texts of an error and of its causes. */
function causeText(e: unknown): string {
  const seen: string[] = [];
  for (let at = e; at instanceof Error && seen.length < 4; at = at.cause) {
    const code = (at as { code?: unknown }).code;
    const inner = at instanceof AggregateError ? at.errors[0] as unknown : undefined;
    seen.push(at.message || (inner instanceof Error ? inner.message : ""), typeof code === "string" ? code : "");
  }
  const parts = seen.filter((s) => s && s !== "fetch failed");
  return parts.filter((s, i) => !parts.some((t, j) => t.includes(s) && (t.length > s.length || j < i))).join(": ") || String(e);
}

function queryOf(query: RequestOptions["query"]): string {
  if (!query) return "";
  const q = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    if (value === undefined || value === null || value === false || value === "") continue;
    for (const v of Array.isArray(value) ? value : [value]) q.append(name, String(v));
  }
  const text = q.toString();
  return text && "?" + text;
}

function decoded(text: string, answer: WireAnswer, method: string, path: string): unknown {
  if (!text) return undefined;
  return answer.header("content-type").startsWith("application/json") ? parsed(text, method, path) : text;
}

function parsed(text: string, method: string, path: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    throw make(`the answer to ${method} ${path} is no JSON: ${text.slice(0, 100)}`, { code: "connection_broken" });
  }
}

/** Returns all bytes of a body, or throws if there are more than max. */
export async function all(body: AsyncIterable<Uint8Array>, max: number, what: string, hint = ""): Promise<Uint8Array> {
  const pieces: Uint8Array[] = [];
  let size = 0;
  for await (const chunk of body) {
    pieces.push(chunk);
    size += chunk.length;
    if (size > max) throw make(`${what} has more than ${max} bytes`, { code: "too_large", hint });
  }
  return concat(pieces);
}

/** Yields the lines of a body. */
export async function* linesOf(body: AsyncIterable<Uint8Array>): AsyncGenerator<string> {
  const decoder = new TextDecoder();
  let rest: string[] = [];
  let size = 0;
  for await (const chunk of body) {
    const parts = decoder.decode(chunk, { stream: true }).split("\n");
    for (const part of parts.slice(0, -1)) {
      yield rest.join("") + part;
      rest = [];
      size = 0;
    }
    const last = parts[parts.length - 1]!;
    rest.push(last);
    size += last.length;
    if (size > MAX_MESSAGE) throw make(`a line has more than ${MAX_MESSAGE} bytes`, { code: "too_large" });
  }
  const last = rest.join("") + decoder.decode();
  if (last) yield last;
}

/** Returns a message in Connect's envelope. */
function frame(message: object): Uint8Array {
  const data = encodeText(JSON.stringify(message));
  const out = new Uint8Array(5 + data.length);
  new DataView(out.buffer).setUint32(1, data.length);
  out.set(data, 5);
  return out;
}

/** Yields the messages of a Connect stream. */
async function* frames(body: AsyncIterable<Uint8Array>, sandbox: string): AsyncGenerator<{ flags: number; data: Uint8Array }> {
  let pieces: Uint8Array[] = [];
  let size = 0;
  let need = 5;
  for await (const chunk of body) {
    pieces.push(chunk);
    size += chunk.length;
    if (size < need) continue;
    let all = concat(pieces);
    for (;;) {
      need = 5;
      if (all.length < 5) break;
      const length = new DataView(all.buffer, all.byteOffset).getUint32(1);
      if (length > MAX_MESSAGE) throw make(`the agent of ${sandbox} sent a message of ${length} bytes`, { code: "too_large" });
      need = 5 + length;
      if (all.length < need) break;
      yield { flags: all[0]!, data: all.subarray(5, need) };
      all = all.subarray(need);
    }
    pieces = [all];
    size = all.length;
  }
}

/** Returns the path of a sandbox's route. */
export const sandboxPath = (sandbox: string, rest = ""): string => `/v1/sandboxes/${part(sandbox)}${rest}`;

/** Returns the path of a route of a sandbox's agent. */
export const agentPath = (sandbox: string, rest: string): string => sandboxPath(sandbox, "/agent/" + rest);

/** Returns a name as a part of a path. Names that lead to other routes are refused. */
export function part(name: string): string {
  if (typeof name !== "string" || name === "" || name === "." || name === "..") {
    throw make(`${JSON.stringify(name)} is no name`, { code: "invalid_request" });
  }
  return encodeURIComponent(name);
}

function agentUser(user: string | undefined): Record<string, string> {
  if (!user) return {};
  if (!/^[\x21-\x7e]+$/.test(user)) throw make(`${JSON.stringify(user)} is no name of a user`, { code: "invalid_request" });
  return { "Forkd-Agent-User": user };
}
