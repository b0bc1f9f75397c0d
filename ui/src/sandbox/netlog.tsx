/** The log of a sandbox's network: refused connections, then all as they end. */
import { useEffect, useState } from "preact/hooks";
import { isAbort } from "../api/error";
import { open, sandboxPath } from "../api/request";
import { lines } from "../api/stream";
import type { FlowLine } from "../api/types";
import { Badge, type Tone } from "../parts/badge";
import { Failure } from "../parts/failure";

/** Lines that are kept. */
const MAX = 300;

const tones: Record<string, Tone> = { allowed: "good", denied: "bad", refused: "warn", limited: "warn", cut: "warn", broken: "bad" };

export function NetworkLog({ id }: { id: string }) {
  const [list, setList] = useState<FlowLine[]>([]);
  const [error, setError] = useState<unknown>(null);
  useEffect(() => {
    const stop = new AbortController();
    setList([]);
    void (async () => {
      try {
        const answer = await open("GET", sandboxPath(id, "/network/log"), { query: { follow: true }, signal: stop.signal });
        for await (const line of lines(answer)) {
          if (!line.trim()) continue;
          const entry = JSON.parse(line) as FlowLine;
          setList((l) => [entry, ...l.slice(0, MAX - 1)]);
        }
      } catch (e) {
        if (!isAbort(e) && !stop.signal.aborted) setError(e);
      }
    })();
    return () => stop.abort();
  }, [id]);
  return (
    <section aria-labelledby="netlog">
      <h2 id="netlog">Log</h2>
      {error ? <Failure error={error} /> : !list.length ? <p class="hint">No connection was refused yet.</p> : (
        <div class="scroll" tabIndex={0} role="group" aria-label="Log of the network">
          <table>
            <thead><tr><th scope="col">Time</th><th scope="col">Verdict</th><th scope="col">To</th><th scope="col">Reason</th></tr></thead>
            <tbody>
              {list.map((l, i) => (
                <tr key={list.length - i}>
                  <td>{new Date(l.time).toLocaleTimeString()}</td>
                  <td><Badge text={l.verdict} tone={tones[l.verdict] ?? "plain"} /></td>
                  <th scope="row" class="id">{[l.protocol, l.name || l.far].filter(Boolean).join(" ")}{l.count && l.count > 1 ? ` × ${l.count}` : ""}</th>
                  <td>{l.reason || l.rule || ""}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
    </section>
  );
}
