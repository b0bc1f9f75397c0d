/** A menu at a button or a row, as in the WAI-ARIA menu pattern. There is one at a time. */
import { useEffect, useLayoutEffect, useRef } from "preact/hooks";
import { Store, useStore } from "../state/store";

export interface MenuItem {
  label: string;
  act: () => void;
  danger?: boolean;
}

interface OpenMenu {
  label: string;
  items: MenuItem[];
  at: DOMRect;
  back: HTMLElement | null;
}

const current = new Store<OpenMenu | null>(null);

export function openMenu(label: string, items: MenuItem[], at: Element, back: HTMLElement | null): void {
  current.set({ label, items, at: at.getBoundingClientRect(), back });
}

export function Menu() {
  const menu = useStore(current);
  return menu && <MenuBox key={menu.at.top + menu.label} menu={menu} />;
}

function MenuBox({ menu }: { menu: OpenMenu }) {
  const box = useRef<HTMLDivElement>(null);
  const close = (giveBack: boolean): void => {
    current.set(null);
    if (giveBack) menu.back?.focus();
  };

  useLayoutEffect(() => {
    const el = box.current;
    if (!el) return;
    const { width, height } = el.getBoundingClientRect();
    const below = menu.at.bottom + height + 8 < innerHeight;
    el.style.left = `${Math.max(8, Math.min(menu.at.right - width, innerWidth - width - 8))}px`;
    el.style.top = `${below ? menu.at.bottom + 2 : Math.max(8, menu.at.top - height - 2)}px`;
    el.querySelector<HTMLElement>("[role=menuitem]")?.focus();
  }, [menu]);

  useEffect(() => {
    const outside = (e: Event): void => {
      if (!box.current?.contains(e.target as Node)) close(false);
    };
    addEventListener("pointerdown", outside);
    addEventListener("resize", outside);
    document.addEventListener("wheel", outside, { passive: true });
    return () => {
      removeEventListener("pointerdown", outside);
      removeEventListener("resize", outside);
      document.removeEventListener("wheel", outside);
    };
  }, []);

  const onKeyDown = (e: KeyboardEvent): void => {
    const all = [...(box.current?.querySelectorAll<HTMLElement>("[role=menuitem]") ?? [])];
    const at = all.indexOf(document.activeElement as HTMLElement);
    const move = (i: number): void => {
      e.preventDefault();
      all[(i + all.length) % all.length]?.focus();
    };
    if (e.key === "ArrowDown") move(at + 1);
    else if (e.key === "ArrowUp") move(at - 1);
    else if (e.key === "Home") move(0);
    else if (e.key === "End") move(-1);
    else if (e.key === "Escape" || e.key === "Tab") {
      e.preventDefault();
      close(true);
    } else if (e.key.length === 1) {
      const found = all.findIndex((el) => el.textContent?.toLowerCase().startsWith(e.key.toLowerCase()));
      if (found >= 0) move(found);
    }
    e.stopPropagation();
  };

  return (
    <div ref={box} class="menu" role="menu" aria-label={menu.label} onKeyDown={onKeyDown}>
      {menu.items.map((item) => (
        <button key={item.label} type="button" role="menuitem" tabIndex={-1} class={item.danger ? "danger-text" : ""}
          onClick={() => { close(true); item.act(); }}>
          {item.label}
        </button>
      ))}
    </div>
  );
}
