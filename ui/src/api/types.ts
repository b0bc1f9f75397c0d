/** The parts of the API's answers that the page reads. api/openapi.json describes all of them. */

export interface Session {
  name: string;
  tenant: string;
  admin: boolean;
}

export type SandboxStatus = "running" | "failed" | "paused" | "pausing" | "resuming" | "stalled";

export interface SandboxUse {
  cpu_ms: number;
  memory_bytes: number;
  memory_peak_bytes: number;
  disk_read_bytes: number;
  disk_written_bytes: number;
  net_in_bytes?: number;
  net_out_bytes?: number;
  threads: number;
  throttled_ms: number;
}

export interface Life {
  at_end: "kill" | "pause";
  auto_resume?: boolean;
  deadline_unix?: number;
  filesystem_only?: boolean;
  idle_secs?: number;
  unused_secs?: number;
  restart_on_hang?: boolean;
}

export interface NetworkSummary {
  policy: "none" | "public" | "custom" | "tap";
  allow: number;
  deny: number;
  cut?: string[];
  tap?: string;
}

export interface Sandbox {
  id: string;
  snapshot_tag: string;
  status: SandboxStatus;
  index: number;
  fork?: string;
  created_at_unix: number;
  pid: number | null;
  guest_addr: string;
  memory_limit_mib: number | null;
  memory_mib?: number;
  own_memory_kib?: number;
  vcpus?: number;
  cpus?: number;
  cpu_weight?: number;
  disk_limit_mib?: number;
  net_rate_mib?: number;
  hostname?: string;
  dns_id?: string;
  owner?: string;
  forked_by?: string;
  fork_depth?: number;
  guest_fork?: boolean;
  paused_in?: string;
  promoted_from?: string;
  rolled_back_to?: string;
  private_ports?: boolean;
  cold?: boolean;
  reason?: string;
  warning?: string;
  error?: string;
  code?: string;
  labels?: Record<string, string>;
  volumes?: { name: string; path: string; mode?: string }[];
  net_join?: { network: string; alias?: string };
  life?: Life;
  network?: NetworkSummary;
  last_oom?: { at: string; pid: number; process: string };
  timings?: { armed_ms: number; ready_ms: number; resumed_ms: number };
  use?: SandboxUse;
}

export interface NetworkPolicy {
  default?: "deny" | "public";
  allow?: string[];
  deny?: string[];
  https_ports?: number[];
  headers?: { host: string; headers: Record<string, string> }[];
  limits?: { bytes_per_second?: number; dns_per_second?: number; flows?: number; flows_per_second?: number };
}

export interface Snapshot {
  tag: string;
  status: "writing" | "ready" | "failed";
  bootable: boolean;
  created_at_unix: number;
  branched_from?: string;
  parent_tag?: string;
  image?: string;
  image_digest?: string;
  languages?: string[] | null;
  memory_mib?: number;
  vcpus?: number;
  size_bytes?: number;
  pause_ms?: number;
  owner?: string;
  public?: boolean;
  transient?: boolean;
  damaged?: string[] | null;
  warning?: string;
  labels?: Record<string, string>;
  network?: NetworkPolicy;
  timings?: Record<string, number>;
  verified_at_unix?: number;
}

export interface SnapshotDetail extends Snapshot {
  ancestors: string[];
  dependents: string[];
  sandboxes: string[];
  chain_depth: number;
  content_hash?: string;
  digests_ready: boolean;
  disk_logical_bytes: number;
  disk_own_bytes: number;
  disk_physical_bytes: number;
  memory_logical_bytes: number;
  memory_own_bytes: number;
  memory_physical_bytes: number;
  vmstate_bytes: number;
  kernel_version?: string;
}

export interface MemoryUse {
  guest_dirty_kib: number;
  guest_shared_kib: number;
  pss_kib: number;
  vmm_anon_kib: number;
}

export interface SandboxNetwork extends NetworkSummary {
  network: NetworkPolicy;
  effective: NetworkPolicy;
  warning?: string;
}

export interface Flow {
  began: string;
  far: string;
  guest: string;
  name?: string;
  protocol: string;
  received: number;
  sent: number;
  rule?: string;
}

