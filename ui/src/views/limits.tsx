/** What the host has, and what tenants use of what they may. */
import { get } from "../api/request";
import type { Capacity } from "../api/types";
import { Badge } from "../parts/badge";
import { Failure, Wait } from "../parts/failure";
import { bytes, count, percent } from "../parts/format";
import { Meter } from "../parts/meter";
import { useLoad } from "../parts/useload";
import { clock } from "../state/clock";
import { session } from "../state/session";
import { useStore } from "../state/store";
import { Tenants } from "./tenants";

export function LimitsView() {
  const who = useStore(session);
  // The host is the operator's business. A tenant sees its own use.
  const operator = who?.tenant === "" && who.admin;
  return (
    <>
      <h1>Limits</h1>
      {operator && <Host />}
      <Tenants />
    </>
  );
}

function Host() {
  const now = useStore(clock);
  const { value: c, error, reload } = useLoad<Capacity>((signal) => get("/v1/capacity", { signal }), "capacity", now);
  return (
    <section aria-labelledby="host">
      <div class="bar-row">
        <h2 id="host">Host</h2>
        {c && <Badge {...admission[c.admits]} />}
        {c && <span class="hint">{count(c.sandboxes, "running sandbox", "running sandboxes")}{c.coming > 0 ? `, ${c.coming} being started` : ""}</span>}
      </div>
      {error ? <Failure error={error} retry={reload} /> : !c ? <Wait what="the capacity" /> : (
        <div class="meters wide">
          {c.resources.map((r) => {
            const show = r.resource === "memory" || r.resource === "disk" ? bytes : (n: number) => n.toLocaleString("en");
            const used = Math.max(0, r.total - r.free - r.reserve);
            return (
              <div key={r.resource} class="card">
                <Meter label={names[r.resource] ?? r.resource} used={used} limit={r.total - r.reserve}
                  text={r.total ? `${show(used)} of ${show(r.total - r.reserve)}` : `${show(r.free)} free`} note={`${show(r.reserve)} are kept free.`} />
                {r.promised !== undefined && (
                  <Meter label="Promised to sandboxes" used={r.promised} limit={r.may_promise}
                    text={`${show(r.promised)}${r.may_promise ? ` of ${show(r.may_promise)}` : ", without a limit"}`} />
                )}
              </div>
            );
          })}
          {c.pressure.length > 0 && (
            <div class="card">
              {c.pressure.map((p) => (
                <Meter key={p.resource} label={`Waiting for ${waits[p.resource] ?? p.resource}`} used={p.some_percent} limit={p.none_percent ?? 100}
                  text={`${percent(p.some_percent)}${p.none_percent ? ` of ${p.none_percent} %` : ""}`} />
              ))}
              <p class="hint">Share of the last 10 s. At the limit no sandbox is made.</p>
            </div>
          )}
        </div>
      )}
    </section>
  );
}

const names: Record<string, string> = { memory: "Memory", disk: "Disk", descriptors: "File descriptors", threads: "Threads" };
const waits: Record<string, string> = { cpu: "CPU", memory: "memory", io: "disks" };
const admission = {
  all: { text: "admits sandboxes", tone: "good" }, fewer: { text: "admits fewer at once", tone: "warn" }, none: { text: "admits none", tone: "bad" },
} as const;
