/** Names with values. Values that are not known are left out. */
import type { ComponentChildren } from "preact";

export type Fact = [name: string, value: ComponentChildren];

export function Facts({ facts }: { facts: Fact[] }) {
  const known = facts.filter(([, v]) => v !== undefined && v !== null && v !== "" && v !== false);
  return (
    <dl class="facts">
      {known.map(([name, value]) => (
        <div key={name}>
          <dt>{name}</dt>
          <dd>{value}</dd>
        </div>
      ))}
    </dl>
  );
}
