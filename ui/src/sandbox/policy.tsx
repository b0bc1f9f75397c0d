/** Changes the policy of a running sandbox. */
import { useState } from "preact/hooks";
import { setNetwork } from "../api/actions";
import type { NetworkPolicy } from "../api/types";
import { Dialog } from "../parts/dialog";
import { AreaField, SelectField } from "../parts/field";
import { toast } from "../state/toasts";
import { refresh } from "../state/world";

const rulesOf = (text: string): string[] => text.split(/\s+/).filter(Boolean);

export function PolicyDialog({ id, policy, onClose }: { id: string; policy: NetworkPolicy; onClose: () => void }) {
  const [fallback, setFallback] = useState<string>(policy.default ?? "deny");
  const [allow, setAllow] = useState((policy.allow ?? []).join("\n"));
  const [deny, setDeny] = useState((policy.deny ?? []).join("\n"));
  const confirm = async (): Promise<void> => {
    // The request replaces the whole policy, so what the form does not show goes back as it came.
    await setNetwork(id, { network: { ...policy, default: fallback, allow: rulesOf(allow), deny: rulesOf(deny) } });
    toast("done", `Changed the network policy of ${id}.`);
    void refresh();
  };
  return (
    <Dialog title="Change the network policy" confirm="Change" onConfirm={confirm} onClose={onClose}>
      <SelectField label="Connections without a rule" value={fallback} onChange={setFallback}>
        <option value="deny">Deny</option>
        <option value="public">Allow public addresses</option>
      </SelectField>
      <AreaField label="Allow" help="A rule per line, such as pypi.org:443 or *.example.com" value={allow} onChange={setAllow} />
      <AreaField label="Deny" help="Allow beats deny. Open connections that become forbidden are reset." value={deny} onChange={setDeny} rows={2} />
    </Dialog>
  );
}
