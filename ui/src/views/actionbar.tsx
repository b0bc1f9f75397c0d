/** The actions of one object as buttons. */
import type { MenuItem } from "../parts/menu";

export function ActionBar({ actions }: { actions: MenuItem[] }) {
  return (
    <div class="actions" role="group" aria-label="Actions">
      {actions.map((a) => (
        <button key={a.label} type="button" class={a.danger ? "danger-text" : ""} onClick={a.act}>{a.label}</button>
      ))}
    </div>
  );
}
