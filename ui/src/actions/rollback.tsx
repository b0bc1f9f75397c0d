import { useMemo, useState } from "preact/hooks";
import { rollback } from "../api/actions";
import type { Sandbox, Snapshot } from "../api/types";
import { Dialog } from "../parts/dialog";
import { SelectField } from "../parts/field";
import { span } from "../parts/format";
import { useStore } from "../state/store";
import { toast } from "../state/toasts";
import { refresh, world } from "../state/world";

/** The snapshots a sandbox can return to: those branched from it, its own, and that one's ancestors. */
function targets(sandbox: Sandbox, snapshots: Snapshot[]): Snapshot[] {
  const byTag = new Map(snapshots.map((s) => [s.tag, s]));
  const found = snapshots.filter((s) => s.branched_from === sandbox.id && s.status === "ready")
    .sort((a, b) => b.created_at_unix - a.created_at_unix);
  for (let s = byTag.get(sandbox.snapshot_tag); s && !found.includes(s); s = byTag.get(s.parent_tag ?? "")) found.push(s);
  return found;
}

export function RollbackDialog({ sandbox, onClose }: { sandbox: Sandbox; onClose: () => void }) {
  const { snapshots } = useStore(world);
  const choices = useMemo(() => targets(sandbox, snapshots), [sandbox, snapshots]);
  const [tag, setTag] = useState(() => choices[0]?.tag ?? sandbox.snapshot_tag);
  const now = Date.now() / 1000;
  const confirm = async (): Promise<void> => {
    await rollback(sandbox.id, tag);
    toast("done", `Rolled ${sandbox.id} back to ${tag}.`);
    void refresh();
  };
  return (
    <Dialog title={`Roll back ${sandbox.id}`} confirm="Roll back" danger onConfirm={confirm} onClose={onClose}>
      <p>The sandbox returns to the snapshot. Its programs end, and changes since then are lost.</p>
      <SelectField label="Snapshot" value={tag} onChange={setTag}>
        {choices.map((s) => <option key={s.tag} value={s.tag}>{s.tag} ({span(now - s.created_at_unix)} old)</option>)}
        {!choices.length && <option value={sandbox.snapshot_tag}>{sandbox.snapshot_tag}</option>}
      </SelectField>
    </Dialog>
  );
}
