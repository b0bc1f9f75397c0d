/** The filter, and buttons that open and close all of the tree. */
import { Search } from "../parts/icons";
import { useStore } from "../state/store";
import { filter } from "./state";

const states = ["running", "paused", "pausing", "resuming", "stalled", "failed", "ready", "writing", "damaged"];

export function Toolbar({ onOpenAll, onCloseAll }: { onOpenAll: () => void; onCloseAll: () => void }) {
  const { text, state } = useStore(filter);
  return (
    <div class="toolbar" role="search" aria-label="Filter of the tree">
      <div class="search">
        <Search />
        <label for="filter" class="unseen">Filter</label>
        <input id="filter" type="search" placeholder="Filter by name, image, owner, label" value={text} autocomplete="off" spellcheck={false}
          onInput={(e) => filter.set({ text: e.currentTarget.value, state })} />
      </div>
      <label for="state" class="unseen">State</label>
      <select id="state" value={state} onChange={(e) => filter.set({ text, state: e.currentTarget.value })}>
        <option value="">All states</option>
        {states.map((s) => <option key={s} value={s}>{s}</option>)}
      </select>
      <button type="button" onClick={onOpenAll}>Open all</button>
      <button type="button" onClick={onCloseAll}>Close all</button>
    </div>
  );
}
