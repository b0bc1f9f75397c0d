/** One sandbox as the AI SDK sees it. */
import path from "node:path/posix";
import type { HarnessV1NetworkPolicy, HarnessV1NetworkSandboxSession, HarnessV1PortEndpoint } from "@ai-sdk/harness";
import { ConflictError, NotFoundError, type Forkd, type Process, type Sandbox } from "@forkd/sdk";
import { policyOf, type ForkdSandboxOptions } from "./index.js";

type Restricted = ReturnType<HarnessV1NetworkSandboxSession["restricted"]>;
type Run = Parameters<HarnessV1NetworkSandboxSession["run"]>[0];
type Spawned = Awaited<ReturnType<HarnessV1NetworkSandboxSession["spawn"]>>;

/** A session. `fork` and `branch` are forkd's own; the rest is the AI SDK's interface. */
export class ForkdSession implements HarnessV1NetworkSandboxSession {
  readonly id: string;
  readonly description: string;
  readonly #forwards = new Map<number, { address: string; close(): Promise<void> }>();

  private constructor(private readonly client: Forkd, /** The sandbox of forkd's client. */ readonly sandbox: Sandbox,
    private readonly options: ForkdSandboxOptions, readonly defaultWorkingDirectory: string, readonly workspace?: string,
    /** Snapshot of a fork. The last sibling that ends deletes it. */ private readonly origin?: string) {
    this.id = sandbox.id;
    const ports = options.ports?.length ? ` Servers may use the ports ${options.ports.join(", ")}.` : "";
    this.description = `A Linux virtual machine. Commands run in a shell, in ${defaultWorkingDirectory}.${ports}`;
  }

  /** @internal */
  static async open(client: Forkd, sandbox: Sandbox, o: ForkdSandboxOptions, workspace: string | undefined): Promise<ForkdSession> {
    const home = o.workingDirectory ?? (await sandbox.exec("cd; pwd")).check().stdout.trim();
    if (o.workingDirectory) await sandbox.files.mkdir(o.workingDirectory, { existOk: true });
    return new ForkdSession(client, sandbox, o, home, workspace);
  }

  get ports(): readonly number[] {
    return this.options.ports ?? [];
  }

  /** Forks the session at this moment: memory, processes and files. Each fork is a session of its own. */
  async fork(n = 1): Promise<ForkdSession[]> {
    const branch = await this.sandbox.branch({ n });
    try {
      if (branch.errors[0]) throw branch.errors[0];
    } catch (e) {
      await Promise.allSettled(branch.children.map((c) => c.kill()));
      await this.client.snapshot(branch.tag).delete().catch(unlessUsed);
      throw e;
    }
    return branch.children.map((c) =>
      new ForkdSession(this.client, c, this.options, this.defaultWorkingDirectory, undefined, branch.tag));
  }

  /** Saves the session as a snapshot, and returns its tag. `rollback` goes back to it. */
  async branch(): Promise<string> {
    return (await this.sandbox.branch()).tag;
  }

  /** Puts the session back to a snapshot that `branch` made. */
  async rollback(tag: string): Promise<void> {
    await this.sandbox.rollback(tag);
  }

