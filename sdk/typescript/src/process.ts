/** Running programs of a sandbox. */
import "./dispose.js";
import { concat, decodeText, encodeText, fromBase64, toBase64 } from "./bytes.js";
import type { CallOptions, Connection, Fields } from "./connection.js";
import { GuestTimeoutError, ProgramError, make } from "./errors.js";

/** Bytes of output that are kept by default: 64 MiB. */
export const MAX_OUTPUT = 64 << 20;

/** Input of a program. */
export type Input = string | Uint8Array | AsyncIterable<string | Uint8Array>;

/** A piece of output. The output of a terminal is `stdout`. */
export class Output {
  constructor(readonly stream: "stdout" | "stderr", readonly data: Uint8Array) {}

  /** The piece as text. A character may be cut between two pieces. */
  get text(): string {
    return decodeText(this.data);
  }
}

/** Size of a terminal. */
export interface Size {
  columns: number;
  rows: number;
}

/** Options of a program. */
export interface ProgramOptions extends CallOptions {
  /** Added to the guest's environment. */
  env?: Record<string, string>;
  /** Working directory. The default is the image's. */
  cwd?: string;
  /** User to run as. The default is the image's. */
  user?: string;
}

/** Options of `Sandbox.spawn`. */
export interface SpawnOptions extends ProgramOptions {
  /** Whether the program has an input. The default is true. */
  stdin?: boolean;
  /** Runs the program on a terminal of that size. */
  pty?: Size;
  /** Limit of its run in milliseconds. The guest then kills it, and its reader gets a GuestTimeoutError. */
  timeoutMs?: number;
}

/** Options of `Process.wait`. */
export interface WaitOptions {
  /** Bytes of output to keep. More is an error. The default is 64 MiB. */
  maxOutput?: number;
  /** Called with each piece of output, which is then not kept. The next piece waits for its promise. */
  onStdout?: (data: Uint8Array) => unknown;
  onStderr?: (data: Uint8Array) => unknown;
}

/** Output in pieces. */
export type Kept = Record<Output["stream"], Uint8Array[]>;

/** Returns the end of a program with output in pieces. */
export const joined = (kept: Kept, exitCode: number, timedOut = false, killedBy = "", droppedBytes = 0): ExecResult =>
  new ExecResult(concat(kept.stdout), concat(kept.stderr), exitCode, timedOut, killedBy, droppedBytes);

/** The end of a program, with its output. */
export class ExecResult {
  constructor(readonly stdoutBytes: Uint8Array, readonly stderrBytes: Uint8Array,
    /** 128+n if signal n ended the program, 124 if its limit did. */ readonly exitCode: number,
    /** Whether the limit ended it. */ readonly timedOut = false,
    /** Set if the guest's kernel killed it because memory ran out. */ readonly killedBy = "",
    /** Bytes of output that were lost. */ readonly droppedBytes = 0) {}

  /** Standard output as text. Bytes that are no UTF-8 become U+FFFD. */
  get stdout(): string {
    return decodeText(this.stdoutBytes);
  }

  /** Standard error as text. */
  get stderr(): string {
    return decodeText(this.stderrBytes);
  }

  /** Whether the program ended with 0. */
  get ok(): boolean {
    return this.exitCode === 0;
  }

  /** Throws a ProgramError if the exit code is not 0. */
  check(): this {
    if (this.exitCode === 0) return this;
    const last = this.stderr.trim().split("\n").pop()?.slice(0, 500);
    const how = this.timedOut ? "exceeded its limit" : `ended with ${this.exitCode}`;
    throw new ProgramError(`the program ${how}${last ? ": " + last : ""}`, this.exitCode, this.stdout, this.stderr);
  }
}

/** A program that runs in a sandbox. Iterate over its output, or wait for its end. Leaving the iteration ends it. */
export class Process implements AsyncIterable<Output>, AsyncDisposable {
  readonly #connection: Connection;
  readonly #user: string | undefined;
  readonly #events: AsyncGenerator<Fields>;
  readonly #pty: boolean;
  readonly #leave = new AbortController();
  /** Identifier of the process in the guest. */
  pid = 0;
  /** Set when the program has ended, and its output was read. */
  exitCode: number | undefined;
  /** The end in words, such as `exit status 1`. */
  status = "";
  /** Set if the guest's kernel killed the program because memory ran out. */
  killedBy = "";
  /** Bytes of output that were lost, because the reader was too slow. */
  droppedBytes = 0;

