/** The page: the login form, or the header with the view that the address names. */
import { useEffect } from "preact/hooks";
import { Dialogs } from "./actions/dialogs";
import { Menu } from "./parts/menu";
import { Toasts } from "./parts/toasts";
import { startLive } from "./state/live";
import { route, type Route } from "./state/route";
import { refreshSession, session } from "./state/session";
import { useStore } from "./state/store";
import { toastError } from "./state/toasts";
import { sandboxKey, snapshotKey } from "./tree/build";
import { TreeView } from "./tree/view";
import { Activity } from "./views/activity";
import { CompareView } from "./views/compare";
import { Header } from "./views/header";
import { LimitsView } from "./views/limits";
import { Login } from "./views/login";
import { SandboxView } from "./views/sandbox";
import { SnapshotView } from "./views/snapshot";

export function App() {
  const who = useStore(session);
  useEffect(() => {
    refreshSession().catch((e: unknown) => {
      session.set(null);
      toastError(e);
    });
  }, []);
  return (
    <>
      {who === undefined ? <p class="wait start" role="status">Connecting …</p> : who === null ? <Login /> : <Page />}
      <Toasts />
    </>
  );
}

function Page() {
  const at = useStore(route);
  useEffect(startLive, []);
  useTitle(at);
  return (
    <>
      <a class="skip" href="#main" onClick={skip}>Skip to the content</a>
      <Header />
      <View at={at} />
      <Dialogs />
    </>
  );
}

function View({ at }: { at: Route }) {
  if (at.view === "limits") return <main id="main" class="page" tabIndex={-1}><LimitsView /></main>;
  if (at.view === "compare") return <main id="main" class="page" tabIndex={-1}><CompareView a={at.a} b={at.b} /></main>;
  if (at.view === "tree") {
    return (
      <main id="main" class="split home" tabIndex={-1}>
        <section class="side" aria-labelledby="heading">
          <h1 id="heading">Fork tree</h1>
          <TreeView shown="" />
        </section>
        <Activity />
        <Menu />
      </main>
    );
  }
  const key = at.view === "sandbox" ? sandboxKey(at.id) : snapshotKey(at.tag);
  return (
    <div class="split detail-open">
      <nav class="side" aria-label="Fork tree">
        <TreeView shown={key} />
      </nav>
      <main id="main" class="detail" tabIndex={-1}>
        {at.view === "sandbox" ? <SandboxView key={at.id} id={at.id} tab={at.tab} /> : <SnapshotView key={at.tag} tag={at.tag} />}
        <Menu />
      </main>
    </div>
  );
}

/** The address after # names the view, so this link must not change it. */
function skip(e: Event): void {
  e.preventDefault();
  document.getElementById("main")?.focus();
}

function useTitle(at: Route): void {
  const name = { tree: "Fork tree", limits: "Limits", compare: "Compare", sandbox: "", snapshot: "" }[at.view];
  const title = name || (at.view === "sandbox" ? at.id : at.view === "snapshot" ? at.tag : "");
  useEffect(() => {
    document.title = `${title} – forkd`;
  }, [title]);
}
