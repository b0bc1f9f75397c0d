/** Makes the tree of what came from what out of the two lists. */
import type { Sandbox, Snapshot } from "../api/types";

export type TreeNode = SnapshotNode | SandboxNode | GroupNode | GoneNode;

interface Base {
  key: string;
  name: string;
  created: number;
  children: TreeNode[];
}
export interface SnapshotNode extends Base { kind: "snapshot"; snapshot: Snapshot }
export interface SandboxNode extends Base { kind: "sandbox"; sandbox: Sandbox }
/** The sandboxes of one fork. */
export interface GroupNode extends Base { kind: "group"; members: SandboxNode[] }
/** A snapshot that is not in the list: deleted by force, or another tenant's. */
export interface GoneNode extends Base { kind: "gone" }

export const snapshotKey = (tag: string): string => "s:" + tag;
export const sandboxKey = (id: string): string => "b:" + id;

/** From this number of siblings on, the sandboxes of one fork are a group. */
const GROUP = 5;

export interface Tree {
  roots: TreeNode[];
  /** The node above each node, by key. */
  parents: Map<string, string>;
}

export function buildTree(sandboxes: Sandbox[], snapshots: Snapshot[]): Tree {
  const nodes = new Map<string, TreeNode>();
  for (const s of snapshots) {
    const key = snapshotKey(s.tag);
    nodes.set(key, { kind: "snapshot", key, name: s.tag, created: s.created_at_unix, children: [], snapshot: s });
  }
  for (const s of sandboxes) {
    const key = sandboxKey(s.id);
    nodes.set(key, { kind: "sandbox", key, name: s.id, created: s.created_at_unix, children: [], sandbox: s });
  }
  const above = placeAll(sandboxes, snapshots, nodes);
  hidePauses(sandboxes, nodes, above);
  const roots: TreeNode[] = [];
  for (const [key, node] of nodes) {
    const parent = nodes.get(above.get(key) ?? "");
    (parent ? parent.children : roots).push(node);
  }
  const parents = new Map<string, string>();
  finish(roots, "", parents);
  return { roots, parents };
}

/** Chooses the node above each node. */
function placeAll(sandboxes: Sandbox[], snapshots: Snapshot[], nodes: Map<string, TreeNode>): Map<string, string> {
  const above = new Map<string, string>();
  for (const s of sandboxes) {
    const from = snapshotKey(s.snapshot_tag);
    const forker = sandboxKey(s.forked_by ?? "");
    if (nodes.has(from)) above.set(sandboxKey(s.id), from);
    else if (s.forked_by && nodes.has(forker)) above.set(sandboxKey(s.id), forker);
    else if (s.snapshot_tag) above.set(sandboxKey(s.id), gone(nodes, s.snapshot_tag));
  }
  // Oldest first: a rollback puts a sandbox below its own branch, and then the branch goes below its snapshot's parent.
  for (const s of [...snapshots].sort((a, b) => a.created_at_unix - b.created_at_unix)) {
    const key = snapshotKey(s.tag);
    const places = [s.branched_from && sandboxKey(s.branched_from), s.parent_tag && snapshotKey(s.parent_tag)];
    const place = places.find((p) => p && nodes.has(p) && !leadsTo(above, p, key));
    if (place) above.set(key, place);
  }
  return above;
}

/** A paused sandbox is a snapshot under its own id. The row of the sandbox stands for both. */
function hidePauses(sandboxes: Sandbox[], nodes: Map<string, TreeNode>, above: Map<string, string>): void {
  const used = new Set(above.values());
  for (const s of sandboxes) {
    if (s.status !== "paused" || !s.paused_in) continue;
    const key = snapshotKey(s.paused_in);
    if (!used.has(key)) nodes.delete(key);
  }
}

function gone(nodes: Map<string, TreeNode>, tag: string): string {
  const key = "x:" + tag;
  if (!nodes.has(key)) nodes.set(key, { kind: "gone", key, name: tag, created: 0, children: [] });
  return key;
}

/** Reports whether key is at or above from. */
function leadsTo(above: Map<string, string>, from: string, key: string): boolean {
  for (let at: string | undefined = from; at; at = above.get(at)) if (at === key) return true;
  return false;
}

function finish(list: TreeNode[], parent: string, parents: Map<string, string>): void {
  list.sort((a, b) => a.created - b.created || index(a) - index(b) || a.name.localeCompare(b.name, "en", { numeric: true }));
  group(list, parent);
  for (const node of list) {
    if (parent) parents.set(node.key, parent);
    if (node.kind === "group") for (const m of node.members) { parents.set(m.key, node.key); finish(m.children, m.key, parents); }
    else finish(node.children, node.key, parents);
  }
}

/** The fork of a sandbox, by its first child. A sandbox of an older daemon has none, and is in no group. */
const forkOf = (s: Sandbox): string => s.fork ?? s.id;

const index = (n: TreeNode): number => (n.kind === "sandbox" ? n.sandbox.index : 0);

function group(list: TreeNode[], parent: string): void {
  const forks = new Map<string, SandboxNode[]>();
  for (const n of list) {
    if (n.kind !== "sandbox") continue;
    const fork = forkOf(n.sandbox);
    const members = forks.get(fork);
    if (members) members.push(n);
    else forks.set(fork, [n]);
  }
  for (const [fork, members] of forks) {
    if (members.length < GROUP) continue;
    members.sort((a, b) => index(a) - index(b)); // their times may differ
    const inside = new Set<TreeNode>(members);
    const at = list.findIndex((n) => inside.has(n));
    const node: GroupNode = {
      kind: "group", key: `g:${parent}:${fork}:`, name: `Fork ${fork.replace(/^sb-/, "")}`,
      created: members[0]?.created ?? 0, children: members, members,
    };
    list.splice(0, list.length, ...list.slice(0, at), node, ...list.slice(at).filter((n) => !inside.has(n)));
  }
}
