import { useState } from "preact/hooks";
import { promote } from "../api/actions";
import type { Sandbox } from "../api/types";
import { Dialog } from "../parts/dialog";
import { SelectField, TextField } from "../parts/field";
import { go, route, toSandbox } from "../state/route";
import { toast } from "../state/toasts";
import { refresh } from "../state/world";

export function PromoteDialog({ sandbox, onClose }: { sandbox: Sandbox; onClose: () => void }) {
  const [parent, setParent] = useState("pause");
  const [place, setPlace] = useState("");
  const confirm = async (): Promise<void> => {
    const done = await promote(sandbox.id, parent as "pause" | "kill", place.trim());
    toast("done", `${done.sandbox.id} now has the state of ${done.promoted_from}.`, done.kept_in ? `Its old state is in ${done.kept_in}.` : "");
    const at = route.get();
    if (at.view === "sandbox" && at.id === sandbox.id) go(toSandbox(done.sandbox.id));
    void refresh();
  };
  return (
    <Dialog title={`Promote ${sandbox.id}`} confirm="Promote" danger onConfirm={confirm} onClose={onClose}>
      <p>Its state takes the place of the sandbox that it was forked from, under that one's id. Its own id ends.</p>
      <SelectField label="The old state of that sandbox" value={parent} onChange={setParent}>
        <option value="pause">Keep it in a snapshot</option>
        <option value="kill">Discard it</option>
      </SelectField>
      <TextField label="Sandbox to replace" value={place} onChange={setPlace} help="Empty: the nearest that it was forked from" />
    </Dialog>
  );
}
