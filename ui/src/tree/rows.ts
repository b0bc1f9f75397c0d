/** The rows of the tree that are not hidden by a closed node or by the filter. */
import { sandboxState, snapshotState } from "../parts/badge";
import { labelsOf } from "../parts/labels";
import type { TreeNode } from "./build";

export interface Row {
  node: TreeNode;
  level: number;
  position: number;
  siblings: number;
  /** Undefined: it has nothing below it. */
  expanded: boolean | undefined;
}

export interface Filter {
  text: string;
  state: string;
}

/** Forks of this size begin closed. */
const LARGE = 50;

export const isExpanded = (node: TreeNode, toggled: ReadonlyMap<string, boolean>): boolean =>
  toggled.get(node.key) ?? !(node.kind === "group" && node.members.length >= LARGE);

/** The state of a node as the filter and its badge name it. A group has none. */
export function stateOf(node: TreeNode): string {
  if (node.kind === "sandbox") return sandboxState(node.sandbox);
  if (node.kind === "snapshot") return snapshotState(node.snapshot);
  return "";
}

function searched(node: TreeNode): string {
  if (node.kind === "sandbox") {
    const s = node.sandbox;
    return [s.id, s.status, s.hostname, s.owner, s.snapshot_tag, s.dns_id, s.fork ? `fork=${s.fork}` : "", ...labelsOf(s.labels)].join(" ").toLowerCase();
  }
  if (node.kind === "snapshot") {
    const s = node.snapshot;
    const marks = [s.transient ? "transient" : "", s.public ? "public" : "", ...labelsOf(s.labels)];
    return [s.tag, stateOf(node), s.image, s.owner, ...marks].join(" ").toLowerCase();
  }
  return node.kind === "gone" ? node.name.toLowerCase() : "";
}

/** Returns the keys of the nodes that match, and of all above them; or null if nothing is filtered. */
export function matches(roots: TreeNode[], filter: Filter): Set<string> | null {
  const words = filter.text.toLowerCase().split(/\s+/).filter(Boolean);
  if (!words.length && !filter.state) return null;
  const kept = new Set<string>();
  const walk = (node: TreeNode): boolean => {
    const text = searched(node);
    let hit = node.kind !== "group" && words.every((w) => text.includes(w)) && (!filter.state || stateOf(node) === filter.state);
    for (const child of node.children) if (walk(child)) hit = true;
    if (hit) kept.add(node.key);
    return hit;
  };
  roots.forEach(walk);
  return kept;
}

export function flatten(roots: TreeNode[], toggled: ReadonlyMap<string, boolean>, kept: Set<string> | null): Row[] {
  const rows: Row[] = [];
  const walk = (list: TreeNode[], level: number): void => {
    const seen = kept ? list.filter((n) => kept.has(n.key)) : list;
    seen.forEach((node, i) => {
      const below = kept ? node.children.some((c) => kept.has(c.key)) : node.children.length > 0;
      // A filter opens what leads to its hits, except where the user has closed it.
      const open = below && (kept ? toggled.get(node.key) ?? true : isExpanded(node, toggled));
      rows.push({ node, level, position: i + 1, siblings: seen.length, expanded: below ? open : undefined });
      if (open) walk(node.children, level + 1);
    });
  };
  walk(roots, 1);
  return rows;
}

/** Every key that can be opened or closed. */
export function openable(roots: TreeNode[]): string[] {
  const keys: string[] = [];
  const walk = (node: TreeNode): void => {
    if (node.children.length) keys.push(node.key);
    node.children.forEach(walk);
  };
  roots.forEach(walk);
  return keys;
}
