import { logOut } from "../api/session";
import { Logo } from "../parts/icons";
import { link, type Link } from "../state/live";
import { route, toCompare, toLimits, toTree } from "../state/route";
import { session } from "../state/session";
import { useStore } from "../state/store";
import { toastError } from "../state/toasts";

const texts: Record<Link, string> = { connecting: "Connecting", live: "Live", waiting: "Not connected", sleeping: "Paused" };

export function Header() {
  const at = useStore(route);
  const state = useStore(link);
  const who = useStore(session);
  const inTree = at.view === "tree" || at.view === "sandbox" || at.view === "snapshot";
  const leave = async (): Promise<void> => {
    try {
      await logOut();
      session.set(null);
    } catch (e) {
      toastError(e);
    }
  };
  return (
    <header class="top">
      <a class="brand" href={toTree}><Logo /> forkd</a>
      <nav aria-label="Views">
        <a href={toTree} aria-current={inTree ? "page" : undefined}>Tree</a>
        <a href={toCompare()} aria-current={at.view === "compare" ? "page" : undefined}>Compare</a>
        <a href={toLimits} aria-current={at.view === "limits" ? "page" : undefined}>Limits</a>
      </nav>
      <span class={`link ${state}`} role="status">{texts[state]}</span>
      <span class="who">{who?.name}{who?.tenant ? ` · ${who.tenant}` : ""}</span>
      <button type="button" onClick={leave}>Log out</button>
    </header>
  );
}
