/** The processes of a guest, as its agent lists them. All of it is the guest's choice. */
import { agentStream, type Fields } from "./agent";
import { fromBase64 } from "./base64";

export interface Process {
  pid: number;
  /** With the pid, it names the process among all that the guest and its siblings ever had. */
  start: string;
  uid: number;
  /** The command line, or the name if there is none. */
  command: string;
  /** A letter as in ps, such as R or S; empty if the agent does not report it. */
  state: string;
  rssKib: number;
  pssKib: number;
  anonKib: number;
}

export interface Processes {
  list: Process[];
  /** Whether the list has all processes. */
  complete: boolean;
}

/** As many processes as an agent lists at most. */
const MAX_PROCESSES = 10_000;

const number = (v: unknown): number => {
  const n = Number(v ?? 0);
  return Number.isFinite(n) && n >= 0 ? n : 0;
};

/** Characters that move text or hide in it. */
const unseen = /[\p{Cc}\p{Cf}]/gu;

function text(v: unknown): string {
  if (typeof v !== "string") return "";
  try {
    return new TextDecoder().decode(fromBase64(v)).replace(/\0/g, " ").replace(unseen, "\ufffd").slice(0, 512);
  } catch {
    return "";
  }
}

function processOf(v: unknown): Process {
  const p = (typeof v === "object" && v !== null ? v : {}) as Fields;
  return {
    pid: number(p.pid), start: String(p.startTicks ?? "").slice(0, 20), uid: number(p.uid), command: text(p.args) || text(p.name),
    state: text(p.state).slice(0, 1), rssKib: number(p.rssKib), pssKib: number(p.pssKib), anonKib: number(p.anonKib),
  };
}

/** Lists the processes. An agent of an older snapshot lists its changed files before them, and they are dropped. */
export async function listProcesses(id: string, signal?: AbortSignal): Promise<Processes> {
  const list: Process[] = [];
  let complete = true;
  for await (const part of agentStream(id, "forkd.agent.v1.Inventory/List", { changesOnly: true, processesOnly: true }, "", signal)) {
    for (const p of Array.isArray(part.processes) ? part.processes : []) {
      if (list.length < MAX_PROCESSES) list.push(processOf(p));
      else complete = false;
    }
    const end = part.end as Fields | undefined;
    if (!end) continue;
    return { list, complete: complete && number(end.processesCut) === 0 };
  }
  return { list, complete: false };
}
