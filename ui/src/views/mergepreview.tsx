/**
 * Compares the files of a running sandbox with those of a relative. The API has no comparison of sandboxes, but a merge
 * that changes nothing names the files that one has changed since the snapshot that both come from.
 */
import { post, sandboxPath } from "../api/request";
import type { MergeResult } from "../api/types";
import { Failure, Wait } from "../parts/failure";
import { useLoad } from "../parts/useload";
import { Part, type Line } from "./snapshotcompare";

export function MergePreview({ a, b, aRuns, bRuns }: { a: string; b: string; aRuns: boolean; bRuns: boolean }) {
  return (
    <>
      {aRuns && <Direction ours={a} theirs={b} />}
      {bRuns && <Direction ours={b} theirs={a} />}
    </>
  );
}

function Direction({ ours, theirs }: { ours: string; theirs: string }) {
  const { value: m, error, reload, loading } = useLoad<MergeResult>(
    (signal) => post(sandboxPath(ours, "/merge"), { theirs, dry_run: true }, { signal }), `${ours} ${theirs}`,
  );
  if (error) return <Failure error={error} retry={reload} />;
  if (!m || loading) return <Wait what={`the files of ${theirs}`} />;
  const rows: Line[] = [
    ...m.conflicts.map((c): Line => ["conflict", c.path, c.kind]),
    ...m.changes.map((c): Line => [c.action, c.path, ""]),
    ...m.skipped.map((s): Line => ["skipped", s.path ?? "several", s.why]),
  ];
  return (
    <>
      <Part title={`Changed in ${theirs}`} rows={rows} />
      <p class="hint">Since {m.base}. A conflict is a path that {ours} has changed, too.{m.complete ? "" : " Some files could not be read."}</p>
    </>
  );
}
