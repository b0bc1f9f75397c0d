/** An error of the daemon or of a guest's agent, with advice for the user. */
import { hintFor } from "./hints";

export interface ErrorBody {
  error?: unknown;
  message?: unknown;
  code?: unknown;
  reason?: unknown;
  hint?: unknown;
  details?: Record<string, string>;
  request_id?: string;
}

const text = (v: unknown): string => (typeof v === "string" ? v : "");

export class ApiError extends Error {
  readonly code: string;
  readonly reason: string;
  readonly hint: string;
  readonly requestId: string;

  constructor(readonly status: number, body: ErrorBody, readonly fromDaemon = true) {
    super(text(body.error) || text(body.message) || `The server answered with status ${status}.`);
    this.code = text(body.code);
    this.reason = text(body.reason);
    this.requestId = text(body.request_id);
    // The codes of an agent are the same words with other causes, so they get no advice.
    this.hint = text(body.hint) || (fromDaemon ? hintFor(this.code, this.reason, body.details ?? {}) : "");
  }
}

/** Reads the error in an answer. A proxy in between may answer with something else than JSON. */
export async function errorOf(answer: Response): Promise<ApiError> {
  const fromDaemon = !answer.url.includes("/agent/") || answer.headers.has("Forkd-Error");
  let body: ErrorBody = {};
  try {
    const got: unknown = JSON.parse(await answer.text());
    if (typeof got === "object" && got !== null) body = got as ErrorBody;
  } catch {
    // The status is all that is known.
  }
  return new ApiError(answer.status, body, fromDaemon);
}

/** Returns what to show of anything that was thrown. */
export function shown(e: unknown): { message: string; hint: string } {
  if (e instanceof ApiError) return { message: e.message, hint: e.hint };
  if (e instanceof TypeError) return { message: "The daemon does not answer.", hint: "Check that it runs, then try again." };
  return { message: e instanceof Error ? e.message : String(e), hint: "" };
}

export const isAbort = (e: unknown): boolean => e instanceof DOMException && e.name === "AbortError";
