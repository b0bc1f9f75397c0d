/** The login form. The key goes to the server once, and stays nowhere in the page. */
import { useRef, useState } from "preact/hooks";
import { ApiError, shown } from "../api/error";
import { logIn } from "../api/session";
import { Logo } from "../parts/icons";
import { refreshSession } from "../state/session";

export function Login() {
  const input = useRef<HTMLInputElement>(null);
  const [error, setError] = useState("");
  const [busy, setBusy] = useState(false);
  const submit = async (e: Event): Promise<void> => {
    e.preventDefault();
    const field = input.current;
    if (!field || busy) return;
    setBusy(true);
    setError("");
    try {
      await logIn(field.value.trim());
      field.value = "";
      await refreshSession();
    } catch (e) {
      const refused = e instanceof ApiError && (e.status === 401 || e.status === 403);
      setError(refused ? "This key is not valid, or it has expired." : shown(e).message);
      setBusy(false);
      field.select();
    }
  };
  return (
    <main class="login">
      <form onSubmit={submit} aria-labelledby="login-heading">
        <h1 id="login-heading"><Logo /> forkd</h1>
        <div class="field">
          <label for="key">Key or token</label>
          <input ref={input} id="key" name="key" type="password" required autofocus autocomplete="current-password"
            aria-describedby="key-help key-error" aria-invalid={error !== ""} />
          <p id="key-help" class="hint">A key of <code>forkd key create</code>, or the daemon's token.</p>
        </div>
        <p id="key-error" class="bad-text" aria-live="assertive">{error}</p>
        <button type="submit" class="primary" aria-disabled={busy}>{busy ? "Logging in …" : "Log in"}</button>
      </form>
    </main>
  );
}
