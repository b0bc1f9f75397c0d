/** The dialog that is open. There is one at a time. */
import type { Sandbox, Snapshot } from "../api/types";
import { Store } from "../state/store";

export type OpenDialog =
  | { do: "fork"; snapshot: Snapshot }
  | { do: "delete"; snapshot: Snapshot }
  | { do: "branch" | "rollback" | "pause" | "promote"; sandbox: Sandbox }
  | { do: "kill"; ids: string[] };

export const dialog = new Store<OpenDialog | null>(null);
