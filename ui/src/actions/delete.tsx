import { useState } from "preact/hooks";
import { deleteSnapshot } from "../api/actions";
import type { Snapshot } from "../api/types";
import { Dialog } from "../parts/dialog";
import { CheckField } from "../parts/field";
import { go, route, toTree } from "../state/route";
import { toast } from "../state/toasts";
import { refresh } from "../state/world";

export function DeleteDialog({ snapshot, onClose }: { snapshot: Snapshot; onClose: () => void }) {
  const [cascade, setCascade] = useState(false);
  const confirm = async (): Promise<void> => {
    await deleteSnapshot(snapshot.tag, cascade);
    toast("done", `Deleted ${snapshot.tag}.`);
    const at = route.get();
    if (at.view === "snapshot" && at.tag === snapshot.tag) go(toTree);
    void refresh();
  };
  return (
    <Dialog title={`Delete ${snapshot.tag}?`} confirm="Delete" danger onConfirm={confirm} onClose={onClose}>
      <p>The snapshot cannot be forked from any more.</p>
      <CheckField label="Delete the snapshots built on it too" value={cascade} onChange={setCascade} />
    </Dialog>
  );
}