  private constructor(connection: Connection, readonly sandboxId: string, args: readonly string[], o: SpawnOptions) {
    this.#connection = connection;
    this.#user = o.user;
    this.#pty = o.pty !== undefined;
    const request = {
      process: { cmd: args[0], args: args.slice(1), envs: o.env ?? {}, ...(o.cwd ? { cwd: o.cwd } : {}) },
      stdin: o.stdin ?? true,
      ...(o.pty ? { pty: { size: { cols: o.pty.columns, rows: o.pty.rows } } } : {}),
    };
    if (o.signal?.aborted) this.#leave.abort(o.signal.reason);
    o.signal?.addEventListener("abort", () => this.#leave.abort(o.signal?.reason), { once: true, signal: this.#leave.signal });
    this.#events = connection.agentStream(sandboxId, "process.Process/Start", request, o.user,
      { signal: this.#leave.signal, headers: limitsOf(o) });
  }

  /** @internal */
  static async start(connection: Connection, sandbox: string, args: readonly string[], o: SpawnOptions): Promise<Process> {
    if (args.length === 0 || !args[0]) throw make("no program to run", { code: "invalid_request" });
    const p = new Process(connection, sandbox, args, o);
    for (;;) {
      const { done, value } = await p.#events.next();
      if (done) throw make(`the program in ${sandbox} did not start`, { code: "guest_gone" });
      const started = (value.event as Fields | undefined)?.start as Fields | undefined;
      if (!started) continue;
      p.pid = Number(started.pid ?? 0);
      return p;
    }
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<Output> {
    let whole = false;
    try {
      for await (const message of this.#events) {
        const event = (message.event ?? {}) as Record<string, Fields | undefined>;
        for (const [name, data] of Object.entries(event.data ?? {})) {
          yield new Output(name === "stderr" ? "stderr" : "stdout", fromBase64(String(data)));
        }
        if (event.end) this.#ended(event.end);
        this.droppedBytes += Number(event.keepalive?.outputDropped ?? 0);
      }
      whole = true;
    } finally {
      if (!whole) this.close();
    }
  }

  #ended(end: Fields): void {
    this.status = String(end.status ?? "");
    const code = Number(end.exitCode ?? 0);
    const text = String(end.error ?? "");
    if (text.startsWith("killed by the guest's kernel")) this.killedBy = text;
    this.exitCode = end.exited && code >= 0 ? code : 128 + signalOf(this.status);
  }

  /** Reads all output and returns the end. After the limit of `spawn` the result has `timedOut`. */
  async wait(o: WaitOptions = {}): Promise<ExecResult> {
    return this.collect(o, { stdout: [], stderr: [] });
  }

  /** @internal Is wait, with the output in the caller's hands, who may want it after an error. */
  async collect(o: WaitOptions, kept: Kept): Promise<ExecResult> {
    const max = o.maxOutput ?? MAX_OUTPUT;
    let size = 0;
    for await (const piece of this.#untilLimit()) {
      if (piece === undefined) {
        this.exitCode = 124;
        return joined(kept, 124, true, this.killedBy, this.droppedBytes);
      }
      const { stream, data } = piece;
      const callback = stream === "stdout" ? o.onStdout : o.onStderr;
      if (callback) {
        await callback(data);
        continue;
      }
      kept[stream].push(data);
      size += data.length;
      if (size > max) {
        throw make(`the program in ${this.sandboxId} wrote more than ${max} bytes`, {
          code: "too_large", hint: "read the output with onStdout and onStderr, or give a higher maxOutput",
        });
      }
    }
    if (this.exitCode === undefined) throw make(`${this.sandboxId} ended before its program`, { code: "guest_gone" });
    return joined(kept, this.exitCode, false, this.killedBy, this.droppedBytes);
  }

  /** Yields the output, and undefined if the program exceeded its limit. */
  async *#untilLimit(): AsyncGenerator<Output | undefined> {
    const output = this[Symbol.asyncIterator]();
    try {
      for (;;) {
        const step = await output.next().catch((e: unknown) => {
          if (e instanceof GuestTimeoutError) return undefined;
          throw e;
        });
        if (step?.done) return;
        yield step?.value;
        if (!step) return;
      }
    } finally {
      await output.return(undefined);
    }
  }

  /** Writes text or bytes to the program's input, or to its terminal. */
  async write(data: string | Uint8Array): Promise<void> {
    const raw = typeof data === "string" ? encodeText(data) : data;
    const kind = this.#pty ? "pty" : "stdin";
    for (let i = 0; i < raw.length; i += 1 << 20) {
      await this.#call("SendInput", { input: { [kind]: toBase64(raw.subarray(i, i + (1 << 20))) } });
    }
  }

  /** Writes all of a source to the program's input, and ends the input. */
  async feed(source: Input): Promise<void> {
    const pieces = typeof source === "string" || source instanceof Uint8Array ? [source] : source;
    for await (const piece of pieces) await this.write(piece);
    await this.closeStdin();
  }

  /** Ends the program's input. */
  closeStdin(): Promise<void> {
    return this.#call("CloseStdin", {});
  }

  /** The input as an object: `stdin.write` is `write`, `stdin.feed` is `feed`, `stdin.close` is `closeStdin`. */
  readonly stdin = {
    /** Writes text or bytes. */
    write: (data: string | Uint8Array): Promise<void> => this.write(data),
    /** Ends the input. */
    close: (): Promise<void> => this.closeStdin(),
    /** Writes all of a source, and ends the input. */
    feed: (source: Input): Promise<void> => this.feed(source),
  };

  /** Sends a signal: SIGKILL to the program and all processes it started, SIGTERM to its group. */
  signal(name: "SIGTERM" | "SIGKILL"): Promise<void> {
    return this.#call("SendSignal", { signal: "SIGNAL_" + name });
  }

  /** Sends SIGTERM to the program and its group. */
  terminate(): Promise<void> {
    return this.signal("SIGTERM");
  }

  /** Kills the program and all processes it started. */
  kill(): Promise<void> {
    return this.signal("SIGKILL");
  }

  /** Changes the size of the program's terminal. */
  resize(size: Size): Promise<void> {
    return this.#call("Update", { pty: { size: { cols: size.columns, rows: size.rows } } });
  }

  /** Leaves the program. The agent then kills it, with all processes it started. */
  close(): void {
    this.#leave.abort(new DOMException("the program was left", "AbortError"));
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.close();
  }

  async #call(method: string, body: object): Promise<void> {
    const message = { process: { pid: this.pid }, ...body };
    await this.#connection.agent(this.sandboxId, "process.Process/" + method, message, this.#user, { signal: this.#leave.signal });
  }
}

