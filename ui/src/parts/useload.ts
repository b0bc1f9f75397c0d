/** Reads something for a component, again when its inputs change. */
import { useCallback, useEffect, useRef, useState } from "preact/hooks";
import { isAbort } from "../api/error";

export interface Loaded<T> {
  value: T | undefined;
  error: unknown;
  loading: boolean;
  reload: () => void;
}

/** The old value stays while a new one is read, unless the key changes. */
export function useLoad<T>(read: (signal: AbortSignal) => Promise<T>, key: string, again: unknown = 0): Loaded<T> {
  const [state, set] = useState<{ key: string; value?: T; error?: unknown; loading: boolean }>({ key, loading: true });
  const [count, setCount] = useState(0);
  const latest = useRef(read);
  latest.current = read;
  useEffect(() => {
    const stop = new AbortController();
    set((s) => (s.key === key ? { ...s, loading: true } : { key, loading: true }));
    latest.current(stop.signal).then(
      (value) => !stop.signal.aborted && set({ key, value, loading: false }),
      (error: unknown) => !stop.signal.aborted && !isAbort(error) && set({ key, error, loading: false }),
    );
    return () => stop.abort();
  }, [key, again, count]);
  const reload = useCallback(() => setCount((n) => n + 1), []);
  const current = state.key === key;
  return { value: current ? state.value : undefined, error: current ? state.error : undefined, loading: !current || state.loading, reload };
}
