/** What a sandbox is, what it uses, and how long it lives. */
import { get, sandboxPath } from "../api/request";
import type { MemoryUse, Sandbox } from "../api/types";
import { Facts } from "../parts/facts";
import { bytes, kib, mib, ms, span, time } from "../parts/format";
import { Labels } from "../parts/labels";
import { Meter } from "../parts/meter";
import { useLoad } from "../parts/useload";
import { clock } from "../state/clock";
import { toSandbox, toSnapshot } from "../state/route";
import { useStore } from "../state/store";

export function Overview({ sandbox: s }: { sandbox: Sandbox }) {
  const now = useStore(clock);
  const runs = s.status === "running" || s.status === "stalled";
  const memory = useLoad<MemoryUse | null>(
    (signal) => (runs ? get<MemoryUse>(sandboxPath(s.id, "/memory"), { signal }) : Promise.resolve(null)), s.id, Math.floor(now / 20) + s.status,
  );
  const m = memory.value;
  const left = s.life?.deadline_unix ? s.life.deadline_unix - now : undefined;
  return (
    <>
      <section aria-labelledby="use">
        <h2 id="use">Use</h2>
        <div class="meters">
          {s.own_memory_kib !== undefined && (
            <Meter label="Memory of its own" used={s.own_memory_kib} limit={(s.memory_limit_mib ?? s.memory_mib ?? 0) * 1024}
              text={`${kib(s.own_memory_kib)} of ${mib(s.memory_limit_mib ?? s.memory_mib)}`} />
          )}
          {m && (
            <Meter label="Shared with its siblings" used={m.guest_shared_kib} limit={(s.memory_mib ?? 0) * 1024}
              text={kib(m.guest_shared_kib)} />
          )}
          {left !== undefined && (
            <Meter label={`Until it is ${s.life?.at_end === "pause" ? "paused" : "killed"}`} used={Math.max(0, now - s.created_at_unix)}
              limit={Math.max(1, (s.life?.deadline_unix ?? 0) - s.created_at_unix)} text={left > 0 ? span(left) : "now"} />
          )}
        </div>
        <Facts facts={[
          ["CPU time", s.use && ms(s.use.cpu_ms)],
          ["Throttled", s.use && s.use.throttled_ms > 0 && ms(s.use.throttled_ms)],
          ["Peak memory", s.use && bytes(s.use.memory_peak_bytes)],
          ["Dirty guest pages", m && kib(m.guest_dirty_kib)],
          ["Memory of its VMM", m && kib(m.vmm_anon_kib)],
          ["Disk read", s.use && bytes(s.use.disk_read_bytes)],
          ["Disk written", s.use && bytes(s.use.disk_written_bytes)],
          ["Network in", s.use?.net_in_bytes !== undefined && bytes(s.use.net_in_bytes)],
          ["Network out", s.use?.net_out_bytes !== undefined && bytes(s.use.net_out_bytes)],
        ]} />
      </section>
      <section aria-labelledby="origin">
        <h2 id="origin">Origin</h2>
        <Facts facts={[
          ["Snapshot", <a class="id" href={toSnapshot(s.snapshot_tag)}>{s.snapshot_tag}</a>],
          ["Forked by", s.forked_by && <a class="id" href={toSandbox(s.forked_by)}>{s.forked_by}</a>],
          ["Index in its fork", s.index],
          ["Made", `${time(s.created_at_unix)} (${span(now - s.created_at_unix)} ago)`],
          ["Ready after", s.timings && ms(s.timings.ready_ms)],
          ["Rolled back to", s.rolled_back_to && <a class="id" href={toSnapshot(s.rolled_back_to)}>{s.rolled_back_to}</a>],
          ["Promoted from", s.promoted_from && <span class="id">{s.promoted_from}</span>],
          ["Paused in", s.paused_in && <a class="id" href={toSnapshot(s.paused_in)}>{s.paused_in}</a>],
          ["Owner", s.owner],
          ["Labels", s.labels && Object.keys(s.labels).length > 0 && <Labels labels={s.labels} />],
        ]} />
      </section>
      <section aria-labelledby="machine">
        <h2 id="machine">Machine</h2>
        <Facts facts={[
          ["Host name", s.hostname && <span class="id">{s.hostname}</span>],
          ["CPUs", s.cpus ? `${s.vcpus ?? "?"}, limited to ${s.cpus}` : s.vcpus],
          ["Guest memory", mib(s.memory_mib)],
          ["Memory limit", s.memory_limit_mib ? mib(s.memory_limit_mib) : "none"],
          ["Disk limit", s.disk_limit_mib && mib(s.disk_limit_mib)],
          ["Network", s.network?.policy],
          ["Private network", s.net_join && [s.net_join.network, s.net_join.alias].filter(Boolean).join(", as ")],
          ["Volumes", s.volumes?.map((v) => `${v.name} on ${v.path}`).join(", ")],
          ["Network limit", s.network && s.net_rate_mib && `${mib(s.net_rate_mib)} a second`],
          ["Ports from outside", s.private_ports ? "need a token" : "are open"],
          ["Guest may fork itself", s.guest_fork && "yes"],
          ["Idle limit", s.life?.idle_secs && span(s.life.idle_secs)],
          ["Resumes on use", s.life?.auto_resume && "yes"],
          ["Last killed for memory", s.last_oom && `${s.last_oom.process} (${s.last_oom.pid})`],
          ["VMM process", s.pid],
        ]} />
      </section>
    </>
  );
}
