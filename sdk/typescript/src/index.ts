/** Client of forkd: fork running virtual machines, run programs and code in them, branch them. */
export { Forkd, type ForkdOptions, type KeepOptions } from "./client.js";
export { Branch, Sandbox, type BranchOptions, type EvalOptions, type ExecOptions, type Policy, type PromoteOptions,
  type UntilOptions } from "./sandbox.js";
export { Forks, Snapshot, type ForkOptions } from "./snapshot.js";
export { Entry, Files, type Change, type Content } from "./files.js";
export { ExecResult, MAX_OUTPUT, Output, Process, type Input, type ProgramOptions, type Size, type SpawnOptions,
  type WaitOptions } from "./process.js";
export type { AuditOptions, CreateSnapshotOptions, EventsOptions, Images, Keys, ListOptions, Pools, Receipts, Sandboxes,
  PrivateNetworks, Secrets, Snapshots, Store, Tenants, Volumes, Workspaces } from "./admin.js";
export type { AddressOptions } from "./address.js";
export type { CallOptions, TraceParent } from "./connection.js";
export type { PortForward } from "./ports.js";
export * from "./errors.js";
export type * from "./generated/models.js";
export { Controller, type BranchSandboxOptions, type SpawnSandboxesOptions } from "./original.js";
export { VERSION } from "./version.js";
