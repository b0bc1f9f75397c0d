/** The names of the original forkd's TypeScript client, with its answers: fields as the API has them. */
import "./dispose.js";
import { Forkd, type ForkdOptions } from "./client.js";
import { toWire } from "./case.js";
import type { components } from "./generated/openapi.js";

type Wire = components["schemas"];

/** Options of `Controller.spawnSandboxes`. */
export interface SpawnSandboxesOptions {
  n?: number;
  perChildNetns?: boolean;
  memoryLimitMib?: number;
  prewarm?: boolean;
  liveFork?: boolean;
  hugepages?: boolean;
}

/** Options of `Controller.branchSandbox`. */
export interface BranchSandboxOptions {
  tag?: string;
  mode?: "full" | "diff" | "live";
  wait?: boolean;
  diff?: boolean;
  measureDiff?: boolean;
}

/** The original's client. New programs use `Forkd`. */
export class Controller implements AsyncDisposable {
  readonly #client: Forkd;

  constructor(options: ForkdOptions = {}) {
    this.#client = new Forkd(options);
  }

  toJSON(): object {
    return this.#client.toJSON();
  }

  /** Closes idle connections. Sandboxes keep running. */
  close(): Promise<void> {
    return this.#client.close();
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  async spawnSandboxes(snapshotTag: string, o: SpawnSandboxesOptions = {}): Promise<Wire["SandboxInfo"][]> {
    const { n = 1, ...rest } = o;
    const children = await this.#client.fork(snapshotTag, n, rest);
    return children.map((c) => wire<Wire["SandboxInfo"]>(c.lastInfo!, "SandboxInfo"));
  }

  async branchSandbox(sandboxId: string, o: BranchSandboxOptions = {}): Promise<Wire["BranchResult"]> {
    return wire((await this.#client.sandbox(sandboxId).branch(o)).result, "BranchResult");
  }

  async listSnapshots(): Promise<Wire["SnapshotInfo"][]> {
    return (await this.#client.snapshots.list()).map((s) => wire(s, "SnapshotInfo"));
  }

  async deleteSnapshot(tag: string): Promise<void> {
    await this.#client.snapshot(tag).delete();
  }

  async listSandboxes(): Promise<Wire["SandboxInfo"][]> {
    return (await this.#client.sandboxes.list()).map((s) => wire(s, "SandboxInfo"));
  }

  async getSandbox(sandboxId: string): Promise<Wire["SandboxInfo"]> {
    return wire(await this.#client.sandboxes.get(sandboxId), "SandboxInfo");
  }

  async killSandbox(sandboxId: string): Promise<void> {
    await this.#client.sandbox(sandboxId).kill();
  }

  async execCommand(sandboxId: string, args: readonly string[], o: { timeoutSecs?: number } = {}): Promise<Wire["ExecResponse"]> {
    return wire(await this.#client.sandbox(sandboxId).run(args, o), "ExecResponse");
  }

  async evalCode(sandboxId: string, code: string, o: { timeoutSecs?: number } = {}): Promise<Wire["EvalResponse"]> {
    return wire(await this.#client.sandbox(sandboxId).evalRaw(code, o), "EvalResponse");
  }

  async pingSandbox(sandboxId: string): Promise<Wire["PingResponse"]> {
    return wire(await this.#client.sandbox(sandboxId).ping(), "PingResponse");
  }
}

const wire = <T>(value: object, schema: string): T => toWire(value, schema) as T;
