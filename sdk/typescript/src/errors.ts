/** Errors by code, with advice. */
import { ForkdError, type ErrorFields } from "./error.js";
import { CLASSES, HINTS, REASON_HINTS, STATUS_CODES } from "./generated/errors.js";
import type { Sandbox } from "./sandbox.js";

export { ForkdError, type ErrorFields };
export * from "./generated/errors.js";

/** Some children of a fork failed. */
export class ForkError extends ForkdError {
  override name = "ForkError";
  constructor(message: string, /** Those that run. */ readonly sandboxes: Sandbox[],
    /** Those that failed. */ readonly errors: ForkdError[]) {
    super(message, { code: "partial" });
  }
}

/** Code in the warmed interpreter raised an exception. */
export class EvalError extends ForkdError {
  override name = "EvalError";
  constructor(readonly traceback: string, readonly stdout = "", readonly stderr = "") {
    super(traceback.trim().split("\n").pop() || "the code failed", { code: "eval" });
  }
}

/** A program ended with another exit code than 0, and `check` was set. */
export class ProgramError extends ForkdError {
  override name = "ProgramError";
  constructor(message: string, readonly exitCode: number, readonly stdout: string, readonly stderr: string) {
    super(message, { code: "program" });
  }
}

const placeholder = /\{([a-z]+)\}/g;

/** Returns advice. own: the daemon or this client made the error, not the agent of a guest. */
function hintOf(code: string, reason: string, details: Record<string, string>, own: boolean): string {
  if (!reason) return own ? entry(HINTS, code) : "";
  let missing = false;
  const text = entry(REASON_HINTS, reason).replace(placeholder, (_, name: string) => {
    missing ||= !Object.hasOwn(details, name);
    return details[name] ?? "";
  });
  return missing ? "" : text;
}

/** Codes come from outside, so names such as constructor must not be found. */
function entry(table: Readonly<Record<string, string>>, key: string): string {
  return Object.hasOwn(table, key) ? table[key]! : "";
}

/** Returns the error of a code. A code without a class is a ForkdError. */
export function make(message: string, fields: ErrorFields & { code: string }, own = true): ForkdError {
  const { code, reason = "", details = {} } = fields;
  const Class = Object.hasOwn(CLASSES, code) ? CLASSES[code]! : ForkdError;
  return new Class(message, { ...fields, hint: fields.hint ?? hintOf(code, reason, details, own) });
}

/** Codes of the Connect protocol, which the guest's agent speaks. */
const CONNECT: Record<string, string> = {
  invalid_argument: "invalid_request", not_found: "not_found", already_exists: "conflict",
  failed_precondition: "conflict", permission_denied: "forbidden",
  unauthenticated: "invalid_request", // the guest has no such user
  resource_exhausted: "no_space", unimplemented: "unsupported", deadline_exceeded: "timeout",
  unavailable: "guest_gone", aborted: "guest_gone", canceled: "connection_broken",
  data_loss: "guest_gone", // with the reason sandbox_broken: its user removed system files
};

type Fields = Record<string, unknown>;
const text = (v: unknown): string => (typeof v === "string" ? v : "");

/** Returns the error that an object of the API or of the agent describes. */
export function errorOf(object: unknown, status = 0, own = true): ForkdError {
  const e: Fields = typeof object === "object" && object !== null ? object as Fields : {};
  let code = text(e.code);
  const reason = text(e.reason) || (code === "data_loss" ? "sandbox_broken" : "");
  if (code && !e.error && Object.hasOwn(CONNECT, code)) code = CONNECT[code]!;
  code ||= STATUS_CODES[status] ?? "internal";
  const details = Object.fromEntries(Object.entries((e.details && !Array.isArray(e.details) ? e.details : {}) as object)
    .map(([k, v]) => [k, String(v)]));
  const message = text(e.error) || text(e.message) || code;
  return make(message, { code, reason, details, status, requestId: text(e.request_id) }, own);
}

/** Returns the error of an HTTP answer. */
export function errorOfAnswer(status: number, body: string, own: boolean): ForkdError {
  let e: unknown;
  try {
    e = JSON.parse(body);
  } catch { /* not of the daemon, such as a proxy's page */ }
  const known = typeof e === "object" && e !== null && (text((e as Fields).error) || text((e as Fields).message));
  return errorOf(known ? e : { error: body.slice(0, 500).trim() || `the answer has status ${status}` }, status, own);
}
