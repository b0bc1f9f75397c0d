/** What runs now, and what happened last. It stands beside the tree where there is room. */
import { useMemo } from "preact/hooks";
import type { ForkdEvent } from "../api/types";
import { Badge } from "../parts/badge";
import { bytes, count } from "../parts/format";
import { recent } from "../state/live";
import { toSandbox, toSnapshot } from "../state/route";
import { statesOf } from "../state/states";
import { useStore } from "../state/store";
import { world } from "../state/world";

export function Activity() {
  const { sandboxes, snapshots } = useStore(world);
  const events = useStore(recent);
  const states = useMemo(() => statesOf(sandboxes), [sandboxes]);
  const own = useMemo(() => sandboxes.reduce((sum, s) => sum + (s.own_memory_kib ?? 0) * 1024, 0), [sandboxes]);
  const disk = useMemo(() => snapshots.reduce((sum, s) => sum + (s.size_bytes ?? 0), 0), [snapshots]);
  return (
    <section class="activity" aria-labelledby="now">
      <h2 id="now">Now</h2>
      <ul class="tiles">
        <li class="card"><span class="big">{sandboxes.length.toLocaleString("en")}</span><span class="hint">{count(sandboxes.length, "sandbox", "sandboxes").replace(/^\S+ /, "")}</span></li>
        <li class="card"><span class="big">{bytes(own)}</span><span class="hint">memory of their own</span></li>
        <li class="card"><span class="big">{snapshots.length.toLocaleString("en")}</span><span class="hint">{bytes(disk)} of snapshots</span></li>
      </ul>
      <ul class="states">
        {states.map(([state, n]) => <li key={state}><Badge text={state} /> <span class="figure">{n.toLocaleString("en")}</span></li>)}
      </ul>
      <h2>Events</h2>
      {!events.length ? <p class="hint">None since this page was opened.</p> : (
        <ol class="events">
          {events.map((e) => <li key={e.id}><EventLine e={e} /></li>)}
        </ol>
      )}
    </section>
  );
}

function EventLine({ e }: { e: ForkdEvent }) {
  const about = e.sandbox
    ? <a class="id" href={toSandbox(e.sandbox)}>{e.sandbox}</a>
    : e.snapshot ? <a class="id" href={toSnapshot(e.snapshot)}>{e.snapshot}</a> : null;
  return (
    <>
      <time dateTime={e.time}>{new Date(e.time).toLocaleTimeString()}</time>
      <span class="what">{e.kind.replace(/^\w+\./, "").replace(/_/g, " ")}</span>
      <span class="about">{about}{e.detail?.reason ? ` ${e.detail.reason}` : ""}</span>
    </>
  );
}
