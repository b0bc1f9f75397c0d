/** Fields of an error besides its message. */
export interface ErrorFields {
  code?: string;
  reason?: string;
  details?: Record<string, string>;
  hint?: string;
  status?: number;
  requestId?: string;
  cause?: unknown;
}

/** An error of the daemon, of a sandbox, or of the connection. Each code of the API has a subclass. */
export class ForkdError extends Error {
  override name = "ForkdError";
  /** Stable identifier of the kind. A newer daemon may send others than those with a class. */
  readonly code: string;
  /** More precise than code. It may be empty. */
  readonly reason: string;
  /** Names that the reason involves, such as a snapshot's. */
  readonly details: Readonly<Record<string, string>>;
  /** Advice for people. It may be empty. */
  readonly hint: string;
  /** HTTP status, 0 if there was no answer. */
  readonly status: number;
  /** Identifies the request in the daemon's log. It may be empty. */
  readonly requestId: string;

  constructor(message: string, fields: ErrorFields = {}) {
    super(message, fields.cause === undefined ? undefined : { cause: fields.cause });
    this.code = fields.code ?? "internal";
    this.reason = fields.reason ?? "";
    this.details = fields.details ?? {};
    this.hint = fields.hint ?? "";
    this.status = fields.status ?? 0;
    this.requestId = fields.requestId ?? "";
  }
}
