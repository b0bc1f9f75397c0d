/** One sandbox: its state, its actions, and tabs. */
import { useRef } from "preact/hooks";
import { sandboxActions } from "../actions/menus";
import { get, sandboxPath } from "../api/request";
import type { Sandbox } from "../api/types";
import { Badge } from "../parts/badge";
import { Failure, Wait } from "../parts/failure";
import { ObjectHeading } from "../parts/heading";
import { Tabs } from "../parts/tabs";
import { useLoad } from "../parts/useload";
import { Console } from "../sandbox/console";
import { Files } from "../sandbox/files";
import { Network } from "../sandbox/network";
import { Overview } from "../sandbox/overview";
import { ReceiptTab } from "../sandbox/receipt";
import { TerminalTab } from "../sandbox/terminal";
import { lastEvent } from "../state/live";
import { go, toSandbox } from "../state/route";
import { useStore } from "../state/store";
import { world } from "../state/world";
import { sandboxKey } from "../tree/build";
import { ActionBar } from "./actionbar";
import { Lineage } from "./lineage";

const tabs = [
  { id: "overview", label: "Overview" }, { id: "receipt", label: "Receipt" }, { id: "console", label: "Console" },
  { id: "terminal", label: "Terminal" }, { id: "files", label: "Files" }, { id: "network", label: "Network" },
];

export function SandboxView({ id, tab }: { id: string; tab: string }) {
  const { sandboxes, loaded } = useStore(world);
  const listed = sandboxes.find((s) => s.id === id || s.dns_id === id);
  const event = useStore(lastEvent);
  // A sandbox that was here and is no longer has ended: asking for it again would only be an error.
  const seen = useRef({ listed: false, ended: false, version: "" });
  if (listed) seen.current.listed = true;
  const of = event?.sandbox === id ? event : null;
  seen.current.ended ||= of?.kind === "sandbox.ended" || loaded && seen.current.listed && !listed;
  // An event of this sandbox, or another state in the list, means that the details are old.
  if (!seen.current.ended) seen.current.version = `${of ? of.id : seen.current.version.split(" ")[0]} ${listed?.status}`;
  const { ended, version } = seen.current;
  const { value, error, reload } = useLoad<Sandbox>((signal) => get(sandboxPath(id), { signal }), id, version);

  const sandbox = value && listed ? { ...value, use: listed.use, own_memory_kib: listed.own_memory_kib } as Sandbox : value;
  const current = tabs.some((t) => t.id === tab) ? tab : "overview";
  return (
    <>
      <Lineage of={sandboxKey(id)} />
      <div class="title">
        <ObjectHeading name={id} />
        {ended ? <Badge text="ended" tone="rest" /> : sandbox && !error ? <Badge text={sandbox.status} /> : null}
      </div>
      {ended ? <Ended id={id} /> : error ? <Failure error={error} retry={reload} /> : !sandbox ? <Wait what="the sandbox" /> : (
        <>
          {(sandbox.reason || sandbox.warning) && <p class="notice">{[sandbox.reason, sandbox.warning].filter(Boolean).join(" ")}</p>}
          <ActionBar actions={sandboxActions(sandbox)} />
          <Tabs tabs={tabs} current={current} onChange={(t) => go(toSandbox(id, t))} />
          <div id="panel" class="panel" role="tabpanel" aria-labelledby={`tab-${current}`} tabIndex={current === "overview" ? 0 : undefined}>
            <Panel tab={current} sandbox={sandbox} />
          </div>
        </>
      )}
    </>
  );
}

function Panel({ tab, sandbox }: { tab: string; sandbox: Sandbox }) {
  const runs = sandbox.status === "running" || sandbox.status === "stalled";
  switch (tab) {
    case "receipt": return <ReceiptTab path={sandboxPath(sandbox.id, "/receipt")} again={sandbox.status + (sandbox.rolled_back_to ?? "")} />;
    case "console": return <Console id={sandbox.id} />;
    case "terminal": return runs ? <TerminalTab id={sandbox.id} /> : <Stopped what="A terminal" sandbox={sandbox} />;
    case "files": return runs ? <Files id={sandbox.id} /> : <Stopped what="Its file system" sandbox={sandbox} />;
    case "network": return <Network id={sandbox.id} runs={runs} />;
    default: return <Overview sandbox={sandbox} />;
  }
}

const Ended = ({ id }: { id: string }) => (
  <>
    <p class="notice">This sandbox has ended. Its receipt is kept.</p>
    <div class="panel"><ReceiptTab path={sandboxPath(id, "/receipt")} again="" /></div>
  </>
);

const Stopped = ({ what, sandbox }: { what: string; sandbox: Sandbox }) => (
  <p class="empty">{what} needs a running sandbox. This one is {sandbox.status}.</p>
);
