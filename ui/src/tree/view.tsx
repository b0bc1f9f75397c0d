/** The tree: a toolbar, and a list in which only the rows in view are in the page. */
import { useEffect, useLayoutEffect, useMemo, useRef } from "preact/hooks";
import { menuOf } from "../actions/menus";
import { count } from "../parts/format";
import { openMenu } from "../parts/menu";
import { clock } from "../state/clock";
import { go, toSandbox, toSnapshot } from "../state/route";
import { useStore } from "../state/store";
import { world } from "../state/world";
import { buildTree } from "./build";
import { moveOf } from "./keys";
import { flatten, matches, openable, type Row } from "./rows";
import { ROW, TreeRow, type RowEvents } from "./row";
import { active, filter, reveal, toggle, toggleAll, toggled } from "./state";
import { Toolbar } from "./toolbar";
import { useVisible } from "./virtual";

function open(row: Row): void {
  const { node } = row;
  if (node.kind === "sandbox") go(toSandbox(node.sandbox.id));
  else if (node.kind === "snapshot") go(toSnapshot(node.snapshot.tag));
  else if (row.expanded !== undefined) toggle(node.key, !row.expanded);
}

/** `shown` is the key of the object whose details are on the page. */
export function TreeView({ shown }: { shown: string }) {
  const { sandboxes, snapshots, loaded, error } = useStore(world);
  const openKeys = useStore(toggled);
  const wanted = useStore(filter);
  const activeKey = useStore(active);
  const now = useStore(clock);

  const tree = useMemo(() => buildTree(sandboxes, snapshots), [sandboxes, snapshots]);
  const kept = useMemo(() => matches(tree.roots, wanted), [tree, wanted]);
  const rows = useMemo(() => flatten(tree.roots, openKeys, kept), [tree, openKeys, kept]);

  const box = useRef<HTMLDivElement>(null);
  const { first, last } = useVisible(box, rows.length, ROW);
  const found = rows.findIndex((r) => r.node.key === activeKey);
  const at = Math.max(0, found);
  const takeFocus = useRef(false);

  const activate = (i: number): void => {
    const key = rows[i]?.node.key;
    if (!key) return;
    active.set(key);
    takeFocus.current = true;
    scrollTo(box.current, i);
  };

  // Back from the details, the tree is where it was left.
  useLayoutEffect(() => {
    if (found < 0 || shown) return;
    takeFocus.current = document.activeElement === document.body;
    scrollTo(box.current, found);
  }, []);

  useLayoutEffect(() => {
    if (!takeFocus.current) return;
    takeFocus.current = false;
    box.current?.querySelector<HTMLElement>("[role=treeitem][tabindex='0']")?.focus({ preventScroll: true });
  });

  // A link from elsewhere leads to a row that may be hidden.
  const revealed = useRef("");
  useEffect(() => {
    if (!shown || !loaded || revealed.current === shown) return;
    reveal(shown, tree.parents);
    active.set(shown);
    const i = flatten(tree.roots, toggled.get(), kept).findIndex((r) => r.node.key === shown);
    if (i < 0) return;
    revealed.current = shown;
    requestAnimationFrame(() => scrollTo(box.current, i));
  }, [shown, loaded, tree]);

  // Rows compare their properties, so the functions must stay the same objects.
  const latest = useRef(activate);
  latest.current = activate;
  const current = useRef(rows);
  current.current = rows;
  const on = useMemo<RowEvents>(() => {
    const touch = (row: Row): void => active.set(row.node.key);
    return {
      open: (row) => { touch(row); open(row); },
      toggle: (row) => { touch(row); toggle(row.node.key, !row.expanded); },
      menu: (row, at) => { touch(row); showMenu(row, at); },
    };
  }, []);

  const onKeyDown = (e: KeyboardEvent): void => {
    if ((e.target as Element).closest("button")) return; // the keys of a row's button are its own
    const page = Math.max(1, Math.floor((box.current?.clientHeight ?? ROW) / ROW) - 1);
    const move = moveOf(e, rows, at, page);
    const row = rows[at];
    if (!move || !row) return;
    e.preventDefault();
    if ("to" in move) activate(move.to);
    else if ("toggle" in move) { toggle(row.node.key, move.toggle); takeFocus.current = true; }
    else if ("open" in move) open(row);
    else {
      const el = box.current?.querySelector(`[data-key="${CSS.escape(row.node.key)}"]`);
      if (el) showMenu(row, el);
    }
  };

  const indexes: number[] = [];
  for (let i = first; i < last; i++) indexes.push(i);
  // The row with the focus stays in the page, or the focus would be lost when it is scrolled away.
  if (rows.length && (at < first || at >= last)) indexes.push(at);

  return (
    <div class="tree-panel">
      <Toolbar onOpenAll={() => toggleAll(openable(tree.roots), true)} onCloseAll={() => toggleAll(openable(tree.roots), false)} />
      <div class="tree-head" aria-hidden="true">
        <span>Name</span><span>State</span><span class="figure memory">Memory</span><span class="figure age">Age</span><span />
      </div>
      <div ref={box} class="tree-scroll" onKeyDown={onKeyDown}>
        {rows.length > 0 && (
          <div class="tree" role="tree" aria-label="Snapshots and sandboxes" style={{ height: `${rows.length * ROW}px` }}>
            {indexes.map((i) => {
              const row = rows[i];
              return row && (
                <TreeRow key={row.node.key} row={row} index={i} now={now} active={i === at} shown={row.node.key === shown} on={on} />
              );
            })}
          </div>
        )}
        {!rows.length && <Empty loaded={loaded} filtered={kept !== null} />}
      </div>
      <p class="tree-foot" role={kept || error ? "status" : undefined}>
        {error ? <span class="bad-text">{error}</span>
          : loaded ? `${count(snapshots.length, "snapshot")}, ${count(sandboxes.length, "sandbox", "sandboxes")}${kept ? `, ${count(rows.length, "row")} shown` : ""}`
          : "Reading the lists …"}
      </p>
    </div>
  );
}

function showMenu(row: Row, at: Element): void {
  const { node } = row;
  if (node.kind === "gone") return;
  const back = at.closest<HTMLElement>("[role=treeitem]");
  openMenu(`Actions of ${node.name}`, menuOf(node), at.querySelector(".dots") ?? at, back);
}

function scrollTo(box: HTMLElement | null, i: number): void {
  if (!box) return;
  const top = i * ROW;
  if (top < box.scrollTop) box.scrollTop = top - ROW;
  else if (top + ROW > box.scrollTop + box.clientHeight) box.scrollTop = top + 2 * ROW - box.clientHeight;
}

function Empty({ loaded, filtered }: { loaded: boolean; filtered: boolean }) {
  if (!loaded) return <p class="empty">Reading the lists …</p>;
  if (filtered) return <p class="empty">Nothing matches the filter.</p>;
  return <p class="empty">There is no snapshot yet. Make one with <code>forkd snapshot create --image python-numpy --tag py</code>.</p>;
}
