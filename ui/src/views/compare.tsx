/** Compares two snapshots, two running sandboxes, or the files of a sandbox with those of a relative. */
import { useEffect, useState } from "preact/hooks";
import { TextField } from "../parts/field";
import { go, toCompare } from "../state/route";
import { useStore } from "../state/store";
import { world } from "../state/world";
import { MergePreview } from "./mergepreview";
import { ProcessCompare } from "./processcompare";
import { SnapshotCompare } from "./snapshotcompare";
import { UseCompare } from "./usecompare";

export function CompareView({ a, b }: { a: string; b: string }) {
  const { sandboxes, snapshots, loaded } = useStore(world);
  const [first, setFirst] = useState(a);
  const [second, setSecond] = useState(b);
  useEffect(() => {
    setFirst(a);
    setSecond(b);
  }, [a, b]);
  const tags = new Set(snapshots.map((s) => s.tag));
  const runs = (id: string): boolean => sandboxes.some((s) => s.id === id && s.status === "running");
  const known = (name: string): boolean => tags.has(name) || sandboxes.some((s) => s.id === name);

  const result = !a || !b ? null
    : !loaded ? null
    : !known(a) || !known(b) ? <p class="empty">There is no snapshot or sandbox {known(a) ? b : a}.</p>
    : a === b ? <p class="empty">Choose two different ones.</p>
    : tags.has(a) && tags.has(b) ? <><SnapshotCompare a={a} b={b} /><UseCompare a={a} b={b} /></>
    : runs(a) || runs(b) ? <><UseCompare a={a} b={b} />{runs(a) && runs(b) && <ProcessCompare a={a} b={b} />}<MergePreview a={a} b={b} aRuns={runs(a)} bRuns={runs(b)} /></>
    : <p class="empty">One of the two must be a running sandbox, or both must be snapshots.</p>;

  return (
    <>
      <h1>Compare</h1>
      <form class="compare-form" onSubmit={(e) => { e.preventDefault(); go(toCompare(first.trim(), second.trim())); }}>
        <TextField label="First" value={first} onChange={setFirst} list="names" required />
        <TextField label="Second" value={second} onChange={setSecond} list="names" required />
        <datalist id="names">
          {snapshots.map((s) => <option key={s.tag} value={s.tag}>snapshot</option>)}
          {sandboxes.slice(0, 500).map((s) => <option key={s.id} value={s.id}>sandbox</option>)}
        </datalist>
        <button type="submit" class="primary">Compare</button>
        <button type="button" onClick={() => go(toCompare(second.trim(), first.trim()))}>Swap</button>
      </form>
      {result ?? <p class="hint">Two snapshots: files, processes, packages and memory. Two running sandboxes of a family: files, processes and memory. A running sandbox with another of its family: files and memory.</p>}
    </>
  );
}
