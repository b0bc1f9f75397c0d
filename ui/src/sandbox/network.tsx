/** The network of a sandbox: its policy, its open connections, and its log. */
import { useState } from "preact/hooks";
import { get, sandboxPath } from "../api/request";
import type { NetworkPolicy, SandboxNetwork } from "../api/types";
import { Badge } from "../parts/badge";
import { Facts } from "../parts/facts";
import { Failure, Wait } from "../parts/failure";
import { bytes } from "../parts/format";
import { useLoad } from "../parts/useload";
import { Flows } from "./flows";
import { NetworkLog } from "./netlog";
import { PolicyDialog } from "./policy";

export function Network({ id, runs }: { id: string; runs: boolean }) {
  const { value: n, error, reload } = useLoad<SandboxNetwork>((signal) => get(sandboxPath(id, "/network"), { signal }), id);
  const [editing, setEditing] = useState(false);
  return (
    <>
      <section aria-labelledby="policy">
        <div class="bar-row">
          <h2 id="policy">Policy</h2>
          {n && <Badge text={n.policy} tone={n.policy === "none" ? "rest" : "plain"} />}
          {n && runs && n.policy !== "tap" && <button type="button" onClick={() => setEditing(true)}>Change …</button>}
        </div>
        {error ? <Failure error={error} retry={reload} /> : !n ? <Wait what="the policy" /> : (
          <>
            {n.warning && <p class="notice">{n.warning}</p>}
            <Policy policy={n.effective} />
            {n.cut && n.cut.length > 0 && <Rules title="Cut by the operator" rules={n.cut} />}
          </>
        )}
      </section>
      {runs && n && n.policy !== "none" && <Flows id={id} />}
      {runs && n && n.policy !== "none" && <NetworkLog id={id} />}
      {n?.policy === "none" && <p class="hint">Every connection is refused, so there is nothing to follow.</p>}
      {editing && n && <PolicyDialog id={id} policy={n.network} onClose={() => { setEditing(false); reload(); }} />}
    </>
  );
}

function Policy({ policy: p }: { policy: NetworkPolicy }) {
  const l = p.limits;
  return (
    <>
      <Facts facts={[
        ["Without a rule", p.default === "public" ? "public addresses are allowed" : "denied"],
        ["Names at ports", p.https_ports?.length ? ["80", "443", ...p.https_ports].join(", ") : undefined],
        ["Headers for", p.headers?.map((h) => h.host).join(", ")],
        ["Connections at once", l?.flows], ["New connections a second", l?.flows_per_second],
        ["Names a second", l?.dns_per_second], ["Bytes a second", l?.bytes_per_second && bytes(l.bytes_per_second)],
      ]} />
      {p.allow && p.allow.length > 0 && <Rules title="Allowed" rules={p.allow} />}
      {p.deny && p.deny.length > 0 && <Rules title="Denied" rules={p.deny} />}
    </>
  );
}

const Rules = ({ title, rules }: { title: string; rules: string[] }) => (
  <>
    <h3>{title}</h3>
    <ul class="rules">{rules.map((r) => <li key={r} class="id">{r}</li>)}</ul>
  </>
);
