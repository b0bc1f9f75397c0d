/**
 * The second secret of a session. Browsers send cookies to every port of a host, so a server of a guest that is
 * forwarded to another port sees the cookie. It cannot see this: storage belongs to one origin, with its port.
 */
const at = "forkd-ui-proof";

/** Returns the header that each request of the session needs. */
export function proofHeader(): Record<string, string> {
  return { "X-Forkd-UI": localStorage.getItem(at) ?? "none" };
}

export function keepProof(proof: string): void {
  localStorage.setItem(at, proof);
}

export function forgetProof(): void {
  localStorage.removeItem(at);
}
