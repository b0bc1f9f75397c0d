/** A shell in the sandbox. */
import { FitAddon } from "@xterm/addon-fit";
import { Terminal, type ITheme } from "@xterm/xterm";
import { useEffect, useRef, useState } from "preact/hooks";
import { isAbort, shown } from "../api/error";
import { loginShell, TerminalProcess } from "../api/process";

type State = "starting" | "open" | "ended";

export function TerminalTab({ id }: { id: string }) {
  const box = useRef<HTMLDivElement>(null);
  const [state, setState] = useState<State>("starting");
  const [user, setUser] = useState("");
  const [round, setRound] = useState(0);

  useEffect(() => {
    const el = box.current;
    if (!el) return;
    const term = new Terminal({
      fontFamily: "ui-monospace, 'SF Mono', Menlo, Consolas, 'Liberation Mono', monospace", fontSize: 13, cursorBlink: true,
      theme, scrollback: 5000,
      // The output is the guest's: its links could lead the user anywhere.
      linkHandler: { activate: () => {} },
    });
    const fit = new FitAddon();
    term.loadAddon(fit);
    term.open(el);
    fit.fit();
    term.textarea?.setAttribute("aria-label", "Terminal input");
    // Tab is for the shell, so another key must lead out of the terminal.
    term.attachCustomKeyEventHandler((e) => {
      if (e.key !== "Escape" || !e.shiftKey) return true;
      if (e.type === "keydown") document.getElementById("tab-terminal")?.focus();
      return false;
    });
    let live = true;
    const program = new TerminalProcess(id, {
      args: loginShell, user, size: { cols: term.cols, rows: term.rows },
      onOutput: (data) => term.write(data),
      onStart: () => { if (live) { setState("open"); term.focus(); } },
    });
    setState("starting");
    void program.run().then(
      (end) => live && finish(end),
      (e: unknown) => live && !isAbort(e) && finish(shown(e).message),
    );
    const finish = (text: string): void => {
      term.write(`\r\n\x1b[2m${text.replace(/[\x00-\x1f\x7f]/g, " ")}\x1b[0m\r\n`);
      term.options.cursorBlink = false;
      setState("ended");
    };
    term.onData((text) => program.write(text));
    term.onBinary((text) => program.write(text));
    term.onResize((size) => void program.resize(size));
    const size = new ResizeObserver(() => fit.fit());
    size.observe(el);
    return () => {
      live = false;
      program.close();
      size.disconnect();
      term.dispose();
    };
  }, [id, round]);

  return (
    <section aria-labelledby="terminal-heading" class="fill">
      <div class="bar-row">
        <h2 id="terminal-heading">Terminal</h2>
        <span class="hint" role="status">{{ starting: "Starting …", open: "Shift+Esc leaves the terminal.", ended: "The shell has ended." }[state]}</span>
        <form class="inline" onSubmit={(e) => { e.preventDefault(); setRound(round + 1); }}>
          <label for="terminal-user">User</label>
          <input id="terminal-user" type="text" value={user} placeholder="image's" pattern="[!-~]*" autocomplete="off" spellcheck={false}
            onInput={(e) => setUser(e.currentTarget.value)} />
          <button type="submit">New shell</button>
        </form>
      </div>
      <div ref={box} class="shell" />
    </section>
  );
}

/** Terminals are dark in both schemes, as programs choose their colours for that. */
const theme: ITheme = {
  background: "#0d1518", foreground: "#dbe7e7", cursor: "#5eead4", cursorAccent: "#0d1518", selectionBackground: "#2f4a4f",
  black: "#1b2629", red: "#ff8a80", green: "#7ddc9a", yellow: "#e9c46a", blue: "#82b4ff", magenta: "#d6a2f5", cyan: "#6fdcd3",
  white: "#dbe7e7", brightBlack: "#8fa3a6", brightRed: "#ffb0a8", brightGreen: "#a5ecb9", brightYellow: "#f4dc9b",
  brightBlue: "#abcdff", brightMagenta: "#e6c6fb", brightCyan: "#a0efe8", brightWhite: "#ffffff",
};
