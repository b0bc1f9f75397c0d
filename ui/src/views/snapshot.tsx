/** One snapshot: its size, its lineage, its receipt. */
import { useRef } from "preact/hooks";
import { snapshotActions } from "../actions/menus";
import { get, snapshotPath } from "../api/request";
import type { SnapshotDetail } from "../api/types";
import { Badge, snapshotState } from "../parts/badge";
import { Facts } from "../parts/facts";
import { Failure, Wait } from "../parts/failure";
import { bytes, count, mib, ms, span, time } from "../parts/format";
import { ObjectHeading } from "../parts/heading";
import { Labels } from "../parts/labels";
import { Meter } from "../parts/meter";
import { useLoad } from "../parts/useload";
import { ReceiptTab } from "../sandbox/receipt";
import { lastEvent } from "../state/live";
import { toSandbox, toSnapshot } from "../state/route";
import { useStore } from "../state/store";
import { snapshotKey } from "../tree/build";
import { ActionBar } from "./actionbar";
import { Lineage } from "./lineage";

export function SnapshotView({ tag }: { tag: string }) {
  const event = useStore(lastEvent);
  const seen = useRef({ version: 0, deleted: false, now: "" });
  if (event?.snapshot === tag) {
    seen.current.deleted = event.kind === "snapshot.deleted";
    if (!seen.current.deleted) seen.current.version = event.id;
  }
  if (event?.kind === "snapshot.renamed" && event.detail?.was === tag && event.snapshot) seen.current.now = event.snapshot;
  const { version, deleted, now } = seen.current;
  const { value: s, error, reload } = useLoad<SnapshotDetail>((signal) => get(snapshotPath(tag, "/info"), { signal }), tag, version);
  return (
    <>
      <Lineage of={snapshotKey(tag)} />
      <div class="title">
        <ObjectHeading name={tag} />
        {s && !error ? <Badge text={snapshotState(s)} /> : null}
        {s?.public && <Badge text="public" tone="plain" />}
      </div>
      {deleted ? <p class="notice">This snapshot was deleted.</p> : now ? <p class="notice">This snapshot is called <a class="id" href={toSnapshot(now)}>{now}</a> now.</p> : error ? <Failure error={error} retry={reload} /> : !s ? <Wait what="the snapshot" /> : <Detail s={s} />}
    </>
  );
}

function Detail({ s }: { s: SnapshotDetail }) {
  return (
    <>
      {(s.warning || s.damaged?.length) && <p class="notice">{[s.warning, ...(s.damaged ?? [])].filter(Boolean).join(" ")}</p>}
      <ActionBar actions={snapshotActions(s)} />
      <div class="panel">
        <section aria-labelledby="size">
          <h2 id="size">Size</h2>
          <div class="meters">
            <Meter label="Memory of its own" used={s.memory_own_bytes} limit={s.memory_logical_bytes}
              text={`${bytes(s.memory_own_bytes)} of ${bytes(s.memory_logical_bytes)}`} />
            {s.disk_logical_bytes > 0 && (
              <Meter label="Disk of its own" used={s.disk_own_bytes} limit={s.disk_logical_bytes}
                text={`${bytes(s.disk_own_bytes)} of ${bytes(s.disk_logical_bytes)}`} />
            )}
          </div>
          <Facts facts={[
            ["On disk", bytes(s.size_bytes)], ["Memory, whole chain", bytes(s.memory_physical_bytes)],
            ["Disk, whole chain", s.disk_physical_bytes > 0 && bytes(s.disk_physical_bytes)], ["State of devices", bytes(s.vmstate_bytes)],
          ]} />
        </section>
        <section aria-labelledby="origin">
          <h2 id="origin">Origin</h2>
          <Facts facts={[
            ["Made", `${time(s.created_at_unix)} (${span(Date.now() / 1000 - s.created_at_unix)} ago)`],
            ["Image", s.image],
            ["Branched from", s.branched_from && <a class="id" href={toSandbox(s.branched_from)}>{s.branched_from}</a>],
            ["Built on", s.parent_tag && <a class="id" href={toSnapshot(s.parent_tag)}>{s.parent_tag}</a>],
            ["Pause of the source", s.pause_ms !== undefined && ms(s.pause_ms)],
            ["Depth of its chain", s.chain_depth],
            ["Transient", s.transient && "yes: it is deleted with its last sandbox"],
            ["Owner", s.owner],
            ["Labels", s.labels && Object.keys(s.labels).length > 0 && <Labels labels={s.labels} />],
          ]} />
          <Links title="Sandboxes" names={s.sandboxes} to={toSandbox} />
          <Links title="Snapshots built on it" names={s.dependents} to={toSnapshot} />
        </section>
        <section aria-labelledby="machine">
          <h2 id="machine">Machine</h2>
          <Facts facts={[
            ["CPUs", s.vcpus], ["Guest memory", mib(s.memory_mib)], ["Kernel", s.kernel_version],
            ["Warm interpreters", s.languages?.join(", ")], ["Default network", s.network ? s.network.default ?? "rules" : "none"],
            ["Content hash", s.content_hash && <span class="id wrap">{s.content_hash}</span>],
            ["Verified", s.verified_at_unix ? time(s.verified_at_unix) : undefined],
          ]} />
        </section>
        <ReceiptTab path={snapshotPath(s.tag, "/receipt")} again={s.status} />
      </div>
    </>
  );
}

/** Names that are shown at first. A snapshot may have a thousand sandboxes. */
const FEW = 12;

function Links({ title, names, to }: { title: string; names: string[]; to: (name: string) => string }) {
  if (!names.length) return null;
  return (
    <>
      <h3>{title}</h3>
      <ul class="links">
        {names.slice(0, FEW).map((n) => <li key={n}><a class="id" href={to(n)}>{n}</a></li>)}
        {names.length > FEW && <li class="hint">and {count(names.length - FEW, "more", "more")}</li>}
      </ul>
    </>
  );
}
