/** Who is logged in. Undefined: not known yet. */
import { whenLoggedOut } from "../api/request";
import { readSession } from "../api/session";
import type { Session } from "../api/types";
import { Store } from "./store";

export const session = new Store<Session | null | undefined>(undefined);

whenLoggedOut(() => session.set(null));

export async function refreshSession(): Promise<void> {
  session.set(await readSession());
}
