/** The session. Its cookie is out of the page's reach, and the key is only in the request that logs in. */
import { errorOf } from "./error";
import { forgetProof, keepProof, proofHeader } from "./proof";
import type { Session } from "./types";

const at = "/ui/session";

/** Returns the session, or null if nobody is logged in. */
export async function readSession(): Promise<Session | null> {
  const answer = await fetch(at, { headers: proofHeader(), credentials: "same-origin", cache: "no-store" });
  // An empty answer is the server's way to say "nobody" without an error in the browser's console.
  if (answer.status === 401 || answer.status === 204) return null;
  if (!answer.ok) throw await errorOf(answer);
  return (await answer.json()) as Session;
}

export async function logIn(key: string): Promise<void> {
  const answer = await fetch(at, {
    method: "POST", credentials: "same-origin", headers: { "Content-Type": "application/json" },
    body: JSON.stringify({ key }),
  });
  if (!answer.ok) throw await errorOf(answer);
  keepProof(((await answer.json()) as { proof: string }).proof);
}

export async function logOut(): Promise<void> {
  await fetch(at, { method: "DELETE", headers: proofHeader(), credentials: "same-origin" });
  forgetProof();
}
