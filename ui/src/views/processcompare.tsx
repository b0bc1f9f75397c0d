/** The processes of two running sandboxes, side by side. */
import { ApiError } from "../api/error";
import { listProcesses, type Process, type Processes } from "../api/processes";
import { Failure, Wait } from "../parts/failure";
import { count, kib } from "../parts/format";
import { useLoad } from "../parts/useload";
import { Part, type Line } from "./snapshotcompare";

/** Rows of each kind. */
const MAX_ROWS = 1000;

/** The first process stands for the guest. Others are the same if a fork copied them: pid and start are equal then. */
const key = (p: Process): string => (p.pid === 1 ? "1" : `${p.pid} ${p.start}`);

const title = (p: Process): string => `${p.pid} ${p.command}`;

const states: Record<string, string> = {
  R: "running", S: "sleeping", D: "waiting for the disk", T: "stopped", t: "traced", Z: "ended", I: "idle",
};
const state = (p: Process): string => (p.state ? states[p.state] ?? p.state : "");
const figures = (p: Process): string => [state(p), kib(p.pssKib)].filter(Boolean).join(", ");

/** How much the memory of its own differs. */
const grown = (a: Process, b: Process): number => Math.abs(a.anonKib - b.anonKib);

function difference(a: Process, b: Process): string {
  const parts: string[] = [];
  if (a.state !== b.state && a.state && b.state) parts.push(`${state(a)} → ${state(b)}`);
  if (a.command !== b.command) parts.push(`was ${a.command}`);
  if (a.rssKib !== b.rssKib || a.pssKib !== b.pssKib || a.anonKib !== b.anonKib) parts.push(`${kib(a.pssKib)} → ${kib(b.pssKib)}`);
  return parts.join(", ");
}

/** Compares two lists, those of one side first, largest differences first. */
export function compareProcesses(first: Process[], second: Process[], a: string, b: string): { rows: Line[]; cut: number } {
  const others = new Map(second.map((p) => [key(p), p]));
  const only: Process[] = [];
  const both: [Process, Process][] = [];
  for (const p of first) {
    const other = others.get(key(p));
    others.delete(key(p));
    if (!other) only.push(p);
    else if (difference(p, other)) both.push([p, other]);
  }
  both.sort(([p, q], [r, s]) => grown(r, s) - grown(p, q));
  const kinds: Line[][] = [
    only.map((p): Line => [`only in ${a}`, title(p), figures(p)]),
    [...others.values()].map((p): Line => [`only in ${b}`, title(p), figures(p)]),
    both.map(([p, q]): Line => ["changed", title(q), difference(p, q)]),
  ];
  return {
    rows: kinds.flatMap((k) => k.slice(0, MAX_ROWS)),
    cut: kinds.reduce((n, k) => n + Math.max(0, k.length - MAX_ROWS), 0),
  };
}

/** Agents of old snapshots have no list. */
const absent = (error: unknown): boolean => error instanceof ApiError && (error.code === "unimplemented" || error.status === 404 && !error.code);

async function read(id: string, signal: AbortSignal): Promise<Processes | string> {
  try {
    return await listProcesses(id, signal);
  } catch (error) {
    if (absent(error)) return id;
    throw error;
  }
}

export function ProcessCompare({ a, b }: { a: string; b: string }) {
  const { value, error, reload, loading } = useLoad((signal) => Promise.all([read(a, signal), read(b, signal)]), `${a} ${b}`);
  if (error) return <Failure error={error} retry={reload} />;
  if (!value || loading) return <Wait what="the processes of both" />;
  const [first, second] = value;
  if (typeof first === "string" || typeof second === "string") {
    const old = typeof first === "string" ? first : second as string;
    return <p class="hint">The agent of {old} cannot list processes. Its snapshot was made by an earlier version.</p>;
  }
  const { rows, cut } = compareProcesses(first.list, second.list, a, b);
  return (
    <>
      <Part title="Processes" rows={rows} />
      <p class="hint">
        {count(first.list.length, "process", "processes")} in {a}, {second.list.length.toLocaleString("en")} in {b}, as their guests list them.
        {cut ? ` ${cut.toLocaleString("en")} more differ.` : ""}{first.complete && second.complete ? "" : " Some could not be read."}
      </p>
      <button type="button" onClick={reload}>Read the processes again</button>
    </>
  );
}
