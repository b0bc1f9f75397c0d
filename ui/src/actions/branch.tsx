import { useState } from "preact/hooks";
import { branch, type BranchRequest } from "../api/actions";
import type { Sandbox } from "../api/types";
import { Dialog } from "../parts/dialog";
import { NumberField, SelectField, TextField } from "../parts/field";
import { ms } from "../parts/format";
import { toast } from "../state/toasts";
import { refresh } from "../state/world";
import { tell } from "./fork";

export function BranchDialog({ sandbox, onClose }: { sandbox: Sandbox; onClose: () => void }) {
  const [n, setN] = useState(0);
  const [tag, setTag] = useState("");
  const [mode, setMode] = useState("live");
  const confirm = async (): Promise<void> => {
    const request: BranchRequest = { mode: mode as "live" | "diff" | "full" };
    if (tag) request.tag = tag;
    if (n > 0) request.n = n;
    const made = await branch(sandbox.id, request);
    toast("done", `Branched ${sandbox.id} to ${made.tag}${made.pause_ms === undefined ? "" : `, with a pause of ${ms(made.pause_ms)}`}.`);
    if (made.children?.length) tell(made.children, made.tag);
    void refresh();
  };
  return (
    <Dialog title={`Branch ${sandbox.id}`} confirm="Branch" onConfirm={confirm} onClose={onClose}>
      <p>Makes a snapshot of the sandbox, which keeps running.</p>
      <TextField label="Name of the snapshot" value={tag} onChange={setTag} pattern="[A-Za-z0-9_\-]{1,64}" help="Empty: one is made up" />
      <NumberField label="Children to fork from it" value={n} min={0} max={1000} onChange={setN} />
      <SelectField label="Mode" value={mode} onChange={setMode}>
        <option value="live">Live: the shortest pause</option>
        <option value="diff">Diff: the least work</option>
        <option value="full">Full: depends on no other snapshot</option>
      </SelectField>
    </Dialog>
  );
}
