import { kill } from "../api/actions";
import { ApiError } from "../api/error";
import { Dialog } from "../parts/dialog";
import { count } from "../parts/format";
import { go, route, toTree } from "../state/route";
import { toast } from "../state/toasts";
import { refresh } from "../state/world";

/** Requests at once. More would wait for the browser's connections, and hold up everything else. */
const AT_ONCE = 3;

async function killAll(ids: string[]): Promise<void> {
  const left = [...ids];
  const work = async (): Promise<void> => {
    for (let id = left.pop(); id; id = left.pop()) {
      try {
        await kill(id);
      } catch (e) {
        if (!(e instanceof ApiError && e.status === 404)) throw e; // gone already
      }
    }
  };
  await Promise.all(Array.from({ length: AT_ONCE }, work));
}

export function KillDialog({ ids, onClose }: { ids: string[]; onClose: () => void }) {
  const what = ids.length === 1 ? ids[0] ?? "" : count(ids.length, "sandbox", "sandboxes");
  const confirm = async (): Promise<void> => {
    try {
      await killAll(ids);
    } finally {
      void refresh();
    }
    toast("done", `Killed ${what}.`);
    const at = route.get();
    if (at.view === "sandbox" && ids.includes(at.id)) go(toTree);
  };
  return (
    <Dialog title={`Kill ${what}?`} confirm="Kill" danger onConfirm={confirm} onClose={onClose}>
      <p>Memory and files are lost. Snapshots branched from it stay.</p>
    </Dialog>
  );
}
