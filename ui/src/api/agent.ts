/** Calls of the agent in a guest, by the Connect protocol in JSON. What it answers is the guest's choice. */
import { ApiError } from "./error";
import { call, open, sandboxPath, type RequestOptions } from "./request";
import { frame, frames } from "./stream";

export type Fields = Record<string, unknown>;

export const agentPath = (id: string, rest: string): string => sandboxPath(id, "/agent/" + rest);

const asUser = (user: string): Record<string, string> => (user ? { "Forkd-Agent-User": user } : {});

/** Calls a method with one answer. */
export async function agentCall(id: string, method: string, message: object, user = "", o: RequestOptions = {}): Promise<Fields> {
  const got = await call<unknown>("POST", agentPath(id, method), { ...o, json: message, headers: asUser(user) });
  return typeof got === "object" && got !== null ? (got as Fields) : {};
}

/** Calls a method with a stream of answers. The request is complete before the answer begins, as browsers need it. */
export async function* agentStream(
  id: string, method: string, message: object, user = "", signal?: AbortSignal, headers: Record<string, string> = {},
): AsyncGenerator<Fields> {
  const answer = await open("POST", agentPath(id, method), {
    body: frame(message), signal,
    headers: {
      "Content-Type": "application/connect+json", "Connect-Protocol-Version": "1", "Keepalive-Ping-Interval": "30",
      ...asUser(user), ...headers,
    },
  });
  for await (const { flags, text } of frames(answer)) {
    const got = JSON.parse(text || "{}") as Fields;
    if (!(flags & 2)) {
      yield got;
      continue;
    }
    if (got.error) throw new ApiError(0, got.error as object, false);
    return;
  }
  throw new ApiError(0, { error: "The stream from the sandbox broke off." }, false);
}
