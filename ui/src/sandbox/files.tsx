/** The files of a sandbox: browse, view, download, upload. */
import { useRef, useState } from "preact/hooks";
import { listDir, readBlob, readText, writeFile, type Entry } from "../api/files";
import { Failure, Wait } from "../parts/failure";
import { bytes } from "../parts/format";
import { Down, Folder, Page, Up } from "../parts/icons";
import { useLoad } from "../parts/useload";
import { toast, toastError } from "../state/toasts";
import { saveAs } from "./saveas";

const join = (dir: string, name: string): string => (dir.endsWith("/") ? dir : dir + "/") + name;
const above = (path: string): string => path.replace(/\/[^/]*\/?$/, "") || "/";

export function Files({ id }: { id: string }) {
  const [dir, setDir] = useState("/");
  const [typed, setTyped] = useState("/");
  const [file, setFile] = useState<Entry | null>(null);
  const [busy, setBusy] = useState("");
  const picker = useRef<HTMLInputElement>(null);
  const list = useLoad((signal) => listDir(id, dir, signal), `${id} ${dir}`);

  const show = (path: string): void => {
    setFile(null);
    setDir(path);
    setTyped(path);
  };
  const download = async (e: Entry): Promise<void> => {
    setBusy(`Downloading ${e.name} …`);
    await readBlob(id, e.path).then((blob) => saveAs(blob, e.name), toastError);
    setBusy("");
  };
  const upload = async (files: FileList | null): Promise<void> => {
    for (const f of files ?? []) {
      setBusy(`Uploading ${f.name} …`);
      try {
        await writeFile(id, join(dir, f.name), f);
        toast("done", `Uploaded ${f.name} to ${dir}.`);
      } catch (e) {
        toastError(e);
      }
    }
    setBusy("");
    if (picker.current) picker.current.value = "";
    list.reload();
  };

  return (
    <section aria-labelledby="files-heading">
      <div class="bar-row">
        <h2 id="files-heading">Files</h2>
        <span class="hint" role="status">{busy}</span>
      </div>
      <form class="path" onSubmit={(e) => { e.preventDefault(); show(typed || "/"); }}>
        <label for="path" class="unseen">Folder</label>
        <input id="path" class="id" type="text" value={typed} spellcheck={false} autocomplete="off" onInput={(e) => setTyped(e.currentTarget.value)} />
        <button type="submit">Go</button>
        <button type="button" disabled={dir === "/"} onClick={() => show(above(dir))}>Parent folder</button>
        <button type="button" onClick={() => picker.current?.click()}><Up /> Upload</button>
        <input ref={picker} type="file" multiple hidden onChange={(e) => void upload(e.currentTarget.files)} />
      </form>
      {file ? <Viewer key={file.path} id={id} file={file} onClose={() => setFile(null)} onDownload={() => void download(file)} />
        : list.error ? <Failure error={list.error} retry={list.reload} />
        : !list.value ? <Wait what="the folder" />
        : <Listing dir={dir} entries={list.value} onDir={show} onFile={setFile} onDownload={(e) => void download(e)} />}
    </section>
  );
}

function Listing({ dir, entries, onDir, onFile, onDownload }: {
  dir: string; entries: Entry[]; onDir: (path: string) => void; onFile: (e: Entry) => void; onDownload: (e: Entry) => void;
}) {
  if (!entries.length) return <p class="empty">The folder is empty.</p>;
  return (
    <div class="scroll" tabIndex={0} role="group" aria-label={`Content of ${dir}`}>
      <table class="files">
        <thead>
          <tr><th scope="col">Name</th><th scope="col" class="figure">Size</th><th scope="col">Permissions</th><th scope="col">Owner</th><th scope="col">Changed</th><th scope="col"><span class="unseen">Download</span></th></tr>
        </thead>
        <tbody>
          {entries.map((e) => {
            const folder = e.type === "directory";
            return (
              <tr key={e.path || e.name}>
                <th scope="row">
                  <button type="button" class="link-button id" onClick={() => (folder ? onDir(e.path) : onFile(e))} disabled={e.type === "other"}>
                    {folder ? <Folder /> : <Page />}{e.name}{folder ? "/" : ""}
                  </button>
                  {e.target && <span class="note"> → {e.target}</span>}
                </th>
                <td class="figure">{folder ? "" : bytes(e.size)}</td>
                <td class="id">{e.permissions}</td>
                <td>{e.owner}</td>
                <td>{e.modified?.toLocaleString(undefined, { dateStyle: "short", timeStyle: "short" }) ?? ""}</td>
                <td>{e.type === "file" && <button type="button" class="quiet" aria-label={`Download ${e.name}`} onClick={() => onDownload(e)}><Down /></button>}</td>
              </tr>
            );
          })}
        </tbody>
      </table>
    </div>
  );
}

function Viewer({ id, file, onClose, onDownload }: { id: string; file: Entry; onClose: () => void; onDownload: () => void }) {
  const { value, error, loading } = useLoad((signal) => readText(id, file.path, signal), file.path);
  return (
    <div class="viewer">
      <div class="bar-row">
        <h3 class="id">{file.path}</h3>
        <span class="hint">{bytes(file.size)}</span>
        <button type="button" onClick={onDownload}><Down /> Download</button>
        <button type="button" onClick={onClose}>Back to the folder</button>
      </div>
      {error ? <Failure error={error} /> : loading ? <Wait what="the file" />
        : value === null ? <p class="empty">This file is no text. Download it to look at it.</p>
        : <pre class="output" tabIndex={0} aria-label={`Content of ${file.name}`}>{value || "The file is empty."}</pre>}
    </div>
  );
}
