/** The serial console, followed while the tab is open. */
import { useEffect, useRef, useState } from "preact/hooks";
import { isAbort } from "../api/error";
import { open, sandboxPath } from "../api/request";
import { pieces } from "../api/stream";
import { Failure } from "../parts/failure";

/** Characters that are kept. A guest can write without end. */
const MAX = 400_000;

/** Colours and movements of the cursor, which a page cannot follow in a plain text. */
const escapes = /\x1b(?:\[[0-9;?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[()][0-9A-Za-z]|[=>78cDEHMNOZ])/g;
const clean = (s: string): string => s.replace(escapes, "").replace(/\r+\n/g, "\n").replace(/[\x00-\x08\x0b-\x1f\x7f]/g, "");

export function Console({ id }: { id: string }) {
  const [text, setText] = useState("");
  const [error, setError] = useState<unknown>(null);
  const [ended, setEnded] = useState(false);
  const [round, setRound] = useState(0);
  const box = useRef<HTMLPreElement>(null);
  const atEnd = useRef(true);

  useEffect(() => {
    const stop = new AbortController();
    let held = "";
    let frame = 0;
    setText("");
    setError(null);
    setEnded(false);
    const draw = (): void => {
      frame = 0;
      if (held.length > 2 * MAX) held = held.slice(-MAX);
      setText(clean(held.slice(-MAX)));
    };
    void (async () => {
      try {
        const answer = await open("GET", sandboxPath(id, "/console"), { query: { follow: true, tail: 2000 }, signal: stop.signal });
        const decoder = new TextDecoder();
        for await (const piece of pieces(answer)) {
          held += decoder.decode(piece, { stream: true });
          frame ||= requestAnimationFrame(draw);
        }
        setEnded(true);
      } catch (e) {
        if (!isAbort(e) && !stop.signal.aborted) held ? setEnded(true) : setError(e);
      }
    })();
    return () => {
      stop.abort();
      cancelAnimationFrame(frame);
    };
  }, [id, round]);

  useEffect(() => {
    const el = box.current;
    if (el && atEnd.current) el.scrollTop = el.scrollHeight;
  }, [text]);

  if (error) return <Failure error={error} retry={() => setRound(round + 1)} />;
  return (
    <section aria-labelledby="console-heading" class="fill">
      <div class="bar-row">
        <h2 id="console-heading">Serial console</h2>
        <span class="hint" role="status">{ended ? "The stream has ended." : "Following"}</span>
        {ended && <button type="button" onClick={() => setRound(round + 1)}>Follow again</button>}
      </div>
      <pre ref={box} class="output" tabIndex={0} aria-label="Output of the console"
        onScroll={(e) => { const el = e.currentTarget; atEnd.current = el.scrollTop + el.clientHeight >= el.scrollHeight - 4; }}>
        {text || "No output yet."}
      </pre>
    </section>
  );
}
