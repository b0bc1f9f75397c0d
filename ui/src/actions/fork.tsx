import { useState } from "preact/hooks";
import { fork, type ForkRequest } from "../api/actions";
import type { Sandbox, Snapshot } from "../api/types";
import { Dialog } from "../parts/dialog";
import { NumberField, SelectField } from "../parts/field";
import { count } from "../parts/format";
import { toast } from "../state/toasts";
import { refresh } from "../state/world";

export function ForkDialog({ snapshot, onClose }: { snapshot: Snapshot; onClose: () => void }) {
  const [n, setN] = useState(1);
  const [net, setNet] = useState("");
  const [ttl, setTTL] = useState(0);
  const [end, setEnd] = useState("kill");
  const confirm = async (): Promise<void> => {
    const request: ForkRequest = { snapshot_tag: snapshot.tag, n };
    if (net) request.net = net as "none" | "public";
    if (ttl > 0) Object.assign(request, { ttl_secs: ttl * 60, at_end: end });
    tell(await fork(request), snapshot.tag);
    void refresh();
  };
  return (
    <Dialog title={`Fork ${snapshot.tag}`} confirm="Fork" onConfirm={confirm} onClose={onClose}>
      <NumberField label="Sandboxes" value={n} min={1} max={1000} onChange={setN} />
      <SelectField label="Network" value={net} onChange={setNet}>
        <option value="">As the snapshot</option>
        <option value="none">None</option>
        <option value="public">Public addresses</option>
      </SelectField>
      <NumberField label="Lifetime in minutes" value={ttl} min={0} onChange={setTTL} help="0: until it is killed" />
      {ttl > 0 && (
        <SelectField label="At its end" value={end} onChange={setEnd}>
          <option value="kill">Kill it</option>
          <option value="pause">Pause it</option>
        </SelectField>
      )}
    </Dialog>
  );
}

/** A fork may succeed in part: each child that failed has its own error. */
export function tell(children: Sandbox[], from: string): void {
  const failed = children.filter((c) => c.status === "failed");
  const made = children.length - failed.length;
  if (made) toast("done", `Forked ${count(made, "sandbox", "sandboxes")} from ${from}.`);
  if (failed.length) toast("error", `${count(failed.length, "sandbox", "sandboxes")} of ${from} failed: ${failed[0]?.error ?? ""}`);
}
