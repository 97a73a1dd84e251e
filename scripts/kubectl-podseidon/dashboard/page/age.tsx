import { UNKNOWN_MS } from "../page-messages.ts";
import { nowMs } from "./browser-clock.ts";
import { ageAt, clockText } from "./words.ts";

/** The time since `sinceMs`, which grows; a dash when the time is not known. */
export function Age({ sinceMs }: { readonly sinceMs: number }) {
  if (sinceMs === UNKNOWN_MS) return <>-</>;
  const at = new Date(sinceMs);
  return (
    <time dateTime={at.toISOString()} title={clockText(sinceMs)}>
      {ageAt(nowMs.value, sinceMs)}
    </time>
  );
}
