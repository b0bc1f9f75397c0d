/** Counts of sandboxes by state, the most frequent first. */
import type { Sandbox } from "../api/types";

export function statesOf(sandboxes: Sandbox[]): [state: string, n: number][] {
  const counts = new Map<string, number>();
  for (const s of sandboxes) counts.set(s.status, (counts.get(s.status) ?? 0) + 1);
  return [...counts].sort((a, b) => b[1] - a[1]);
}
