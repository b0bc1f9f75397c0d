/** The difference of two snapshots. The daemon forks a child of each for it, so it takes a moment. */
import type { ComponentChildren } from "preact";
import { get, part, snapshotPath } from "../api/request";
import type { SnapshotDiff } from "../api/types";
import { Badge, type Tone } from "../parts/badge";
import { Failure, Wait } from "../parts/failure";
import { bytes, count, kib, ms } from "../parts/format";
import { useLoad } from "../parts/useload";

export function SnapshotCompare({ a, b }: { a: string; b: string }) {
  const { value: d, error, reload, loading } = useLoad<SnapshotDiff>(
    (signal) => get(snapshotPath(a, `/diff/${part(b)}`), { signal, query: { limit: 1000 } }), `${a} ${b}`,
  );
  if (error) return <Failure error={error} retry={reload} />;
  if (!d || loading) return <Wait what="both snapshots" />;
  const { files: f, processes: p, packages: k } = d;
  return (
    <>
      <p class="hint">From {d.before} to {d.after}: {count(f.compared, "path")} compared in {ms(d.took_ms)}.{f.complete && p.complete && k.complete ? "" : " Some could not be read."}</p>
      <Part title="Files" rows={[
        ...f.added.map((x): Line => ["added", x.path, bytes(x.size_bytes)]),
        ...f.removed.map((x): Line => ["removed", x.path, bytes(x.size_bytes)]),
        ...f.changed.map((x): Line => ["changed", x.path, `${x.what.join(", ")}${x.size_bytes === x.size_bytes_before ? "" : `: ${bytes(x.size_bytes_before)} → ${bytes(x.size_bytes)}`}`]),
      ]} />
      <Part title="Processes" rows={[
        ...p.started.map((x): Line => ["added", `${x.pid} ${x.args.join(" ") || x.name}`, kib(x.pss_kib)]),
        ...p.ended.map((x): Line => ["removed", `${x.pid} ${x.args.join(" ") || x.name}`, kib(x.pss_kib)]),
        ...p.changed.map((x): Line => ["changed", `${x.pid} ${x.args.join(" ") || x.name}`, `${kib(x.pss_kib_before)} → ${kib(x.pss_kib)}`]),
      ]} />
      <Part title="Packages" rows={[
        ...k.added.map((x): Line => ["added", x.name, x.version]),
        ...k.removed.map((x): Line => ["removed", x.name, x.version]),
        ...k.changed.map((x): Line => ["changed", x.name, `${x.version_before} → ${x.version}`]),
      ]} />
    </>
  );
}

export type Line = [change: string, name: string, detail: ComponentChildren];

const tones: Record<string, Tone> = { added: "good", removed: "bad", deleted: "bad", changed: "warn", modified: "warn", merged: "plain", conflict: "bad", skipped: "rest" };

export function Part({ title, rows }: { title: string; rows: Line[] }) {
  return (
    <section aria-label={title}>
      <h2>{title} <span class="hint">{rows.length.toLocaleString("en")}</span></h2>
      {!rows.length ? <p class="hint">No difference.</p> : (
        <div class="scroll" tabIndex={0} role="group" aria-label={`Changes: ${title}`}>
          <table class="changes">
            <thead><tr><th scope="col">Change</th><th scope="col">Name</th><th scope="col">Detail</th></tr></thead>
            <tbody>
              {rows.map(([change, name, detail], i) => (
                <tr key={i}><td><Badge text={change} tone={tones[change] ?? "plain"} /></td><th scope="row" class="id wrap">{name}</th><td>{detail}</td></tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
    </section>
  );
}
