/** Which rows of a long list are in view. Only these are in the page. */
import { useCallback, useEffect, useLayoutEffect, useState } from "preact/hooks";
import type { RefObject } from "preact";

/** Rows above and below the view that are ready before they are scrolled to. */
const MARGIN = 12;

/** Ranges move in steps, so that most frames of a scroll draw nothing. */
const STEP = 6;

export function useVisible(box: RefObject<HTMLElement | null>, rows: number, height: number): { first: number; last: number } {
  const [range, set] = useState({ first: 0, last: 60 });
  const look = useCallback(() => {
    const el = box.current;
    if (!el) return;
    const top = Math.floor(el.scrollTop / height / STEP) * STEP;
    const seen = Math.ceil(el.clientHeight / height) + STEP;
    const first = Math.max(0, top - MARGIN);
    const last = top + seen + MARGIN;
    set((r) => (r.first === first && r.last === last ? r : { first, last }));
  }, [height]);

  useLayoutEffect(look, [rows]);
  useEffect(() => {
    const el = box.current;
    if (!el) return;
    el.addEventListener("scroll", look, { passive: true });
    const size = new ResizeObserver(look);
    size.observe(el);
    return () => {
      el.removeEventListener("scroll", look);
      size.disconnect();
    };
  }, []);
  return { first: range.first, last: Math.min(rows, range.last) };
}
