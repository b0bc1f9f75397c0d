/** Changes of sandboxes and snapshots. */
import { call, post, sandboxPath, snapshotPath } from "./request";
import type { BranchResult, PromoteResult, Sandbox, SandboxNetwork } from "./types";

export interface ForkRequest {
  snapshot_tag: string;
  n: number;
  net?: "none" | "public";
  ttl_secs?: number;
  at_end?: "kill" | "pause";
}

export const fork = (r: ForkRequest): Promise<Sandbox[]> => post("/v1/sandboxes", r);

export interface BranchRequest {
  tag?: string;
  n?: number;
  mode?: "live" | "diff" | "full";
}

export const branch = (id: string, r: BranchRequest): Promise<BranchResult> => post(sandboxPath(id, "/branch"), r);

export const rollback = (id: string, tag: string): Promise<Sandbox> =>
  post(sandboxPath(id, "/rollback"), { snapshot_tag: tag });

export const pause = (id: string, filesystemOnly: boolean): Promise<Sandbox> =>
  post(sandboxPath(id, "/pause"), filesystemOnly ? { filesystem_only: true } : {});

export const resume = (id: string): Promise<Sandbox> => call("POST", sandboxPath(id, "/resume"));

export const kill = (id: string): Promise<void> => call("DELETE", sandboxPath(id));

export const promote = (id: string, parent: "pause" | "kill", place: string): Promise<PromoteResult> =>
  post(sandboxPath(id, "/promote"), { parent, ...(place ? { place } : {}) });

export const deleteSnapshot = (tag: string, cascade: boolean): Promise<void> =>
  call("DELETE", snapshotPath(tag), { query: { cascade } });

export const setNetwork = (id: string, request: object): Promise<SandboxNetwork> =>
  call("PUT", sandboxPath(id, "/network"), { json: request });
