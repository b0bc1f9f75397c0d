/** Follows the daemon's events, and reads the lists again after them. */
import { isAbort } from "../api/error";
import { open } from "../api/request";
import { serverEvents } from "../api/stream";
import type { ForkdEvent } from "../api/types";
import { Store } from "./store";
import { emptyWorld, refresh, world } from "./world";

export type Link = "connecting" | "live" | "waiting" | "sleeping";

/** The state of the stream of events. */
export const link = new Store<Link>("connecting");

/** The last event. Views that show one object read it again when an event names it. */
export const lastEvent = new Store<ForkdEvent | null>(null);

/** The last events, newest first. */
export const recent = new Store<ForkdEvent[]>([]);

/** Events that are kept for the list. */
const KEPT = 60;

/** Wait after an event, so that the hundred events of one fork cause one reading. */
const SETTLE = 250;
/** Longest wait while events keep coming. */
const PATIENCE = 1500;
/** Figures of memory change without events. */
const FIGURES = 20_000;

let timer: ReturnType<typeof setTimeout> | undefined;
let first = 0;

function refreshSoon(): void {
  const now = Date.now();
  if (!timer) first = now;
  clearTimeout(timer);
  const wait = Math.max(0, Math.min(SETTLE, first + PATIENCE - now));
  timer = setTimeout(() => {
    timer = undefined;
    void refresh();
  }, wait);
}

/** Starts following, and returns a function that ends it. */
export function startLive(): () => void {
  const stop = new AbortController();
  let hidden: AbortController | undefined;
  const tick = setInterval(() => {
    if (!document.hidden) void refresh();
  }, FIGURES);

  const begin = (): void => {
    hidden = new AbortController();
    void follow(AbortSignal.any([stop.signal, hidden.signal]));
  };
  // Browsers allow six connections to a server over HTTP/1.1, for all its tabs. Hidden ones leave theirs to the others.
  const seen = (): void => {
    if (document.hidden) {
      hidden?.abort();
      hidden = undefined;
      link.set("sleeping");
    } else if (!hidden) begin();
  };
  document.addEventListener("visibilitychange", seen);
  if (document.hidden) link.set("sleeping");
  else begin();

  return () => {
    stop.abort();
    clearInterval(tick);
    clearTimeout(timer);
    timer = undefined;
    document.removeEventListener("visibilitychange", seen);
    world.set(emptyWorld);
    lastEvent.set(null);
    recent.set([]);
  };
}

async function follow(signal: AbortSignal): Promise<void> {
  let after = "";
  for (let wait = 500; !signal.aborted; wait = Math.min(wait * 2, 15_000)) {
    link.set("connecting");
    try {
      const answer = await open("GET", "/v1/events", { headers: after ? { "Last-Event-ID": after } : {}, signal });
      link.set("live");
      wait = 500;
      void refresh(); // changes before the stream began are in no event of it
      for await (const { name, data } of serverEvents(answer)) {
        if (name === "end") break;
        const event = JSON.parse(data) as ForkdEvent;
        after = String(event.id);
        lastEvent.set(event);
        recent.set([event, ...recent.get().slice(0, KEPT - 1)]);
        refreshSoon();
      }
    } catch (e) {
      if (isAbort(e)) return;
    }
    if (signal.aborted) return;
    link.set("waiting");
    await new Promise((r) => setTimeout(r, wait));
    void refresh();
  }
}
