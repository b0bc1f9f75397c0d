/** HTTP to one daemon: by fetch, or by node:http where fetch cannot go (Unix sockets, pinned certificates). */
import type { Address } from "./address.js";

/** Body of a request. */
export type Body = string | Uint8Array | AsyncIterable<Uint8Array>;

/** A request, with the path and the query. */
export interface WireRequest {
  method: string;
  path: string;
  headers: Record<string, string>;
  body?: Body;
  signal: AbortSignal;
}

/** An answer with its body open. Leaving the iteration ends the request. */
export interface WireAnswer {
  status: number;
  header(name: string): string;
  body: AsyncIterable<Uint8Array>;
  /** Reads all of a body that is known to be small. */
  text?(): Promise<string>;
}

/** Sends requests to one daemon. */
export interface Transport {
  send(request: WireRequest): Promise<WireAnswer>;
  close(): void;
}

/** Runtimes whose fetch gives up after 5 minutes without a byte, with no option to change that. */
const fetchGivesUp = typeof process !== "undefined" && Boolean(process.versions?.node)
  && !("Bun" in globalThis) && !("Deno" in globalThis);

/** Returns the transport of an address. */
export async function transportOf(address: Address, fetcher: typeof fetch): Promise<Transport> {
  if (address.url.startsWith("unix://") || address.fingerprint || address.clientCert || address.clientKey) {
    return (await import("./node-transport.js")).nodeTransport(address);
  }
  return new FetchTransport(address.url, fetcher);
}

/** Reports whether a request with that limit in milliseconds needs another transport than fetch. */
export const beyondFetch = (timeout: number): boolean => fetchGivesUp && timeout > 290_000;

class FetchTransport implements Transport {
  constructor(private readonly base: string, private readonly fetcher: typeof fetch) {}

  async send(r: WireRequest): Promise<WireAnswer> {
    const init: RequestInit & { duplex?: "half" } = {
      method: r.method, headers: r.headers, signal: r.signal, redirect: "manual",
    };
    if (r.body !== undefined) {
      const plain = typeof r.body === "string" || r.body instanceof Uint8Array;
      init.body = (plain ? r.body : streamOf(r.body as AsyncIterable<Uint8Array>)) as BodyInit;
      if (!plain) init.duplex = "half";
    }
    const answer = await this.fetcher(this.base + r.path, init);
    return {
      status: answer.status,
      header: (name) => answer.headers.get(name) ?? "",
      body: chunks(answer.body),
      text: () => answer.text(),
    };
  }

  close(): void {}
}

/** Yields the pieces of a stream, and cancels it if the reader leaves. */
async function* chunks(stream: ReadableStream<Uint8Array> | null): AsyncGenerator<Uint8Array> {
  if (!stream) return;
  const reader = stream.getReader();
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      yield value;
    }
  } finally {
    await reader.cancel().catch(() => {});
  }
}

function streamOf(source: AsyncIterable<Uint8Array>): ReadableStream<Uint8Array> {
  const it = source[Symbol.asyncIterator]();
  return new ReadableStream<Uint8Array>({
    async pull(controller) {
      const { done, value } = await it.next();
      if (done) controller.close();
      else controller.enqueue(value);
    },
    async cancel() {
      await it.return?.();
    },
  });
}
