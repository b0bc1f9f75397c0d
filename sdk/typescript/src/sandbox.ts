/** Sandboxes. */
import "./dispose.js";
import { encodeText, fromBase64 } from "./bytes.js";
import { fromWire, toWire } from "./case.js";
import { sandboxPath, type CallOptions, type Connection, type RequestOptions } from "./connection.js";
import { ConflictError, EvalError, GuestTimeoutError, NotFoundError, PortClosedError, errorOf, make, type ForkdError }
  from "./errors.js";
import { Files } from "./files.js";
import type * as m from "./generated/models.js";
import { ExecResult, Process, argumentsOf, joined, type Input, type Kept, type ProgramOptions, type SpawnOptions, type WaitOptions }
  from "./process.js";
import type { PortForward } from "./ports.js";

/** Limit in milliseconds of calls that may take long. */
export const LONG = 600_000;
/** Limit in milliseconds of calls about services: a stop waits for the service's end. */
const SERVICE = 120_000;
const servicePath = (name: string): string => `/services/${encodeURIComponent(name)}`;
const DAY = 24 * 3600_000;
/** Timers of JavaScript end at once from here on, 25 days. */
const MAX_TIMER = 2 ** 31;

/** Options of `Sandbox.exec`. */
export interface ExecOptions extends ProgramOptions, WaitOptions {
  stdin?: Input;
  /** Milliseconds, after which the program and all it started is killed. The result then has `timedOut`. */
  timeoutMs?: number;
  /** Throws a ProgramError if the exit code is not 0. */
  check?: boolean;
}

/** Options of `Sandbox.eval`. */
export interface EvalOptions extends CallOptions {
  /** Form of the value: `repr` (text, the default) or `json`. */
  as?: "repr" | "json";
  /** Interpreter. The default is python. */
  language?: string;
  /** Limit in milliseconds. */
  timeoutMs?: number;
}

/** Options of `Sandbox.branch`. */
export type BranchOptions = CallOptions & Omit<m.BranchRequest, "diff" | "live" | "measureDiff" | "net" | "network"> & {
  network?: Policy;
};

/** Options of `Sandbox.promote`: those of the API, and `discard`. */
export type PromoteOptions = CallOptions & m.PromoteRequest & {
  /** Keeps no snapshot of the parent's old state. It is `parent: "kill"` of the API. */
  discard?: boolean;
};

/** A policy: no access, the public network, or rules. */
export type Policy = "none" | "public" | m.NetworkPolicy;

/** Returns a request with a policy in its field of the API. */
export function withPolicy<T extends { network?: Policy }>(o: T): Omit<T, "network"> & { net?: string; network?: object } {
  const { network, ...rest } = o;
  if (network === undefined) return rest;
  return typeof network === "string" ? { ...rest, net: network } : { ...rest, network };
}

/** A virtual machine forked from a snapshot. With `await using` it is killed at the end of its scope. */
export class Sandbox implements AsyncDisposable {
  readonly #connection: Connection;
  #info: m.SandboxInfo | undefined;

  /** @internal */
  constructor(connection: Connection, readonly id: string, info?: m.SandboxInfo) {
    this.#connection = connection;
    this.#info = info;
  }

  /** The last description, without a request. */
  get lastInfo(): m.SandboxInfo | undefined {
    return this.#info;
  }

  /** The files of the sandbox. */
  get files(): Files {
    return new Files(this.#connection, this.id);
  }

  toJSON(): object {
    return { id: this.id };
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.kill().catch(unlessGone);
  }

  /** Describes the sandbox. */
  async info(o: CallOptions = {}): Promise<m.SandboxInfo> {
    return this.#keep(await this.#call("GET", "", o));
  }

  #keep(answer: unknown): m.SandboxInfo {
    return this.#info = fromWire<m.SandboxInfo>(answer, "SandboxInfo");
  }

  /** Ends the sandbox. `tree` also ends the sandboxes that its guest forked. */
  async kill(o: CallOptions & { tree?: boolean } = {}): Promise<void> {
    await this.#call("DELETE", "", { signal: o.signal, query: { tree: o.tree } });
  }

