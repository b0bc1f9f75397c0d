/** A value that components follow. */
import { useEffect, useState } from "preact/hooks";

export class Store<T> {
  #value: T;
  readonly #readers = new Set<() => void>();

  constructor(value: T) {
    this.#value = value;
  }

  get(): T {
    return this.#value;
  }

  set(value: T): void {
    if (Object.is(value, this.#value)) return;
    this.#value = value;
    for (const reader of this.#readers) reader();
  }

  follow(reader: () => void): () => void {
    this.#readers.add(reader);
    return () => this.#readers.delete(reader);
  }
}

/** Renders the component again whenever the store's value changes. */
export function useStore<T>(store: Store<T>): T {
  const [, again] = useState(0);
  useEffect(() => {
    let seen = store.get();
    const look = (): void => {
      if (Object.is(seen, store.get())) return;
      seen = store.get();
      again((n) => n + 1);
    };
    again((n) => n + 1); // the value may have changed between the first rendering and now
    return store.follow(look);
  }, [store]);
  return store.get();
}