export interface FlowLine {
  time: string;
  verdict: string;
  protocol?: string;
  name?: string;
  far?: string;
  rule?: string;
  reason?: string;
  count?: number;
  bytes_in?: number;
  bytes_out?: number;
  seconds?: number;
}

export interface BranchResult extends Snapshot {
  children?: Sandbox[] | null;
}

export interface PromoteResult {
  kept_in?: string;
  promoted_from: string;
  sandbox: Sandbox;
}

export interface ReceiptSource {
  tag: string;
  content_hash?: string;
  layers: { id: string; kind: string; bytes: number; digest?: string }[];
}

export interface Receipt {
  id: string;
  op: string;
  at_unix_ms: number;
  took_ms: number;
  sandbox?: string;
  snapshot?: string;
  before?: string;
  cold?: boolean;
  error?: string;
  recovered?: boolean;
  steps: { name: string; took_ms: number; bytes?: number }[];
  parent?: ReceiptSource;
  made?: ReceiptSource;
  image?: { name: string; digest: string };
  vm?: { map_ms: number; state_ms: number; pooled: boolean; prepared?: boolean; populated_pages?: number };
  capture?: {
    mode: string; mechanism: string; pause_ms: number; rounds: number; bytes: number; paused_bytes: number;
  };
  identity?: {
    index: number; hostname: string; machine_id: string; parent: string; vm_generation_id?: string;
    entropy_bytes?: number; way?: string;
  };
  guest?: {
    boot_id: string; clock_step_ms: number; kernel_reseeded: boolean; random_digest: string; took_ms: number;
    steps: { name: string; done: boolean; took_ms: number; error?: string }[];
    interpreters: { language: string; reseeded: string[]; later?: boolean; took_ms: number; error?: string }[];
    hooks: { name: string; exit_code: number; took_ms: number; error?: string }[];
  };
}

export interface Resource {
  resource: string;
  total: number;
  free: number;
  reserve: number;
  promised?: number;
  may_promise?: number;
}

export interface Pressure {
  resource: string;
  some_percent: number;
  fewer_percent?: number;
  none_percent?: number;
}

export interface Capacity {
  admits: "all" | "fewer" | "none";
  coming: number;
  sandboxes: number;
  pressure: Pressure[];
  resources: Resource[];
}

export interface Tenant {
  name: string;
  cpu_weight: number;
}

export interface KeyQuotas {
  disk_mib?: number;
  forks_per_minute?: number;
  memory_mib?: number;
  requests_per_second?: number;
  sandboxes?: number;
}

export interface Key {
  id: string;
  name: string;
  tenant?: string;
  status: "active" | "expired" | "revoked";
  scopes: string[];
  quotas: KeyQuotas;
}

export interface Version {
  version: string;
  api: string;
  domain?: string;
}

export interface FileEntry { path: string; mode: string; size_bytes: number; target?: string }
export interface FileChange extends FileEntry { mode_before: string; size_bytes_before: number; what: string[] }
export interface ProcessEntry { pid: number; name: string; args: string[]; pss_kib: number; rss_kib: number; uid: number }
export interface ProcessChange extends ProcessEntry { pss_kib_before: number; rss_kib_before: number }
export interface PackageEntry { name: string; architecture: string; version: string }
export interface PackageChange extends PackageEntry { version_before: string }

export interface SnapshotDiff {
  before: string;
  after: string;
  took_ms: number;
  files: { added: FileEntry[]; removed: FileEntry[]; changed: FileChange[]; compared: number; complete: boolean };
  processes: { started: ProcessEntry[]; ended: ProcessEntry[]; changed: ProcessChange[]; complete: boolean };
  packages: { added: PackageEntry[]; removed: PackageEntry[]; changed: PackageChange[]; complete: boolean };
}

export interface MergeResult {
  applied: boolean;
  base: string;
  complete: boolean;
  unresolved: number;
  changes: { path: string; action: "added" | "modified" | "deleted" | "merged" }[];
  conflicts: { path: string; kind: string; text: string }[];
  skipped: { path?: string; why: string }[];
}

export interface ForkdEvent {
  id: number;
  time: string;
  kind: string;
  sandbox?: string;
  snapshot?: string;
  owner?: string;
  detail?: Record<string, string>;
}
