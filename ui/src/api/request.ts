/** Requests to the daemon: same origin, with the session's cookie and the header that proves they come from the page. */
import { ApiError, errorOf } from "./error";
import { proofHeader } from "./proof";

export interface RequestOptions {
  json?: unknown;
  body?: BodyInit;
  headers?: Record<string, string>;
  signal?: AbortSignal | undefined;
  query?: Record<string, string | number | boolean | undefined>;
  /** Lets a request outlive the page. */
  keepalive?: boolean;
}

let onLoggedOut: () => void = () => {};

/** Sets what happens when the daemon no longer knows the session. */
export function whenLoggedOut(f: () => void): void {
  onLoggedOut = f;
}

/** Sends a request and returns the answer with its body unread. Throws an ApiError if the daemon refuses. */
export async function open(method: string, path: string, o: RequestOptions = {}): Promise<Response> {
  const headers: Record<string, string> = { ...proofHeader(), ...o.headers };
  let body = o.body;
  if (o.json !== undefined) {
    body = JSON.stringify(o.json);
    headers["Content-Type"] ??= "application/json";
  }
  const answer = await fetch(path + queryOf(o.query), {
    method, headers, credentials: "same-origin", cache: "no-store", redirect: "error",
    ...(body === undefined ? {} : { body }),
    ...(o.signal ? { signal: o.signal } : {}),
    ...(o.keepalive ? { keepalive: true } : {}),
  });
  if (answer.ok) return answer;
  const error = await errorOf(answer);
  // A guest's agent can answer 401 as well. That says nothing about the session.
  if (answer.status === 401 && error.fromDaemon) onLoggedOut();
  throw error;
}

/** Sends a request and returns the JSON of the answer. */
export async function call<T>(method: string, path: string, o: RequestOptions = {}): Promise<T> {
  const answer = await open(method, path, o);
  const text = await answer.text();
  if (!text) return undefined as T;
  try {
    return JSON.parse(text) as T;
  } catch {
    throw new ApiError(answer.status, { error: "The answer is no JSON." });
  }
}

export const get = <T>(path: string, o: RequestOptions = {}): Promise<T> => call<T>("GET", path, o);
export const post = <T>(path: string, json: unknown = {}, o: RequestOptions = {}): Promise<T> => call<T>("POST", path, { ...o, json });

function queryOf(query: RequestOptions["query"]): string {
  const q = new URLSearchParams();
  for (const [name, value] of Object.entries(query ?? {})) {
    if (value !== undefined && value !== "" && value !== false) q.set(name, String(value));
  }
  const text = q.toString();
  return text && "?" + text;
}

/** Returns a name as a part of a path. */
export const part = (name: string): string => encodeURIComponent(name);

/** Returns the path of a sandbox's route. */
export const sandboxPath = (id: string, rest = ""): string => `/v1/sandboxes/${part(id)}${rest}`;

/** Returns the path of a snapshot's route. */
export const snapshotPath = (tag: string, rest = ""): string => `/v1/snapshots/${part(tag)}${rest}`;
