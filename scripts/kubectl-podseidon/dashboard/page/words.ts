/** Words of the page for people. Pure. */
import type { Health, HealthState } from "../../health.ts";
import { age } from "../../invocation/output.ts";
import { UNKNOWN_MS } from "../page-messages.ts";

export const HEALTH_WORDS: Readonly<Record<Health, { readonly title: string; readonly hint: string }>> = {
  trouble: { title: "In trouble", hint: "A promise is broken, or nobody can keep it." },
  attention: {
    title: "Needs a look",
    hint: "No pod can go now, a cell is behind, or somebody has loosened the protection.",
  },
  order: { title: "In order", hint: "Pods can go without breaking a promise." },
};

/** Each state as a sentence, for the detail. */
export const STATE_WORDS: Readonly<Record<HealthState, string>> = {
  "below minimum": "Fewer pods are available than are promised.",
  "not counted": "No aggregator has counted its pods yet.",
  "workload vanished": "Its workload is gone, and was not deleted.",
  "no pods match": "Pods are promised, and its selector matches none.",
  "no disruption possible": "At least as many pods are promised as there are.",
  "cell on hold": "A cell may have lost its history, and allows nothing for a while.",
  "cell stale": "A cell has sent no heartbeat for two and a half minutes.",
  "at minimum": "No pod can be spared now.",
  busy: "The spare pods are reserved by disruptions under way.",
  "waits to be deleted": "It goes when its workload is gone.",
  "being deleted": "It is deleted itself, and stays in force until its finalizers are gone.",
  suspended: "Every disruption is allowed.",
  "partly suspended": "Every disruption is allowed in some cells.",
  released: "It may end.",
  "only warns": "Disruptions that it would deny carry a warning.",
  ok: "Pods can go without breaking the promise.",
};

/** `4m10s`, or a dash when the time is not known. */
export function ageAt(nowMs: number, sinceMs: number): string {
  return sinceMs === UNKNOWN_MS ? "-" : age(Math.max(0, nowMs - sinceMs));
}

/** Times in the format of logs and Kubernetes, in the time zone of the browser. */
const minutes = { hour: "2-digit", minute: "2-digit", hourCycle: "h23" } as const;
const minuteFormat = new Intl.DateTimeFormat("en", minutes);
const clockFormat = new Intl.DateTimeFormat("en", { ...minutes, second: "2-digit" });
const numberFormat = new Intl.NumberFormat("en");

export const clockText = (atMs: number): string => clockFormat.format(atMs);
export const minuteText = (atMs: number): string => minuteFormat.format(atMs);
/** With separators, such as `12,345`. */
export const numberText = (value: number): string => numberFormat.format(value);

export function countText(count: number, noun: string): string {
  return `${numberText(count)} ${noun}${count === 1 ? "" : "s"}`;
}
