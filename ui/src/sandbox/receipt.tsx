/** The receipt of a fork, a rollback or a branch: how it was made, and the guest's proof that it is no longer a copy. */
import { ApiError } from "../api/error";
import { get } from "../api/request";
import type { Receipt, ReceiptSource } from "../api/types";
import { Badge } from "../parts/badge";
import { Facts } from "../parts/facts";
import { Failure, Wait } from "../parts/failure";
import { bytes, ms } from "../parts/format";
import { useLoad } from "../parts/useload";

export function ReceiptTab({ path, again }: { path: string; again: string }) {
  const { value: r, error, reload } = useLoad<Receipt>((signal) => get(path, { signal }), path, again);
  if (error instanceof ApiError && error.reason === "receipt_not_found") return <p class="hint">There is no receipt of it. {error.hint}</p>;
  if (error) return <Failure error={error} retry={reload} />;
  if (!r) return <Wait what="the receipt" />;
  return (
    <>
      <section aria-labelledby="operation">
        <h2 id="operation">Operation</h2>
        {r.error && <p class="notice">{r.error}</p>}
        <Facts facts={[
          ["Operation", r.op], ["Ended", new Date(r.at_unix_ms).toLocaleString()], ["Took", ms(r.took_ms)],
          ["Receipt", <span class="id">{r.id}</span>],
          ["Shell", r.vm && (r.vm.prepared ? "prepared" : r.vm.pooled ? "from the pool" : "started for it")],
          ["Pages mapped ahead", r.vm?.populated_pages?.toLocaleString("en")],
          ["Mode", r.capture?.mode], ["Pause", r.capture && ms(r.capture.pause_ms)], ["Rounds", r.capture?.rounds],
          ["Memory written", r.capture && bytes(r.capture.bytes)], ["Copied in the pause", r.capture && bytes(r.capture.paused_bytes)],
          ["Image", r.image?.name],
          ["Recovered", r.recovered && "yes, without the guest's answer"],
        ]} />
        {r.steps.length > 0 && <Steps title="Steps of the daemon" steps={r.steps} />}
      </section>
      {r.guest && (
        <section aria-labelledby="proof">
          <h2 id="proof">Proof of the guest</h2>
          <Facts facts={[
            ["Kernel reseeded", <Badge text={r.guest.kernel_reseeded ? "yes" : "no"} tone={r.guest.kernel_reseeded ? "good" : "bad"} />],
            ["Random digest", <span class="id wrap">{r.guest.random_digest}</span>],
            ["Boot id", <span class="id wrap">{r.guest.boot_id}</span>],
            ["Clock moved by", ms(Math.abs(r.guest.clock_step_ms))],
            ["Interpreters", r.guest.interpreters.map((i) => `${i.language}: ${i.error ?? i.reseeded.join(", ")}`).join("; ")],
            ["Hooks", r.guest.hooks.map((h) => `${h.name} (${h.exit_code})`).join(", ")],
          ]} />
          <Steps title="Steps of the guest" steps={r.guest.steps.map((s) => ({ ...s, name: s.error ? `${s.name}: ${s.error}` : s.name }))} />
        </section>
      )}
      {r.identity && (
        <section aria-labelledby="identity">
          <h2 id="identity">Identity</h2>
          <Facts facts={[
            ["Host name", <span class="id">{r.identity.hostname}</span>], ["Machine id", <span class="id wrap">{r.identity.machine_id}</span>],
            ["VM generation", r.identity.vm_generation_id && <span class="id wrap">{r.identity.vm_generation_id}</span>],
            ["Index", r.identity.index], ["Entropy", r.identity.entropy_bytes && bytes(r.identity.entropy_bytes)], ["Way", r.identity.way],
          ]} />
        </section>
      )}
      {r.parent && <Source title="Made from" source={r.parent} />}
      {r.made && <Source title="Made" source={r.made} />}
    </>
  );
}

function Steps({ title, steps }: { title: string; steps: { name: string; took_ms: number }[] }) {
  const total = Math.max(...steps.map((s) => s.took_ms), 0.001);
  return (
    <table class="steps">
      <caption>{title}</caption>
      <thead><tr><th scope="col">Step</th><th scope="col" class="figure">Time</th><th scope="col"><span class="unseen">Share</span></th></tr></thead>
      <tbody>
        {steps.map((s, i) => (
          <tr key={i}>
            <th scope="row">{s.name}</th>
            <td class="figure">{ms(s.took_ms)}</td>
            <td class="share"><span style={{ width: `${Math.max(0.5, (s.took_ms / total) * 100)}%` }} /></td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}

function Source({ title, source }: { title: string; source: ReceiptSource }) {
  return (
    <section>
      <h2>{title} {source.tag}</h2>
      {source.content_hash && <Facts facts={[["Content hash", <span class="id wrap">{source.content_hash}</span>]]} />}
      <div class="scroll" tabIndex={0} role="group" aria-label={`Layers of ${source.tag}`}>
        <table>
          <thead><tr><th scope="col">Layer</th><th scope="col">Kind</th><th scope="col" class="figure">Size</th><th scope="col">Digest</th></tr></thead>
          <tbody>
            {source.layers.map((l) => (
              <tr key={l.id}>
                <th scope="row" class="id">{l.id}</th><td>{l.kind.replace("_", " ")}</td><td class="figure">{bytes(l.bytes)}</td>
                <td class="id">{l.digest ? l.digest.slice(0, 24) + "…" : "–"}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </section>
  );
}
