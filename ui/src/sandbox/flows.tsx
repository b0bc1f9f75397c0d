/** The open connections of a sandbox. */
import { useEffect, useState } from "preact/hooks";
import { get, sandboxPath } from "../api/request";
import type { Flow } from "../api/types";
import { Failure } from "../parts/failure";
import { bytes, span } from "../parts/format";
import { useLoad } from "../parts/useload";

const EVERY = 3000;

export function Flows({ id }: { id: string }) {
  const [round, setRound] = useState(0);
  useEffect(() => {
    const timer = setInterval(() => { if (!document.hidden) setRound((n) => n + 1); }, EVERY);
    return () => clearInterval(timer);
  }, []);
  const { value, error } = useLoad<Flow[] | null>((signal) => get(sandboxPath(id, "/network/flows"), { signal }), id, round);
  const now = Date.now();
  return (
    <section aria-labelledby="flows">
      <h2 id="flows">Open connections</h2>
      {error ? <Failure error={error} /> : value === undefined ? null : !value?.length ? <p class="hint">None.</p> : (
        <div class="scroll" tabIndex={0} role="group" aria-label="Open connections">
          <table>
            <thead><tr><th scope="col">To</th><th scope="col">Name</th><th scope="col">Rule</th><th scope="col" class="figure">Age</th><th scope="col" class="figure">In</th><th scope="col" class="figure">Out</th></tr></thead>
            <tbody>
              {value.map((f) => (
                <tr key={f.guest + f.far + f.began}>
                  <th scope="row" class="id">{f.protocol} {f.far}</th><td>{f.name ?? "–"}</td><td class="id">{f.rule ?? "default"}</td>
                  <td class="figure">{span((now - Date.parse(f.began)) / 1000)}</td><td class="figure">{bytes(f.received)}</td><td class="figure">{bytes(f.sent)}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
    </section>
  );
}
