/** One row of the tree. A row that has not changed is not drawn again: scrolling draws only the rows that appear. */
import { Component } from "preact";
import { Badge } from "../parts/badge";
import { bytes, count, kib, span } from "../parts/format";
import { Box, Camera, Chevron, Dots, Stack } from "../parts/icons";
import { statesOf } from "../state/states";
import type { TreeNode } from "./build";
import { stateOf, type Row } from "./rows";

export const ROW = 36;

export interface RowProps {
  row: Row;
  index: number;
  now: number;
  active: boolean;
  shown: boolean;
  on: RowEvents;
}

/** The same object in every rendering, so that rows can be compared. */
export interface RowEvents {
  open: (row: Row) => void;
  toggle: (row: Row) => void;
  menu: (row: Row, at: Element) => void;
}

export class TreeRow extends Component<RowProps> {
  override shouldComponentUpdate(next: RowProps): boolean {
    const { row: a, ...p } = this.props;
    const { row: b, ...q } = next;
    return a.node !== b.node && !same(a.node, b.node) || a.level !== b.level || a.position !== b.position ||
      a.siblings !== b.siblings || a.expanded !== b.expanded || p.index !== q.index || p.active !== q.active ||
      p.shown !== q.shown || p.now !== q.now && age(a.node, p.now) !== age(b.node, q.now);
  }

  override render({ row, index, now, active, shown, on }: RowProps) {
    const { node, level } = row;
    const state = stateOf(node);
    const memory = memoryOf(node);
    const old = age(node, now);
    const menu = (e: Event): void => {
      e.preventDefault();
      e.stopPropagation();
      on.menu(row, e.currentTarget as Element);
    };
    return (
      <div class={`row ${node.kind}${shown ? " shown" : ""}`} role="treeitem" data-key={node.key}
        aria-level={level} aria-posinset={row.position} aria-setsize={row.siblings} aria-expanded={row.expanded}
        aria-selected={shown} tabIndex={active ? 0 : -1} style={{ transform: `translateY(${index * ROW}px)`, "--level": level }}
        onClick={() => on.open(row)} onContextMenu={menu}>
        <span class="name">
          {row.expanded === undefined
            ? <span class="twist" />
            : <span class={`twist${row.expanded ? " open" : ""}`} onClick={(e) => { e.stopPropagation(); on.toggle(row); }}><Chevron /></span>}
          {node.kind === "sandbox" ? <Box /> : node.kind === "group" ? <Stack /> : <Camera />}
          <span class="unseen">{kinds[node.kind]} </span>
          <span class="id">{node.name}</span>
          <span class="note">{noteOf(node)}</span>
        </span>
        <span class="state">{node.kind === "group" ? <GroupStates node={node} /> : state && <Badge text={state} />}</span>
        <span class="figure memory">{memory}</span>
        <span class="figure age">{old}</span>
        {node.kind === "gone" ? <span /> : (
          <button type="button" class="quiet dots" tabIndex={active ? 0 : -1} aria-label="Actions"
            aria-haspopup="menu" onClick={menu}>
            <Dots />
          </button>
        )}
      </div>
    );
  }
}

const kinds = { sandbox: "Sandbox", snapshot: "Snapshot", group: "Group", gone: "Missing snapshot" };

function GroupStates({ node }: { node: TreeNode & { kind: "group" } }) {
  const states = statesOf(node.members.map((m) => m.sandbox));
  return <Badge text={states.length === 1 ? states[0]?.[0] ?? "" : "mixed"} />;
}

function same(a: TreeNode, b: TreeNode): boolean {
  if (a.kind === "sandbox" && b.kind === "sandbox") return a.sandbox === b.sandbox;
  if (a.kind === "snapshot" && b.kind === "snapshot") return a.snapshot === b.snapshot;
  if (a.kind === "group" && b.kind === "group") {
    return a.key === b.key && a.members.length === b.members.length && a.members.every((m, i) => m.sandbox === b.members[i]?.sandbox);
  }
  return a.key === b.key;
}

function noteOf(node: TreeNode): string {
  if (node.kind === "group") {
    const states = statesOf(node.members.map((m) => m.sandbox));
    const detail = states.length > 1 ? ": " + states.map(([state, n]) => `${n} ${state}`).join(", ") : "";
    return count(node.members.length, "sandbox", "sandboxes") + detail;
  }
  if (node.kind === "gone") return "deleted, or not yours";
  if (node.kind === "snapshot") {
    const s = node.snapshot;
    const what = s.transient ? "transient" : s.branched_from ? "branch" : s.image ? `image ${s.image}` : "";
    return [what, s.public && "public", s.owner].filter(Boolean).join(" · ");
  }
  const s = node.sandbox;
  return [s.forked_by && "forked by its parent", s.rolled_back_to && "rolled back", s.promoted_from && "promoted", s.owner].filter(Boolean).join(" · ");
}

function memoryOf(node: TreeNode): string {
  if (node.kind === "sandbox") {
    const s = node.sandbox;
    if (s.own_memory_kib) return kib(s.own_memory_kib);
    return s.use?.memory_bytes ? bytes(s.use.memory_bytes) : "–";
  }
  if (node.kind === "group") return kib(node.members.reduce((sum, m) => sum + (m.sandbox.own_memory_kib ?? 0), 0));
  return node.kind === "snapshot" ? bytes(node.snapshot.size_bytes) : "";
}

const age = (node: TreeNode, now: number): string => (node.created ? span(now - node.created) : "");
