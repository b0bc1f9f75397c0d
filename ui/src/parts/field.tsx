/** Labelled inputs of a form. */
import type { ComponentChildren } from "preact";
import { useId } from "preact/hooks";

interface Common {
  label: string;
  help?: string;
}

export function NumberField({ label, help, value, min, max, onChange }: Common & {
  value: number; min: number; max?: number; onChange: (n: number) => void;
}) {
  const id = useId();
  return (
    <div class="field">
      <label for={id}>{label}</label>
      <input id={id} type="number" inputMode="numeric" value={value} min={min} max={max} required
        aria-describedby={help ? id + "h" : undefined}
        onInput={(e) => onChange(Number(e.currentTarget.value))} />
      {help && <p id={id + "h"} class="hint">{help}</p>}
    </div>
  );
}

export function TextField({ label, help, value, onChange, pattern, list, required, autocomplete = "off" }: Common & {
  value: string; onChange: (s: string) => void; pattern?: string; list?: string; required?: boolean; autocomplete?: string;
}) {
  const id = useId();
  return (
    <div class="field">
      <label for={id}>{label}</label>
      <input id={id} type="text" value={value} pattern={pattern} list={list} required={required} spellcheck={false}
        autocomplete={autocomplete} aria-describedby={help ? id + "h" : undefined}
        onInput={(e) => onChange(e.currentTarget.value)} />
      {help && <p id={id + "h"} class="hint">{help}</p>}
    </div>
  );
}

export function SelectField({ label, help, value, onChange, children }: Common & {
  value: string; onChange: (s: string) => void; children: ComponentChildren;
}) {
  const id = useId();
  return (
    <div class="field">
      <label for={id}>{label}</label>
      <select id={id} value={value} aria-describedby={help ? id + "h" : undefined}
        onChange={(e) => onChange(e.currentTarget.value)}>
        {children}
      </select>
      {help && <p id={id + "h"} class="hint">{help}</p>}
    </div>
  );
}

export function CheckField({ label, help, value, onChange }: Common & { value: boolean; onChange: (b: boolean) => void }) {
  const id = useId();
  return (
    <div class="field check">
      <input id={id} type="checkbox" checked={value} aria-describedby={help ? id + "h" : undefined}
        onChange={(e) => onChange(e.currentTarget.checked)} />
      <label for={id}>{label}</label>
      {help && <p id={id + "h"} class="hint">{help}</p>}
    </div>
  );
}

export function AreaField({ label, help, value, onChange, rows = 4 }: Common & {
  value: string; onChange: (s: string) => void; rows?: number;
}) {
  const id = useId();
  return (
    <div class="field">
      <label for={id}>{label}</label>
      <textarea id={id} rows={rows} spellcheck={false} value={value} aria-describedby={help ? id + "h" : undefined}
        onInput={(e) => onChange(e.currentTarget.value)} />
      {help && <p id={id + "h"} class="hint">{help}</p>}
    </div>
  );
}
