/**
 * A program on a terminal in a sandbox. Browsers send a request's body before they read the answer, so the output comes
 * as the answer of one long request (process.Process/Start), and each input is a request of its own (SendInput).
 */
import { agentCall, agentStream, type Fields } from "./agent";
import { fromBase64, toBase64 } from "./base64";

export interface Size {
  cols: number;
  rows: number;
}

export interface TerminalOptions {
  args: string[];
  user: string;
  size: Size;
  onOutput: (data: Uint8Array) => void;
  onStart: () => void;
}

/** The user's shell as a login shell, in the user's home. */
export const loginShell = ["/bin/sh", "-c", `cd 2>/dev/null
s=$(getent passwd "$(id -u)" 2>/dev/null | cut -d: -f7)
[ -n "$s" ] || s=$(grep "^[^:]*:[^:]*:$(id -u):" /etc/passwd 2>/dev/null | head -n 1 | cut -d: -f7)
[ -x "$s" ] || s=/bin/sh
export SHELL="$s"
exec "$s" -l`, "sh"];

export class TerminalProcess {
  readonly #leave = new AbortController();
  #pid = 0;
  #waiting = "";
  #sending = false;

  constructor(private readonly sandbox: string, private readonly o: TerminalOptions) {}

  /** Runs the program to its end, and returns the end in words. */
  async run(): Promise<string> {
    const { args, user, size, onOutput, onStart } = this.o;
    const request = {
      process: { cmd: args[0], args: args.slice(1), envs: { TERM: "xterm-256color", COLORTERM: "truecolor" } },
      pty: { size }, stdin: true,
    };
    // Without this header the shell would stay behind in the guest when the page is closed.
    const headers = { "Forkd-Kill-On-Disconnect": "1" };
    let end = "The program ended.";
    for await (const m of agentStream(this.sandbox, "process.Process/Start", request, user, this.#leave.signal, headers)) {
      const event = (m.event ?? {}) as Record<string, Fields | undefined>;
      if (event.start) {
        this.#pid = Number(event.start.pid ?? 0);
        onStart();
        void this.#send();
      }
      for (const data of Object.values(event.data ?? {})) onOutput(fromBase64(String(data)));
      if (event.end) end = `The program ended: ${String(event.end.status ?? "")}.`;
    }
    return end;
  }

  /** Sends input. Requests may overtake each other, so there is one at a time, with all that was typed meanwhile. */
  write(text: string): void {
    this.#waiting += text;
    void this.#send();
  }

  async #send(): Promise<void> {
    if (this.#sending || !this.#pid) return;
    this.#sending = true;
    try {
      while (this.#waiting && !this.#leave.signal.aborted) {
        const raw = new TextEncoder().encode(this.#waiting);
        this.#waiting = "";
        for (let i = 0; i < raw.length; i += 1 << 20) {
          await this.#call("SendInput", { input: { pty: toBase64(raw.subarray(i, i + (1 << 20))) } });
        }
      }
    } catch {
      // The program has ended, or the sandbox has. The stream of the output says which.
      this.#waiting = "";
    } finally {
      this.#sending = false;
    }
  }

  async resize(size: Size): Promise<void> {
    if (!this.#pid) return;
    await this.#call("Update", { pty: { size } }).catch(() => {});
  }

  /** Leaves the program. The agent kills it. */
  close(): void {
    this.#leave.abort();
  }

  async #call(method: string, body: object): Promise<void> {
    await agentCall(this.sandbox, "process.Process/" + method, { process: { pid: this.#pid }, ...body }, this.o.user, {
      signal: this.#leave.signal,
    });
  }
}
