/** What a key does in the tree, as in the WAI-ARIA tree pattern. */
import type { Row } from "./rows";

export type Move = { to: number } | { toggle: boolean } | { open: true } | { menu: true } | null;

export function moveOf(e: KeyboardEvent, rows: Row[], at: number, page: number): Move {
  const row = rows[at];
  if (!row || e.ctrlKey || e.altKey || e.metaKey) return null;
  const within = (i: number): Move => ({ to: Math.max(0, Math.min(rows.length - 1, i)) });
  switch (e.key) {
    case "ArrowDown": return within(at + 1);
    case "ArrowUp": return within(at - 1);
    case "PageDown": return within(at + page);
    case "PageUp": return within(at - page);
    case "Home": return within(0);
    case "End": return within(rows.length - 1);
    case "ArrowRight":
      if (row.expanded === false) return { toggle: true };
      return row.expanded ? within(at + 1) : null;
    case "ArrowLeft": {
      if (row.expanded) return { toggle: false };
      for (let i = at - 1; i >= 0; i--) if ((rows[i]?.level ?? 0) < row.level) return within(i);
      return null;
    }
    case "Enter": return { open: true };
    case " ": return row.expanded === undefined ? { open: true } : { toggle: !row.expanded };
    case "F10": return e.shiftKey ? { menu: true } : null;
    case "ContextMenu": return { menu: true };
    default: return null;
  }
}
