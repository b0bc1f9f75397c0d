/** Bytes, text and base64, on every runtime. */
const utf8 = new TextEncoder();

/** Returns text as UTF-8. */
export const encodeText = (s: string): Uint8Array => utf8.encode(s);

/** Returns bytes as text. Bytes that are no UTF-8 become U+FFFD. */
export const decodeText = (b: Uint8Array): string => new TextDecoder("utf-8", { ignoreBOM: true }).decode(b);

/** Returns bytes as base64. */
export function toBase64(b: Uint8Array): string {
  if (typeof Buffer !== "undefined") return Buffer.from(b.buffer, b.byteOffset, b.byteLength).toString("base64");
  let s = "";
  for (let i = 0; i < b.length; i += 0x8000) s += String.fromCharCode(...b.subarray(i, i + 0x8000));
  return btoa(s);
}

/** Returns the bytes of base64. */
export function fromBase64(s: string): Uint8Array {
  if (typeof Buffer !== "undefined") return new Uint8Array(Buffer.from(s, "base64"));
  return Uint8Array.from(atob(s), (c) => c.charCodeAt(0));
}

/** Returns pieces as one. */
export function concat(pieces: readonly Uint8Array[]): Uint8Array {
  if (pieces.length === 1) return pieces[0]!;
  const out = new Uint8Array(pieces.reduce((n, p) => n + p.length, 0));
  let at = 0;
  for (const p of pieces) {
    out.set(p, at);
    at += p.length;
  }
  return out;
}
