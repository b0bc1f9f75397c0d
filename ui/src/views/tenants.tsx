/** Use of each owner against the quotas of its keys. The use is counted from the lists, as the API has no sum of it. */
import { useMemo } from "preact/hooks";
import { get, part } from "../api/request";
import type { Key, KeyQuotas, Sandbox, Snapshot, Tenant } from "../api/types";
import { bytes, mib } from "../parts/format";
import { Meter } from "../parts/meter";
import { useLoad } from "../parts/useload";
import { session } from "../state/session";
import { useStore } from "../state/store";
import { world } from "../state/world";

interface Use {
  sandboxes: number;
  memoryMiB: number;
  diskBytes: number;
}

export function Tenants() {
  const { sandboxes, snapshots } = useStore(world);
  const who = useStore(session);
  const use = useMemo(() => useByOwner(sandboxes, snapshots), [sandboxes, snapshots]);
  // Without the scope admin a key cannot see quotas. The use is shown all the same.
  const admin = who?.admin ?? false;
  const keys = useLoad<Key[]>(
    (signal) => (admin ? get<Key[] | null>("/v1/keys", { signal }).then((k) => k ?? [], () => []) : Promise.resolve([])), `keys ${admin}`,
  );
  const quotas = useMemo(() => quotasByTenant(keys.value ?? []), [keys.value]);
  const mine = who?.tenant ?? "";
  const owners = mine ? [mine] : [...new Set(["", ...use.keys(), ...quotas.keys()])].sort();
  return (
    <section aria-labelledby="tenants">
      <h2 id="tenants">{mine ? "Your use" : "Tenants"}</h2>
      <div class="meters wide">
        {owners.map((owner) => <Owner key={owner} owner={owner} use={use.get(owner)} quota={quotas.get(owner)} operator={!mine} />)}
      </div>
    </section>
  );
}

function Owner({ owner, use, quota, operator }: { owner: string; use: Use | undefined; quota: KeyQuotas | undefined; operator: boolean }) {
  const settings = useLoad<Tenant | null>(
    (signal) => (operator && owner ? get<Tenant>(`/v1/tenants/${part(owner)}`, { signal }).catch(() => null) : Promise.resolve(null)), owner,
  );
  const weight = settings.value?.cpu_weight;
  const { sandboxes = 0, memoryMiB = 0, diskBytes = 0 } = use ?? {};
  const of = (limit: string | undefined): string => (limit ? ` of ${limit}` : "");
  return (
    <div class="card">
      <h3>{owner || "Operator"}</h3>
      <Meter label="Sandboxes" used={sandboxes} limit={quota?.sandboxes} text={`${sandboxes}${of(quota?.sandboxes?.toString())}`} />
      <Meter label="Guest memory" used={memoryMiB} limit={quota?.memory_mib} text={`${mib(memoryMiB)}${of(quota?.memory_mib ? mib(quota.memory_mib) : "")}`} />
      <Meter label="Snapshots on disk" used={diskBytes} limit={(quota?.disk_mib ?? 0) * 2 ** 20} text={`${bytes(diskBytes)}${of(quota?.disk_mib ? mib(quota.disk_mib) : "")}`} />
      {quota?.forks_per_minute ? <p class="hint">At most {quota.forks_per_minute} forks a minute.</p> : null}
      {weight !== undefined && <p class="hint">CPU share {weight}. The default is 100.</p>}
    </div>
  );
}

function useByOwner(sandboxes: Sandbox[], snapshots: Snapshot[]): Map<string, Use> {
  const all = new Map<string, Use>();
  const of = (owner = ""): Use => {
    let u = all.get(owner);
    if (!u) all.set(owner, (u = { sandboxes: 0, memoryMiB: 0, diskBytes: 0 }));
    return u;
  };
  for (const s of sandboxes) {
    if (s.status === "failed") continue;
    const u = of(s.owner);
    u.sandboxes++;
    u.memoryMiB += s.memory_mib ?? 0;
  }
  for (const s of snapshots) of(s.owner).diskBytes += s.size_bytes ?? 0;
  return all;
}

/** Quotas count over all keys of a tenant, so the widest is the one that is met last. */
function quotasByTenant(keys: Key[]): Map<string, KeyQuotas> {
  const all = new Map<string, KeyQuotas>();
  for (const k of keys) {
    if (k.status !== "active") continue;
    const had = all.get(k.tenant ?? "");
    all.set(k.tenant ?? "", had ? widest(had, k.quotas) : k.quotas);
  }
  return all;
}

function widest(a: KeyQuotas, b: KeyQuotas): KeyQuotas {
  const out: KeyQuotas = {};
  for (const name of ["sandboxes", "memory_mib", "disk_mib", "forks_per_minute"] as const) {
    const [x, y] = [a[name], b[name]];
    if (x && y) out[name] = Math.max(x, y); // a key without a quota has no limit
  }
  return out;
}
