/** Files of a sandbox, by the agent's routes. */
import { agentCall, agentPath } from "./agent";
import { open } from "./request";
import { pieces } from "./stream";

export interface Entry {
  name: string;
  path: string;
  type: "file" | "directory" | "symlink" | "other";
  /** What a link leads to is a directory. */
  target: string;
  size: number;
  permissions: string;
  owner: string;
  modified: Date | null;
}

const types: Record<string, Entry["type"]> = {
  FILE_TYPE_FILE: "file", FILE_TYPE_DIRECTORY: "directory", FILE_TYPE_SYMLINK: "symlink",
};

function entryOf(v: unknown): Entry {
  const e = (v ?? {}) as Record<string, unknown>;
  const word = (name: string): string => (typeof e[name] === "string" ? e[name] : "");
  const when = word("modifiedTime");
  return {
    name: word("name"), path: word("path"), type: types[word("type")] ?? "other", target: word("symlinkTarget"),
    size: Number(e.size ?? 0), permissions: word("permissions"), owner: word("owner"), modified: when ? new Date(when) : null,
  };
}

/** Lists a directory, directories first. */
export async function listDir(id: string, path: string, signal?: AbortSignal): Promise<Entry[]> {
  const got = await agentCall(id, "filesystem.Filesystem/ListDir", { path, depth: 1 }, "", { signal });
  const entries = (Array.isArray(got.entries) ? got.entries : []).map(entryOf);
  const rank = (e: Entry): number => (e.type === "directory" ? 0 : 1);
  return entries.sort((a, b) => rank(a) - rank(b) || a.name.localeCompare(b.name));
}

const read = (id: string, path: string, signal?: AbortSignal): Promise<Response> =>
  open("GET", agentPath(id, "files"), { query: { path }, signal });

/** Longest file that is shown. */
export const MAX_VIEW = 1 << 20;

/** Returns the text of a file, or null if it is no text. Reads no further than what can be shown. */
export async function readText(id: string, path: string, signal?: AbortSignal): Promise<string | null> {
  const decoder = new TextDecoder("utf-8", { fatal: true });
  let text = "";
  let size = 0;
  try {
    for await (const piece of pieces(await read(id, path, signal))) {
      size += piece.length;
      if (size > MAX_VIEW) throw new RangeError("The file has more than 1 MiB. Download it.");
      text += decoder.decode(piece, { stream: true });
      if (text.includes("\0")) return null;
    }
    return text + decoder.decode();
  } catch (e) {
    if (e instanceof TypeError && /encod|decod/i.test(e.message)) return null;
    throw e;
  }
}

export async function readBlob(id: string, path: string): Promise<Blob> {
  return (await read(id, path)).blob();
}

/** Writes a file. The old content stays until all has arrived. */
export async function writeFile(id: string, path: string, content: Blob): Promise<void> {
  await open("POST", agentPath(id, "files"), {
    query: { path }, body: content, headers: { "Content-Type": "application/octet-stream" },
  });
}
