/** Tabs, as in the WAI-ARIA tabs pattern. The tab is part of the address, so the browser's back button works. */
import { useLayoutEffect, useRef } from "preact/hooks";

export interface Tab {
  id: string;
  label: string;
}

export function Tabs({ tabs, current, onChange }: { tabs: Tab[]; current: string; onChange: (id: string) => void }) {
  const box = useRef<HTMLDivElement>(null);
  // On narrow pages the tabs scroll, and the current one may be out of view.
  useLayoutEffect(() => {
    const el = box.current?.querySelector<HTMLElement>("[aria-selected=true]");
    if (el && box.current) box.current.scrollLeft = Math.max(0, el.offsetLeft - box.current.offsetLeft - 60);
  }, [current]);
  const onKeyDown = (e: KeyboardEvent): void => {
    const at = tabs.findIndex((t) => t.id === current);
    const to = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: tabs.length - 1 }[e.key];
    if (to === undefined) return;
    e.preventDefault();
    const next = tabs[(to + tabs.length) % tabs.length];
    if (!next) return;
    onChange(next.id);
    box.current?.querySelector<HTMLElement>(`#tab-${next.id}`)?.focus();
  };
  return (
    <div ref={box} class="tabs" role="tablist" aria-label="Parts" onKeyDown={onKeyDown}>
      {tabs.map((t) => (
        <button key={t.id} id={`tab-${t.id}`} type="button" role="tab" aria-selected={t.id === current}
          aria-controls={t.id === current ? "panel" : undefined} tabIndex={t.id === current ? 0 : -1}
          onClick={() => onChange(t.id)}>
          {t.label}
        </button>
      ))}
    </div>
  );
}
