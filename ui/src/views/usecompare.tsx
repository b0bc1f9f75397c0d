/** The memory, disk and CPU of two sandboxes or snapshots, side by side. */
import { get, sandboxPath, snapshotPath } from "../api/request";
import type { MemoryUse, Sandbox, SnapshotDetail } from "../api/types";
import { Failure } from "../parts/failure";
import { bytes, kib, mib, ms } from "../parts/format";
import { useLoad } from "../parts/useload";
import { useStore } from "../state/store";
import { world } from "../state/world";

type Figures = Record<string, string | undefined>;

const ofSandbox = (s: Sandbox, m?: MemoryUse): Figures => ({
  "Guest memory": mib(s.memory_mib),
  "Memory of its own": kib(s.own_memory_kib),
  "Memory shared with others": m && kib(m.guest_shared_kib),
  "Peak memory": s.use && bytes(s.use.memory_peak_bytes),
  "Disk": s.use && `${bytes(s.use.disk_written_bytes)} written`,
  "CPU time": s.use && ms(s.use.cpu_ms),
});

const ofSnapshot = (s: SnapshotDetail): Figures => ({
  "Guest memory": mib(s.memory_mib),
  "Memory of its own": bytes(s.memory_own_bytes),
  "Memory shared with others": bytes(Math.max(0, s.memory_logical_bytes - s.memory_own_bytes)),
  "Disk": `${bytes(s.disk_own_bytes)} of its own`,
});

async function read(name: string, sandbox: Sandbox | undefined, signal: AbortSignal): Promise<Figures> {
  if (!sandbox) return ofSnapshot(await get<SnapshotDetail>(snapshotPath(name, "/info"), { signal }));
  if (sandbox.status !== "running") return ofSandbox(sandbox);
  return ofSandbox(sandbox, await get<MemoryUse>(sandboxPath(name, "/memory"), { signal }));
}

export function UseCompare({ a, b }: { a: string; b: string }) {
  const { sandboxes } = useStore(world);
  const of = (name: string): Sandbox | undefined => sandboxes.find((s) => s.id === name);
  const { value, error, reload } = useLoad(
    (signal) => Promise.all([read(a, of(a), signal), read(b, of(b), signal)]), `${a} ${b}`,
  );
  if (error) return <Failure error={error} retry={reload} />;
  if (!value) return null;
  const [first, second] = value;
  const rows = [...new Set([...Object.keys(first), ...Object.keys(second)])].filter((r) => first[r] ?? second[r]);
  return (
    <section aria-label="Memory">
      <h2>Memory</h2>
      <div class="scroll" tabIndex={0} role="group" aria-label="Memory, disk and CPU">
        <table>
          <thead><tr><th scope="col">Use</th><th scope="col" class="id">{a}</th><th scope="col" class="id">{b}</th></tr></thead>
          <tbody>
            {rows.map((r) => <tr key={r}><th scope="row">{r}</th><td>{first[r] ?? "–"}</td><td>{second[r] ?? "–"}</td></tr>)}
          </tbody>
        </table>
      </div>
    </section>
  );
}
