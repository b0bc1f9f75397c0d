/** An error in the place of what could not be read. */
import { shown } from "../api/error";

export function Failure({ error, retry }: { error: unknown; retry?: () => void }) {
  const { message, hint } = shown(error);
  return (
    <div class="failure" role="alert">
      <p>{message}</p>
      {hint && <p class="hint">{hint}</p>}
      {retry && <button type="button" onClick={retry}>Try again</button>}
    </div>
  );
}

export const Wait = ({ what }: { what: string }) => <p class="wait" role="status">Reading {what} …</p>;
