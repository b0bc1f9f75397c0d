/** Streams of answers: lines of text, server-sent events, and the frames of the Connect protocol. */

/** Yields the pieces of a body. Leaving the iteration cancels the request. */
export async function* pieces(answer: Response): AsyncGenerator<Uint8Array> {
  const reader = answer.body?.getReader();
  if (!reader) return;
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      yield value;
    }
  } finally {
    void reader.cancel().catch(() => {});
  }
}

/** Yields the lines of a body, without their ends. */
export async function* lines(answer: Response): AsyncGenerator<string> {
  const decoder = new TextDecoder();
  let rest = "";
  for await (const piece of pieces(answer)) {
    const parts = (rest + decoder.decode(piece, { stream: true })).split("\n");
    rest = parts.pop() ?? "";
    yield* parts;
  }
  if (rest) yield rest;
}

export interface ServerEvent {
  name: string;
  data: string;
}

/** Yields server-sent events. EventSource cannot send the page's header, so the format is read here. */
export async function* serverEvents(answer: Response): AsyncGenerator<ServerEvent> {
  let name = "";
  let data: string[] = [];
  for await (const line of lines(answer)) {
    if (line === "" || line === "\r") {
      if (data.length) yield { name, data: data.join("\n") };
      name = "";
      data = [];
      continue;
    }
    const colon = line.indexOf(":");
    const field = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, "");
    if (field === "event") name = value;
    if (field === "data") data.push(value);
  }
}

/** Longest message that is accepted from a guest. */
const MAX_FRAME = 32 << 20;

export interface Frame {
  flags: number;
  text: string;
}

/** Returns a message in Connect's envelope: a byte of flags, the length, the JSON. */
export function frame(message: object): Uint8Array<ArrayBuffer> {
  const data = new TextEncoder().encode(JSON.stringify(message));
  const out = new Uint8Array(5 + data.length);
  new DataView(out.buffer).setUint32(1, data.length);
  out.set(data, 5);
  return out;
}

/** Yields the messages of a Connect stream. */
export async function* frames(answer: Response): AsyncGenerator<Frame> {
  let held = new Uint8Array(0);
  for await (const piece of pieces(answer)) {
    const all = new Uint8Array(held.length + piece.length);
    all.set(held);
    all.set(piece, held.length);
    held = all;
    while (held.length >= 5) {
      const size = new DataView(held.buffer, held.byteOffset).getUint32(1);
      if (size > MAX_FRAME) throw new Error("The sandbox sent a message that is too large.");
      if (held.length < 5 + size) break;
      yield { flags: held[0] ?? 0, text: new TextDecoder().decode(held.subarray(5, 5 + size)) };
      held = held.slice(5 + size);
    }
  }
}
