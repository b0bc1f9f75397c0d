/** Use against a limit. */
import { useId } from "preact/hooks";

interface Props {
  label: string;
  used: number;
  /** 0 or absent: there is no limit. */
  limit: number | undefined;
  text: string;
  note?: string;
}

export function Meter({ label, used, limit, text, note }: Props) {
  const id = useId();
  const share = limit ? used / limit : 0;
  const tone = share >= 0.95 ? "bad" : share >= 0.8 ? "warn" : "good";
  return (
    <div class="meter">
      <div class="meter-head">
        <span id={id}>{label}</span>
        <span class="figure">{text}</span>
      </div>
      {limit ? (
        <div class={`bar ${tone}`} role="meter" aria-labelledby={id} aria-valuemin={0} aria-valuemax={limit}
          aria-valuenow={Math.min(used, limit)} aria-valuetext={text}>
          <span style={{ width: `${Math.min(100, share * 100)}%` }} />
        </div>
      ) : null}
      {note && <p class="hint">{note}</p>}
    </div>
  );
}
