/**
 * Names of fields: snake_case in the API, camelCase in this package. Names that a user chose (environment
 * variables, headers, details) are not converted: FIELDS lists where they are.
 */
import { FIELDS } from "./generated/fields.js";

/** A name in camelCase. */
export type CamelCase<S extends string> = S extends `${infer A}_${infer B}` ? `${A}${Capitalize<CamelCase<B>>}` : S;

/** A type of the API with its fields in camelCase. */
export type Camel<T> = T extends readonly (infer U)[] ? Camel<U>[]
  : T extends object ? (string extends keyof T ? T
    : { -readonly [K in keyof T as K extends "$schema" ? never : K extends string ? CamelCase<K> : K]: Camel<T[K]> })
  : T;

const toCamel = memo((s) => s.replace(/_([a-z0-9])/g, (_, c: string) => c.toUpperCase()));
const toSnake = memo((s) => s.replace(/[A-Z]/g, (c) => "_" + c.toLowerCase()));

/** Returns a function that remembers the last results: fields are few, but a newer daemon may have others. */
function memo(f: (s: string) => string): (s: string) => string {
  const known = new Map<string, string>();
  return (s) => {
    let got = known.get(s);
    if (got === undefined) {
      got = f(s);
      if (known.size < 2000) known.set(s, got);
    }
    return got;
  };
}

function convert(value: unknown, schema: string | undefined, name: (s: string) => string, wire: boolean): unknown {
  if (Array.isArray(value)) return value.map((v) => convert(v, schema, name, wire));
  if (schema === "*" || typeof value !== "object" || value === null || value instanceof Date) return value;
  const fields = schema === undefined ? undefined : FIELDS[schema];
  const out: Record<string, unknown> = {};
  for (const [key, v] of Object.entries(value)) {
    if (v === undefined || key === "$schema") continue;
    const to = name(key);
    const inner = convert(v, fields?.[wire ? to : key], name, wire);
    // A guest or a newer daemon may send any name.
    Object.defineProperty(out, to, { value: inner, enumerable: true, writable: true, configurable: true });
  }
  return out;
}

/** Returns an answer of the API with fields in camelCase. schema is its name in openapi.json. */
export function fromWire<T>(value: unknown, schema: string): T {
  return convert(value, schema, toCamel, false) as T;
}

/** Returns a request with fields in snake_case. Fields that are undefined are left out. */
export function toWire(value: object, schema: string): Record<string, unknown> {
  return convert(value, schema, toSnake, true) as Record<string, unknown>;
}
