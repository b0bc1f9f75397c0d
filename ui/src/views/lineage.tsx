/** Where an object came from, from the first snapshot on. */
import { useMemo } from "preact/hooks";
import { toSandbox, toSnapshot, toTree } from "../state/route";
import { useStore } from "../state/store";
import { world } from "../state/world";
import { buildTree } from "../tree/build";

export function Lineage({ of }: { of: string }) {
  const { sandboxes, snapshots } = useStore(world);
  const path = useMemo(() => {
    const { parents } = buildTree(sandboxes, snapshots);
    const keys: string[] = [];
    for (let at = parents.get(of); at; at = parents.get(at)) if (/^[bs]:/.test(at)) keys.unshift(at);
    return keys;
  }, [sandboxes, snapshots, of]);
  return (
    <nav class="lineage" aria-label="Lineage">
      <ol>
        <li><a href={toTree}>Tree</a></li>
        {path.map((key) => {
          const name = key.slice(2);
          return <li key={key}><a class="id" href={key[0] === "b" ? toSandbox(name) : toSnapshot(name)}>{name}</a></li>;
        })}
      </ol>
    </nav>
  );
}