  #at(name: string): string {
    return path.resolve(this.defaultWorkingDirectory, name);
  }

  readonly readFile = async ({ path: name, abortSignal: signal }: { path: string; abortSignal?: AbortSignal }) => {
    if (!(await this.sandbox.files.exists(this.#at(name), { signal }))) return null;
    return streamOf(this.sandbox.files.open(this.#at(name), { signal }));
  };

  readonly readBinaryFile = async ({ path: name, abortSignal: signal }: { path: string; abortSignal?: AbortSignal }) => {
    try {
      return await this.sandbox.files.read(this.#at(name), { signal });
    } catch (e) {
      if (e instanceof NotFoundError && !e.requestId) return null; // the file, and not the sandbox
      throw e;
    }
  };

  readonly readTextFile = async (o: { path: string; encoding?: string; startLine?: number; endLine?: number; abortSignal?: AbortSignal }) => {
    const bytes = await this.readBinaryFile(o);
    if (bytes === null) return null;
    const text = new TextDecoder(o.encoding ?? "utf-8").decode(bytes);
    if (o.startLine === undefined && o.endLine === undefined) return text;
    return text.split(/(?<=\n)/).slice((o.startLine ?? 1) - 1, o.endLine).join("");
  };

  readonly writeFile = async ({ path: name, content, abortSignal: signal }: { path: string; content: ReadableStream<Uint8Array>; abortSignal?: AbortSignal }) => {
    await this.sandbox.files.write(this.#at(name), content as unknown as AsyncIterable<Uint8Array>, { signal });
  };

  readonly writeBinaryFile = async ({ path: name, content, abortSignal: signal }: { path: string; content: Uint8Array; abortSignal?: AbortSignal }) => {
    await this.sandbox.files.write(this.#at(name), content, { signal });
  };

  readonly writeTextFile = async (o: { path: string; content: string; encoding?: string; abortSignal?: AbortSignal }) => {
    await this.writeBinaryFile({ ...o, content: Buffer.from(o.content, (o.encoding ?? "utf-8") as BufferEncoding) });
  };

  readonly run = async ({ command, workingDirectory, env, abortSignal: signal }: Run) => {
    const got = await this.sandbox.exec(command, { cwd: this.#at(workingDirectory ?? "."), env, signal });
    return { exitCode: got.exitCode, stdout: got.stdout, stderr: got.stderr };
  };

  readonly spawn = async ({ command, workingDirectory, env, abortSignal: signal }: Run): Promise<Spawned> =>
    spawned(await this.sandbox.spawn(command, { cwd: this.#at(workingDirectory ?? "."), env, signal, stdin: false }), signal);

  readonly getPortEndpoint = async ({ port, protocol = "http" }: { port: number; protocol?: "http" | "https" | "ws" }): Promise<HarnessV1PortEndpoint> => {
    let forward = this.#forwards.get(port);
    if (!forward) this.#forwards.set(port, forward = await this.sandbox.forwardPort(port));
    return { url: `${protocol}://${forward.address}` };
  };

  readonly getPortUrl = async (o: { port: number; protocol?: "http" | "https" | "ws" }) => (await this.getPortEndpoint(o)).url;

  readonly setNetworkPolicy = async (policy: HarnessV1NetworkPolicy) => {
    await this.sandbox.setNetwork(policyOf(policy));
  };

  /** Pauses a session with a workspace. Any other session ends. */
  readonly stop = async () => {
    await this.#closeForwards();
    if (this.workspace === undefined) return this.#kill();
    const { status } = await this.client.workspaces.get(this.workspace);
    if (status === "running") await this.client.workspaces.suspend(this.workspace);
  };

  /** Ends the session, whether it runs or is stopped. */
  readonly destroy = async () => {
    await this.#closeForwards();
    if (this.workspace !== undefined) await this.client.workspaces.delete(this.workspace).catch(unlessGone);
    await this.#kill();
  };

  readonly restricted = (): Restricted => {
    const { description, readFile, readBinaryFile, readTextFile, writeFile, writeBinaryFile, writeTextFile, spawn, run } = this;
    return { description, readFile, readBinaryFile, readTextFile, writeFile, writeBinaryFile, writeTextFile, spawn, run };
  };

  async #closeForwards(): Promise<void> {
    const all = [...this.#forwards.values()];
    this.#forwards.clear();
    await Promise.all(all.map((f) => f.close()));
  }

  async #kill(): Promise<void> {
    await this.sandbox.kill().catch(unlessGone);
    if (this.origin !== undefined) await this.client.snapshot(this.origin).delete().catch(unlessUsed);
  }
}

/** A sibling may still use the snapshot, or may have deleted it. */
function unlessUsed(e: unknown): void {
  if (!(e instanceof ConflictError)) unlessGone(e);
}

function unlessGone(e: unknown): void {
  if (!(e instanceof NotFoundError)) throw e;
}

function streamOf(pieces: AsyncGenerator<Uint8Array>): ReadableStream<Uint8Array> {
  return new ReadableStream({
    async pull(to) {
      const { done, value } = await pieces.next();
      if (done) to.close();
      else to.enqueue(value);
    },
    async cancel() {
      await pieces.return(undefined);
    },
  });
}

/** Bytes of output that are kept for a stream which is not read. */
const MAX_UNREAD = 16 << 20;

/** Returns a process with two streams. Output beyond MAX_UNREAD is lost, so a server is not stopped by an unread log. */
function spawned(p: Process, signal: AbortSignal | undefined): Spawned {
  const to: Record<"stdout" | "stderr", ReadableStreamDefaultController<Uint8Array> | undefined> = { stdout: undefined, stderr: undefined };
  const open = { stdout: true, stderr: true };
  const stream = (name: "stdout" | "stderr"): ReadableStream<Uint8Array> => new ReadableStream<Uint8Array>({
    start(c) { to[name] = c; },
    cancel() { open[name] = false; },
  }, { highWaterMark: MAX_UNREAD, size: (d?: Uint8Array) => d?.length ?? 0 });
  const put = (name: "stdout" | "stderr", data: Uint8Array): void => {
    if (open[name] && to[name]!.desiredSize! > 0) to[name]!.enqueue(data);
  };
  const stdout = stream("stdout"), stderr = stream("stderr");
  const ended = (async () => {
    try {
      const end = await p.wait({
        onStdout: (data) => put("stdout", data), onStderr: (data) => put("stderr", data),
      });
      for (const name of ["stdout", "stderr"] as const) if (open[name]) to[name]!.close();
      return { exitCode: end.exitCode };
    } catch (e) {
      const reason: unknown = signal?.aborted ? signal.reason : e;
      for (const name of ["stdout", "stderr"] as const) if (open[name]) to[name]!.error(reason);
      throw reason;
    }
  })();
  ended.catch(() => {}); // a caller that does not wait sees the error in the streams
  return { pid: p.pid, stdout, stderr, wait: () => ended, kill: () => p.kill().catch(unlessGone) };
}
