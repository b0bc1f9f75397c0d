import { useState } from "preact/hooks";
import { pause } from "../api/actions";
import type { Sandbox } from "../api/types";
import { Dialog } from "../parts/dialog";
import { CheckField } from "../parts/field";
import { toast } from "../state/toasts";
import { refresh } from "../state/world";

export function PauseDialog({ sandbox, onClose }: { sandbox: Sandbox; onClose: () => void }) {
  const [cold, setCold] = useState(false);
  const confirm = async (): Promise<void> => {
    await pause(sandbox.id, cold);
    toast("done", `Paused ${sandbox.id}.`);
    void refresh();
  };
  return (
    <Dialog title={`Pause ${sandbox.id}`} confirm="Pause" onConfirm={confirm} onClose={onClose}>
      <p>The sandbox becomes a snapshot under the same id. It uses no memory until it is resumed.</p>
      <CheckField label="Keep only its disk" help="Its programs end, and it boots when it is resumed." value={cold} onChange={setCold} />
    </Dialog>
  );
}
