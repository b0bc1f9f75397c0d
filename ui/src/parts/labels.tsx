/** Labels of an object, a line each. */
export const labelsOf = (labels: Record<string, string> | undefined): string[] =>
  Object.entries(labels ?? {}).map(([k, v]) => (v ? `${k}=${v}` : k)).sort();

export function Labels({ labels }: { labels: Record<string, string> | undefined }) {
  return <ul class="links">{labelsOf(labels).map((l) => <li key={l} class="id wrap">{l}</li>)}</ul>;
}
