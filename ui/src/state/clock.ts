/** The time for ages. It moves in steps, so that a row is drawn again only when its age may have changed. */
import { Store } from "./store";

const STEP = 5;
const now = (): number => Math.floor(Date.now() / 1000 / STEP) * STEP;

/** Seconds since 1970. */
export const clock = new Store<number>(now());

setInterval(() => {
  if (!document.hidden) clock.set(now());
}, STEP * 1000);