  /** Asks the guest for an answer. */
  async ping(o: CallOptions = {}): Promise<m.PingResponse> {
    return fromWire(await this.#call("POST", "/ping", o), "PingResponse");
  }

  /** Turns the sandbox into a snapshot under its own id. It uses no memory until `resume`. */
  async pause(o: CallOptions & m.PauseRequest = {}): Promise<m.SandboxInfo> {
    const { signal, ...body } = o;
    return this.#keep(await this.#call("POST", "/pause", { signal, timeout: LONG, json: toWire(body, "PauseRequest") }));
  }

  /**
   * Resumes a paused sandbox. A running one stays as it is. With `peers`, URLs of daemons, a sandbox paused at another
   * daemon is taken from the first that has it. The operator of this daemon allows peers with `forkd serve --peer`.
   */
  async resume(o: CallOptions & m.ResumeRequest = {}): Promise<m.SandboxInfo> {
    const { signal, peers } = o;
    const call = peers?.length ? { signal, timeout: 3 * LONG, json: { peers } } : { signal, timeout: LONG };
    return this.#keep(await this.#call("POST", "/resume", call));
  }

  /** Changes the lifetime. Fields that are absent keep their value. */
  async setLife(life: m.LifeRequest, o: CallOptions = {}): Promise<m.SandboxInfo> {
    return this.#keep(await this.#call("PATCH", "/life", { ...o, json: toWire(life, "LifeRequest") }));
  }

  /** Adds or replaces labels, and removes those with the keys `remove`. Other labels stay. */
  async label(labels: Record<string, string>, o: CallOptions & { remove?: string[] } = {}): Promise<m.SandboxInfo> {
    const json = toWire({ set: labels, remove: o.remove }, "LabelsRequest");
    return this.#keep(await this.#call("PATCH", "/labels", { signal: o.signal, json }));
  }

  /** Lets the sandbox live that many seconds from now. 0 means without a limit. */
  extend(ttlSecs: number, o: CallOptions = {}): Promise<m.SandboxInfo> {
    return this.setLife({ ttlSecs }, o);
  }

  /** Returns the record of the sandbox's fork or last rollback. */
  async receipt(o: CallOptions = {}): Promise<m.Receipt> {
    return fromWire(await this.#call("GET", "/receipt", o), "Receipt");
  }

  /** Returns the use of memory, and how much of it is shared. */
  async memory(o: CallOptions = {}): Promise<m.MemoryUse> {
    return fromWire(await this.#call("GET", "/memory", o), "MemoryUse");
  }

  /** Returns the console's text, or its last `tail` bytes. */
  async console(o: CallOptions & { tail?: number } = {}): Promise<string> {
    return String(await this.#call("GET", "/console", { signal: o.signal, query: { tail: o.tail } }) ?? "");
  }

  /** Yields the console's text as it comes, until the sandbox ends. */
  async *followConsole(o: CallOptions & { tail?: number } = {}): AsyncGenerator<string> {
    const decoder = new TextDecoder();
    const query = { follow: true, tail: o.tail };
    const body = this.#connection.bytes("GET", sandboxPath(this.id, "/console"), { signal: o.signal, timeout: 0, query });
    for await (const chunk of body) yield decoder.decode(chunk, { stream: true });
  }

  /** Lists the services. `waitMs` waits at most so long until each is ready, failed or stopped. */
  async services(o: CallOptions & { waitMs?: number } = {}): Promise<m.Service[]> {
    const query = { wait_secs: o.waitMs === undefined ? undefined : o.waitMs / 1000 };
    const rows = await this.#call("GET", "/services", { signal: o.signal, query, timeout: (o.waitMs ?? 0) + SERVICE });
    return ((rows ?? []) as unknown[]).map((s) => fromWire<m.Service>(s, "Service"));
  }

  /** Starts a service, or replaces one with another declaration. */
  async declareService(name: string, command: readonly string[],
    o: CallOptions & Omit<m.ServiceSpec, "command"> = {}): Promise<m.Service> {
    const { signal, ...spec } = o;
    const json = toWire({ ...spec, command: [...command] }, "ServiceSpec");
    return fromWire(await this.#call("PUT", servicePath(name), { signal, json, timeout: SERVICE }), "Service");
  }

  /** Stops, starts or restarts a service. */
  async changeService(name: string, action: "stop" | "start" | "restart", o: CallOptions = {}): Promise<m.Service> {
    return fromWire(await this.#call("POST", servicePath(name), { ...o, json: { action }, timeout: SERVICE }), "Service");
  }

  /** Stops a service, and removes it with its log. */
  async removeService(name: string, o: CallOptions = {}): Promise<void> {
    await this.#call("DELETE", servicePath(name), { ...o, timeout: SERVICE });
  }

  /** Returns the end of a service's output, or its last `tail` lines. */
  async serviceLog(name: string, o: CallOptions & { tail?: number } = {}): Promise<string> {
    return String(await this.#call("GET", `${servicePath(name)}/log`, { signal: o.signal, query: { tail: o.tail } }) ?? "");
  }

  /** Yields a service's output as it comes, until the sandbox ends. */
  async *followServiceLog(name: string, o: CallOptions & { tail?: number } = {}): AsyncGenerator<string> {
    const decoder = new TextDecoder();
    const path = sandboxPath(this.id, `${servicePath(name)}/log`);
    const query = { follow: true, tail: o.tail };
    for await (const chunk of this.#connection.bytes("GET", path, { signal: o.signal, timeout: 0, query })) {
      yield decoder.decode(chunk, { stream: true });
    }
  }

  /** Runs a program to its end. A string is a command for the shell, a list is a program and its arguments. */
  async exec(command: string | readonly string[], o: ExecOptions = {}): Promise<ExecResult> {
    const limit = new AbortController();
    const stop = (): void => limit.abort(o.signal?.reason);
    if (o.signal?.aborted) stop();
    o.signal?.addEventListener("abort", stop, { once: true });
    let late = false;
    const timer = o.timeoutMs && o.timeoutMs < MAX_TIMER ? setTimeout(() => {
      late = true;
      limit.abort();
    }, o.timeoutMs) : undefined;
    const kept: Kept = { stdout: [], stderr: [] };
    try {
      const { env, cwd, user } = o;
      const options = { env, cwd, user, stdin: o.stdin !== undefined, signal: limit.signal };
      const process = await Process.start(this.#connection, this.id, argumentsOf(command), options);
      const result = await this.#follow(process, o, kept);
      return o.check ? result.check() : result;
    } catch (e) {
      if (!late) throw e;
      const result = joined(kept, 124, true);
      return o.check ? result.check() : result;
    } finally {
      clearTimeout(timer);
      o.signal?.removeEventListener("abort", stop);
    }
  }

  /** Reads a program's output while its input is written. */
  async #follow(process: Process, o: ExecOptions, kept: Kept): Promise<ExecResult> {
    let fault: unknown;
    const fed = o.stdin === undefined ? undefined : process.stdin.feed(o.stdin).catch((e: unknown) => {
      // A program may end without reading its input: that is no fault. A broken source is one.
      if (process.exitCode !== undefined || isProgramEnd(e)) return;
      fault = e;
      process.close();
    });
    try {
      return await process.collect(o, kept);
    } catch (e) {
      throw fault ?? e;
    } finally {
      process.close();
      await fed;
    }
  }

  /** Starts a program, and returns it while it runs. */
  spawn(command: string | readonly string[], o: SpawnOptions = {}): Promise<Process> {
    return Process.start(this.#connection, this.id, argumentsOf(command), o);
  }

  /**
   * Runs a program by one request, and returns the API's answer. The daemon keeps the first 8 MiB of each stream;
   * `droppedBytes` has the rest.
   */
  async run(args: readonly string[], o: CallOptions & Omit<m.ExecRequest, "args"> = {}): Promise<m.ExecResponse> {
    const { signal, ...rest } = o;
    const timeout = rest.timeoutSecs ? rest.timeoutSecs * 1000 + 30_000 : DAY;
    const json = toWire({ args, ...rest }, "ExecRequest");
    return fromWire(await this.#call("POST", "/exec", { signal, timeout, json }), "ExecResponse");
  }

  /** Runs code in the warmed interpreter, and returns the value of its last expression: its repr, or parsed JSON. */
  async eval(code: string, o: EvalOptions & { as: "json" }): Promise<unknown>;
  async eval(code: string, o?: EvalOptions): Promise<string | null>;
  async eval(code: string, o: EvalOptions = {}): Promise<unknown> {
    const json = o.as === "json";
    const timeoutSecs = o.timeoutMs ? o.timeoutMs / 1000 : undefined;
    const got = await this.evalRaw(json ? jsonCode(code) : code, { signal: o.signal, language: o.language, timeoutSecs });
    if (got.error) throw new EvalError(got.error, got.stdout, got.stderr);
    return json ? jsonValue(got.result) : got.result ?? null;
  }

  /** Runs code in the warmed interpreter, and returns the whole answer, with its output. */
  async evalRaw(code: string, o: CallOptions & Omit<m.EvalRequest, "code"> = {}): Promise<m.EvalResponse> {
    const { signal, ...rest } = o;
    const timeout = rest.timeoutSecs ? rest.timeoutSecs * 1000 + 30_000 : DAY;
    const json = toWire({ code, ...rest }, "EvalRequest");
    return fromWire(await this.#call("POST", "/eval", { signal, timeout, json }), "EvalResponse");
  }

  /** Captures the sandbox at one instant as a snapshot, and forks `n` children of it. The sandbox keeps running. */
  async branch(o: BranchOptions = {}): Promise<Branch> {
    const { signal, ...rest } = o;
    const json = toWire(withPolicy(rest), "BranchRequest");
    const got = fromWire<m.BranchResult>(await this.#call("POST", "/branch", { signal, timeout: LONG, json }), "BranchResult");
    return new Branch(this.#connection, got);
  }

  /** Puts the sandbox back to a snapshot of its own ancestry. Its id stays. */
  async rollback(tag: string, o: CallOptions = {}): Promise<m.SandboxInfo> {
    return this.#keep(await this.#call("POST", "/rollback", { ...o, timeout: LONG, json: { snapshot_tag: tag } }));
  }

  /** Puts the sandbox in the place of its parent. The id of this object ends: go on with the parent's. */
  async promote(o: PromoteOptions = {}): Promise<m.PromoteResult> {
    const { signal, discard, ...body } = o;
    const json = toWire(discard ? { ...body, parent: "kill" } : body, "PromoteRequest");
    return fromWire(await this.#call("POST", "/promote", { signal, timeout: LONG, json }), "PromoteResult");
  }

  /**
   * Merges the changed files of a sibling or a snapshot into this running sandbox. With conflicts left, no file
   * is changed: `applied` is false and `conflicts` lists them.
   */
  async merge(o: CallOptions & m.MergeRequest): Promise<m.MergeResult> {
    const { signal, ...body } = o;
    const json = toWire(body, "MergeRequest");
    return fromWire(await this.#call("POST", "/merge", { signal, timeout: 3 * LONG, json }), "MergeResult");
  }

  /** Returns the network policy. */
  async network(o: CallOptions = {}): Promise<m.SandboxNetwork> {
    return fromWire(await this.#call("GET", "/network", o), "SandboxNetwork");
  }

  /** Replaces the network policy. */
  async setNetwork(policy: Policy, o: CallOptions = {}): Promise<m.SandboxNetwork> {
    const json = toWire(withPolicy({ network: policy }), "SetNetworkRequest");
    return fromWire(await this.#call("PUT", "/network", { ...o, json }), "SandboxNetwork");
  }

  /** Lists the open connections. */
  async flows(o: CallOptions = {}): Promise<m.NetworkFlow[]> {
    return fromWire(await this.#call("GET", "/network/flows", o) ?? [], "NetworkFlow");
  }

  /** Yields the last refused connections, and with `follow` all further ones. */
  async *networkLog(o: CallOptions & { follow?: boolean } = {}): AsyncGenerator<Record<string, unknown>> {
    const options = { signal: o.signal, query: { follow: o.follow }, ...(o.follow ? { timeout: 0 } : {}) };
    const lines = this.#connection.lines("GET", sandboxPath(this.id, "/network/log"), options);
    for await (const line of lines) yield fromWire(line, "");
  }

  /** Forwards a port of this host's loopback to a port of the guest. */
  async forwardPort(port: number, o: { localPort?: number } = {}): Promise<PortForward> {
    const { PortForward } = await import("./ports.js");
    return PortForward.listen(this.#connection, this.id, port, o.localPort);
  }

  /** Connects to a port of the guest. The result is a stream of Node, which the caller ends. */
  async dial(port: number, o: CallOptions = {}): Promise<import("node:stream").Duplex> {
    const { dial } = await import("./ports.js");
    return dial(this.#connection, this.id, port, o);
  }

  /**
   * Returns the URL of a server in the sandbox. Throws UnsupportedError if the daemon cannot be reached by such names from
   * here. A sandbox with private ports also needs the token `(await info()).trafficToken` as a Bearer token.
   */
  async url(port: number, o: CallOptions = {}): Promise<string> {
    const [version, info] = await Promise.all([this.#connection.call("GET", "/version", o), this.#info ?? this.info(o)]);
    const { domain } = fromWire<m.VersionInfo>(version, "VersionInfo");
    const base = new URL(this.#connection.url);
    if (base.protocol === "unix:" || !domain || !info.dnsId || (isLocalhost(domain) && !isLocalhost(base.hostname))) {
      throw make(`ports of ${this.id} have no URL at ${this.#connection.url}`, { code: "unsupported", hint: "use forwardPort" });
    }
    return `${base.protocol}//${port}-${info.dnsId}.${domain}${base.port ? ":" + base.port : ""}/`;
  }

  /**
   * Sends data to a TCP port of the guest, and returns the whole answer. More than `maxBytes` (256 MiB) is an error. Throws
   * a GuestTimeoutError after `timeoutMs` (30 s; 0 means no limit) without a byte.
   */
  async requestPort(port: number, data: string | Uint8Array,
    o: CallOptions & { timeoutMs?: number; maxBytes?: number } = {}): Promise<Uint8Array> {
    const { exchange } = await import("./ports.js");
    return exchange(this.#connection, this.id, port, typeof data === "string" ? encodeText(data) : data, o);
  }

  /** Waits until a server in the guest accepts connections on a port. */
  waitForPort(port: number, o: UntilOptions = {}): Promise<void> {
    return until(async () => {
      try {
        (await this.dial(port, o)).destroy();
        return true;
      } catch (e) {
        if (e instanceof PortClosedError) return false;
        throw e;
      }
    }, o, `nothing listens on port ${port} of ${this.id}`);
  }

  /** Waits until a file of the guest has a text. */
  waitForText(text: string, path: string, o: UntilOptions = {}): Promise<void> {
    return until(async () => {
      try {
        return (await this.files.readText(path, o)).includes(text);
      } catch (e) {
        if (e instanceof NotFoundError && !e.requestId) return false;
        throw e;
      }
    }, o, `${path} of ${this.id} does not have ${JSON.stringify(text)}`);
  }

  /** Waits for a status, such as running or paused. */
  async waitForStatus(status: string, o: UntilOptions = {}): Promise<m.SandboxInfo> {
    await until(async () => (await this.info(o)).status === status, o, `${this.id} is not ${status}`);
    return this.#info!;
  }

  #call(method: string, rest: string, o: RequestOptions): Promise<unknown> {
    return this.#connection.call(method, sandboxPath(this.id, rest), o);
  }
}

/** A snapshot of a running sandbox, with the figures of the branch and its children. */
export class Branch implements AsyncDisposable {
  /** The children that run. */
  readonly children: Sandbox[];
  /** Errors of the children that failed. */
  readonly errors: ForkdError[];

  /** @internal */
  constructor(connection: Connection, /** The API's answer. */ readonly result: m.BranchResult) {
    const rows = result.children ?? [];
    this.children = rows.filter((r) => !r.error).map((r) => new Sandbox(connection, r.id, r));
    this.errors = rows.filter((r) => r.error).map((r) => errorOf(r));
    Object.defineProperty(this, "result", { enumerable: false }); // its children have traffic tokens
  }

  get tag(): string {
    return this.result.tag;
  }

  get pauseMs(): number {
    return this.result.pauseMs ?? 0;
  }

  /** Ends the children. The snapshot stays. */
  async [Symbol.asyncDispose](): Promise<void> {
    await killAll(this.children);
  }
}

/** Options of waits. */
export interface UntilOptions extends CallOptions {
  /** Milliseconds. The default is 30 s. */
  timeoutMs?: number;
}

async function until(ready: () => Promise<boolean>, o: UntilOptions, otherwise: string): Promise<void> {
  const limit = o.timeoutMs ?? 30_000;
  const end = Date.now() + limit;
  for (let wait = 20; !await ready(); wait = Math.min(wait * 1.5, 1000)) {
    if (Date.now() >= end) throw new GuestTimeoutError(`${otherwise} after ${limit / 1000} s`, { code: "timeout" });
    await sleep(Math.min(wait, Math.max(1, end - Date.now())), o.signal);
  }
}

function sleep(ms: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    if (signal?.aborted) return reject(signal.reason);
    const stop = (): void => {
      clearTimeout(timer);
      reject(signal?.reason);
    };
    const timer = setTimeout(() => {
      signal?.removeEventListener("abort", stop);
      resolve();
    }, ms);
    signal?.addEventListener("abort", stop, { once: true });
  });
}

/** Ignores that a sandbox has ended already. */
export function unlessGone(e: unknown): void {
  if (!(e instanceof NotFoundError)) throw e;
}

/** Ends sandboxes, 16 at a time. Those that have ended already are no error. */
export async function killAll(sandboxes: readonly Sandbox[]): Promise<void> {
  const waiting = [...sandboxes];
  const errors: unknown[] = [];
  await Promise.all(Array.from({ length: 16 }, async () => {
    for (let s = waiting.shift(); s; s = waiting.shift()) await s.kill().catch(unlessGone).catch((e) => errors.push(e));
  }));
  if (errors.length > 0) throw errors[0];
}

/** Reports whether an error of the input means that the program has ended. */
const isProgramEnd = (e: unknown): boolean =>
  e instanceof NotFoundError || e instanceof ConflictError || (e as Error).name === "AbortError";

const MARK = "forkd-value:";

/** Returns Python code whose value is the last expression as JSON, in base64. */
function jsonCode(code: string): string {
  const source = JSON.stringify(code).replace(/[\u007f-\uffff]/g, (c) => "\\u" + c.charCodeAt(0).toString(16).padStart(4, "0"));
  return `def _forkd_value(_v):
    import json, base64
    return ${JSON.stringify(MARK)} + base64.b64encode(json.dumps(_v).encode()).decode()
import ast as _forkd_ast, json as _forkd_json
_forkd_tree = _forkd_ast.parse(_forkd_json.loads(${JSON.stringify(source)}))
_forkd_last = _forkd_tree.body.pop() if _forkd_tree.body and isinstance(_forkd_tree.body[-1], _forkd_ast.Expr) else None
exec(compile(_forkd_tree, '<eval>', 'exec'), globals())
_forkd_value(eval(compile(_forkd_ast.Expression(_forkd_last.value), '<eval>', 'eval'), globals()) if _forkd_last else None)`;
}

function jsonValue(result: string | null | undefined): unknown {
  const text = result?.replace(/^'(.*)'$/s, "$1") ?? "";
  if (!text.startsWith(MARK)) throw new EvalError(`the interpreter answered ${result?.slice(0, 200)}, which is no JSON`);
  return JSON.parse(new TextDecoder().decode(fromBase64(text.slice(MARK.length)))) as unknown;
}

/** Returns an answer of the exec route with its bytes. */
export function resultOf(got: m.ExecResponse): ExecResult {
  const bytes = (raw: string | undefined, text: string): Uint8Array => (raw ? fromBase64(raw) : encodeText(text));
  return new ExecResult(bytes(got.stdoutBase64 as string | undefined, got.stdout),
    bytes(got.stderrBase64 as string | undefined, got.stderr), got.exitCode, got.timedOut, got.killedBy, got.droppedBytes);
}

/** Reports whether a name or an address is of this host. */
function isLocalhost(name: string): boolean {
  return /(^|\.)localhost$|^127(\.\d+){3}$|^\[?::1\]?$/.test(name);
}
