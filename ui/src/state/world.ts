/** The lists of snapshots and sandboxes, as last read. */
import { shown } from "../api/error";
import { get } from "../api/request";
import type { Sandbox, Snapshot } from "../api/types";
import { Store } from "./store";

export interface World {
  sandboxes: Sandbox[];
  snapshots: Snapshot[];
  loaded: boolean;
  error: string;
}

export const emptyWorld: World = { sandboxes: [], snapshots: [], loaded: false, error: "" };
export const world = new Store<World>(emptyWorld);

let running: Promise<void> | undefined;
let again = false;

/** Reads the lists. A call during another one causes one more reading, so that its caller sees its own change. */
export function refresh(): Promise<void> {
  if (running) {
    again = true;
    return running;
  }
  running = (async () => {
    do {
      again = false;
      await read();
    } while (again);
  })().finally(() => (running = undefined));
  return running;
}

async function read(): Promise<void> {
  try {
    const [sandboxes, snapshots] = await Promise.all([
      get<Sandbox[] | null>("/v1/sandboxes"), get<Snapshot[] | null>("/v1/snapshots"),
    ]);
    const before = world.get();
    world.set({
      sandboxes: keepSame(before.sandboxes, sandboxes ?? [], (s) => s.id),
      snapshots: keepSame(before.snapshots, snapshots ?? [], (s) => s.tag),
      loaded: true, error: "",
    });
  } catch (e) {
    world.set({ ...world.get(), error: shown(e).message });
  }
}

/** Takes objects that have not changed from the old list, so that their rows are not drawn again. */
function keepSame<T>(before: T[], after: T[], name: (v: T) => string): T[] {
  const old = new Map(before.map((v) => [name(v), v]));
  return after.map((v) => {
    const was = old.get(name(v));
    return was && JSON.stringify(was) === JSON.stringify(v) ? was : v;
  });
}
