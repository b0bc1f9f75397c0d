/** A modal dialog with a form. It stays open while the request runs, and shows its error. */
import type { ComponentChildren } from "preact";
import { useEffect, useId, useRef, useState } from "preact/hooks";
import { shown } from "../api/error";

interface Props {
  title: string;
  confirm: string;
  danger?: boolean;
  onConfirm: () => Promise<void>;
  onClose: () => void;
  children: ComponentChildren;
}

export function Dialog({ title, confirm, danger, onConfirm, onClose, children }: Props) {
  const box = useRef<HTMLDialogElement>(null);
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState<unknown>(null);
  const heading = useId();

  useEffect(() => {
    const dialog = box.current;
    const before = document.activeElement;
    dialog?.showModal();
    return () => {
      dialog?.close();
      // The dialog leaves the page with its parent, so the browser does not put the focus back itself.
      if (before instanceof HTMLElement && before.isConnected) before.focus();
    };
  }, []);

  const submit = async (e: Event): Promise<void> => {
    e.preventDefault();
    if (busy) return;
    setBusy(true);
    setError(null);
    try {
      await onConfirm();
      onClose();
    } catch (e) {
      setError(e);
      setBusy(false);
    }
  };
  const text = error ? shown(error) : null;

  return (
    <dialog ref={box} aria-labelledby={heading} onCancel={(e) => { e.preventDefault(); onClose(); }}>
      <form onSubmit={submit}>
        <h2 id={heading}>{title}</h2>
        <div class="fields">{children}</div>
        <div class="dialog-error" aria-live="assertive">
          {text && (
            <div class="toast error">
              <div>
                <p class="toast-message"><strong>Error: </strong>{text.message}</p>
                {text.hint && <p class="hint">{text.hint}</p>}
              </div>
            </div>
          )}
        </div>
        <div class="buttons">
          <button type="button" onClick={onClose}>Cancel</button>
          <button type="submit" class={danger ? "danger" : "primary"} aria-disabled={busy}>{busy ? "Working …" : confirm}</button>
        </div>
      </form>
    </dialog>
  );
}
