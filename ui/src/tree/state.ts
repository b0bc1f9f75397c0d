/** What the user has opened, closed and typed. It outlives the tree's view. */
import { Store } from "../state/store";
import type { Filter } from "./rows";

export const toggled = new Store<ReadonlyMap<string, boolean>>(new Map());
export const filter = new Store<Filter>({ text: "", state: "" });
export const active = new Store<string>("");

export function toggle(key: string, open: boolean): void {
  toggled.set(new Map(toggled.get()).set(key, open));
}

export function toggleAll(keys: string[], open: boolean): void {
  toggled.set(new Map(keys.map((k) => [k, open])));
}

/** Opens all nodes above a node. */
export function reveal(key: string, parents: Map<string, string>): void {
  const next = new Map(toggled.get());
  let changed = false;
  for (let at = parents.get(key); at; at = parents.get(at)) {
    if (next.get(at) === true) continue;
    next.set(at, true);
    changed = true;
  }
  if (changed) toggled.set(next);
}
