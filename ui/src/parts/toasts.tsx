/** The region of short messages. It is always there, because screen readers announce changes of a region they know. */
import { dismiss, toasts } from "../state/toasts";
import { useStore } from "../state/store";
import { Cross } from "./icons";

export function Toasts() {
  const list = useStore(toasts);
  return (
    <div class="toasts" role="region" aria-label="Messages">
      <div aria-live="polite" aria-relevant="additions">
        {list.map((t) => (
          <div key={t.id} class={`toast ${t.kind}`}>
            <div>
              <p class="toast-message">{t.kind === "error" && <strong>Error: </strong>}{t.message}</p>
              {t.hint && <p class="hint">{t.hint}</p>}
            </div>
            <button type="button" class="quiet" onClick={() => dismiss(t.id)} aria-label="Close the message"><Cross /></button>
          </div>
        ))}
      </div>
    </div>
  );
}
