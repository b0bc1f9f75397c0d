/** Figures as text. */

const units = ["B", "KiB", "MiB", "GiB", "TiB"];

export function bytes(n: number | undefined): string {
  if (n === undefined || !Number.isFinite(n)) return "–";
  let at = 0;
  while (n >= 1024 && at < units.length - 1) {
    n /= 1024;
    at++;
  }
  return `${n >= 100 || at === 0 || Number.isInteger(n) ? Math.round(n) : n.toFixed(1)} ${units[at]}`;
}

export const kib = (n: number | undefined): string => bytes(n === undefined ? undefined : n * 1024);
export const mib = (n: number | undefined): string => bytes(n === undefined ? undefined : n * 1024 * 1024);

/** A duration in its largest unit, such as 5 min. */
export function span(seconds: number): string {
  const s = Math.max(0, seconds);
  if (s < 60) return `${Math.floor(s)} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min`;
  if (s < 86400) return `${Math.floor(s / 3600)} h`;
  return `${Math.floor(s / 86400)} d`;
}

export function ms(n: number | undefined): string {
  if (n === undefined) return "–";
  if (n >= 10_000) return span(n / 1000);
  if (n >= 1000) return `${(n / 1000).toFixed(1)} s`;
  return `${n >= 100 ? Math.round(n) : n >= 10 ? n.toFixed(1) : n.toFixed(2)} ms`;
}

export const time = (unix: number): string => new Date(unix * 1000).toLocaleString();

export const count = (n: number, one: string, many = one + "s"): string => `${n.toLocaleString("en")} ${n === 1 ? one : many}`;

export const percent = (n: number): string => `${n >= 10 || n === 0 ? Math.round(n) : n.toFixed(1)} %`;
