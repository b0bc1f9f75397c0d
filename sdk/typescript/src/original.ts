/** The names of the original forkd's TypeScript client, with its answers: fields as the API has them. */
import { Forkd, type ForkdOptions } from "./client.js";
import { toWire } from "./case.js";
import type { components } from "./generated/openapi.js";

type Wire = components["schemas"];

/** The original's client. New programs use `Forkd`. */
export class Controller {
  readonly #client: Forkd;

  constructor(options: ForkdOptions = {}) {
    this.#client = new Forkd(options);
  }

  toJSON(): object {
    return this.#client.toJSON();
  }

  async spawnSandboxes(snapshotTag: string, o: { n?: number; perChildNetns?: boolean; memoryLimitMib?: number } = {}):
    Promise<Wire["SandboxInfo"][]> {
    const { n = 1, ...rest } = o;
    const children = await this.#client.fork(snapshotTag, n, rest);
    return children.map((c) => wire<Wire["SandboxInfo"]>(c.lastInfo!, "SandboxInfo"));
  }

  async branchSandbox(id: string, o: { tag?: string; mode?: "full" | "diff" | "live"; wait?: boolean } = {}):
    Promise<Wire["BranchResult"]> {
    return wire((await this.#client.sandbox(id).branch(o)).result, "BranchResult");
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

  async getSandbox(id: string): Promise<Wire["SandboxInfo"]> {
    return wire(await this.#client.sandboxes.get(id), "SandboxInfo");
  }

  async killSandbox(id: string): Promise<void> {
    await this.#client.sandbox(id).kill();
  }

  async execCommand(id: string, args: readonly string[], o: { timeoutSecs?: number } = {}): Promise<Wire["ExecResponse"]> {
    return wire(await this.#client.sandbox(id).run(args, o), "ExecResponse");
  }

  async evalCode(id: string, code: string): Promise<Wire["EvalResponse"]> {
    return wire(await this.#client.sandbox(id).evalRaw(code), "EvalResponse");
  }

  async pingSandbox(id: string): Promise<Wire["PingResponse"]> {
    return wire(await this.#client.sandbox(id).ping(), "PingResponse");
  }
}

const wire = <T>(value: object, schema: string): T => toWire(value, schema) as T;
