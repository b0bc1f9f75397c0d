/** Bytes in JSON. */

export function fromBase64(text: string): Uint8Array {
  const raw = atob(text);
  const out = new Uint8Array(raw.length);
  for (let i = 0; i < raw.length; i++) out[i] = raw.charCodeAt(i);
  return out;
}

export function toBase64(data: Uint8Array): string {
  let raw = "";
  // Spreading all bytes at once would exceed the number of arguments a call may have.
  for (let i = 0; i < data.length; i += 0x8000) raw += String.fromCharCode(...data.subarray(i, i + 0x8000));
  return btoa(raw);
}
