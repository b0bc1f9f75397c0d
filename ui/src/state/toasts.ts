/** Short messages about what the user did. */
import { isAbort, shown } from "../api/error";
import { Store } from "./store";

export interface Toast {
  id: number;
  kind: "error" | "done";
  message: string;
  hint: string;
}

export const toasts = new Store<Toast[]>([]);

let count = 0;

export function toast(kind: Toast["kind"], message: string, hint = ""): void {
  const id = ++count;
  toasts.set([...toasts.get().slice(-3), { id, kind, message, hint }]);
  // Errors stay until they are closed: their advice takes longer to read.
  if (kind === "done") setTimeout(() => dismiss(id), 6000);
}

export function dismiss(id: number): void {
  toasts.set(toasts.get().filter((t) => t.id !== id));
}

export function toastError(e: unknown): void {
  if (isAbort(e)) return;
  const { message, hint } = shown(e);
  toast("error", message, hint);
}