const SIGNALS: Record<string, number> = {
  "hangup": 1, "interrupt": 2, "quit": 3, "illegal instruction": 4, "aborted": 6, "bus error": 7,
  "floating point exception": 8, "killed": 9, "segmentation fault": 11, "broken pipe": 13, "alarm clock": 14, "terminated": 15,
};

/** Returns the headers of a program's start: it ends with its caller, and at its limit. */
function limitsOf({ timeoutMs }: SpawnOptions): Record<string, string> {
  const headers = { "Forkd-Kill-On-Disconnect": "1" };
  if (timeoutMs === undefined) return headers;
  if (!(timeoutMs > 0)) throw make(`timeoutMs is ${timeoutMs}, want more than 0`, { code: "invalid_request" });
  // The header has at most ten digits. Such a limit is 115 days.
  return { ...headers, "Connect-Timeout-Ms": String(Math.min(Math.ceil(timeoutMs), 9_999_999_999)) };
}

/** Returns the number of the signal in a status such as `signal: killed`. */
function signalOf(status: string): number {
  const name = status.replace(/^signal: /, "");
  const number = /^signal (\d+)/.exec(name);
  if (number) return Number(number[1]);
  return Object.entries(SIGNALS).find(([known]) => name.startsWith(known))?.[1] ?? 9;
}

/** Returns a command as a list. A string is for the shell. */
export const argumentsOf = (command: string | readonly string[]): string[] =>
  typeof command === "string" ? ["sh", "-c", command] : command.map(String);
