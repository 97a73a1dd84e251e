/** What a fault did to a component: its log, the requests that its proxies saw, and a table of both. */
import { readFileSync, statSync } from "node:fs";
import { performance } from "node:perf_hooks";
import { field } from "../../../scripts/control-plane/api-client.ts";
import type { Component } from "../../../scripts/environment/component.ts";
import type { Link } from "./component-links.ts";

/** The documented bound for each stream, lease and work item in the first ten seconds of an outage (docs/faults.md). */
const MAX_REQUESTS = 10;
const WINDOW_MS = 10_000;
/** Log fields that tell two things apart that a component tries. */
const SUBJECT = [
  "source",
  "resource",
  "lease",
  "core",
  "during",
  "action",
  "purpose",
  "namespace",
  "name",
  "protector",
];

/** Told for each admission request: a client that repeats its deletion makes them, and not the component. */
const ANSWERED = "A review could not be decided";

interface Complaint {
  /** Milliseconds since the fault. */
  readonly afterMs: number;
  readonly subject: string;
  readonly text: string;
}

/** A moment from which on a component's log is read. */
export class EvidenceMark {
  readonly #component: Component;
  readonly #offset: number;
  readonly #atMs = Date.now();
  readonly pid: number | undefined;

  constructor(component: Component) {
    this.#component = component;
    this.#offset = statSync(component.process.logFile).size;
    this.pid = component.process.pid;
  }

  get sameProcess(): boolean {
    return this.pid !== undefined && this.#component.process.pid === this.pid;
  }

  /** Warnings and errors since the mark. */
  complaints(): Complaint[] {
    const text = readFileSync(this.#component.process.logFile).subarray(this.#offset).toString("utf8");
    return text.split("\n").flatMap((line) => {
      if (!/"level":"(warn|error)"/.test(line)) return [];
      const entry: unknown = JSON.parse(line);
      const subject = [field(entry, "msg"), ...SUBJECT.map((key) => field(entry, key))].filter(isText).join(" ");
      const error = field(entry, "error", "message") ?? field(entry, "message") ?? field(entry, "error");
      const said = [field(entry, "msg"), field(entry, "during"), field(entry, "tag") ?? error].filter(isText);
      const afterMs = Date.parse(String(field(entry, "time"))) - this.#atMs;
      return [{ afterMs, subject, text: said.join(": ") }];
    });
  }

  /** Subjects that failed more often than allowed. */
  storms(): string[] {
    const counts = new Map<string, number>();
    for (const { subject, afterMs } of this.complaints())
      if (afterMs <= WINDOW_MS && !subject.startsWith(ANSWERED)) counts.set(subject, (counts.get(subject) ?? 0) + 1);
    return [...counts].filter(([, count]) => count > MAX_REQUESTS).map(([subject, count]) => `${count} x ${subject}`);
  }
}

function isText(value: unknown): value is string {
  return typeof value === "string" && value !== "";
}

/**
 * What a request belongs to: a stream, its quorum checks, a lease, or an object; undefined for the later pages of a
 * list.
 */
function keyOf(path: string): { readonly key: string; readonly isStream: boolean } | undefined {
  const [where = "", query = ""] = path.split("?");
  // Each object that is watched by its name has a stream.
  const [, selected] = /(?:^|&)fieldSelector=([^&]+)/.exec(query) ?? [];
  const place = selected === undefined ? where : `${where} ${decodeURIComponent(selected)}`;
  if (/(^|&)continue=/.test(query)) return undefined;
  if (/(^|&)limit=1(&|$)/.test(query)) return { key: `confirm ${place}`, isStream: true };
  const isStream = /(^|&)(watch|limit)=/.test(query);
  return {
    key: isStream ? `stream ${place}` : place.replace(/\/status$/, ""),
    isStream: isStream || /\/leases\//.test(place),
  };
}

interface Traffic {
  /** Number of requests by what they belong to. */
  readonly requests: ReadonlyMap<string, number>;
  readonly connections: number;
  /** What exceeded its bound. */
  readonly storms: readonly string[];
}

/**
 * What the proxy of a link saw in the first ten seconds after `startMs`, or until the end of the outage. Requests for
 * objects are bounded only during an outage, because otherwise they belong to normal work.
 */
export function traffic({ proxy }: Link, startMs: number, endMs: number, isOutage: boolean): Traffic {
  const untilMs = Math.min(startMs + WINDOW_MS, isOutage ? endMs : performance.now());
  const requests = new Map<string, number>();
  const streams = new Set<string>();
  const keys = new Set<string>();
  for (const { path, atMs } of proxy.requests) {
    const found = keyOf(path);
    if (found === undefined) continue;
    keys.add(found.key);
    if (found.isStream) streams.add(found.key);
    if (atMs >= startMs && atMs < untilMs) requests.set(found.key, (requests.get(found.key) ?? 0) + 1);
  }
  const connections = proxy.connections.filter((atMs) => atMs >= startMs && atMs < untilMs).length;
  const storms = [...requests]
    .filter(([key, count]) => count > MAX_REQUESTS && (isOutage || (streams.has(key) && !key.startsWith("confirm"))))
    .map(([key, count]) => `${count} x ${key}`);
  // Without requests that the proxy could read, it is not known how many streams and objects there are.
  if (isOutage && keys.size > 0 && connections > MAX_REQUESTS * keys.size) storms.push(`${connections} connections`);
  return { requests, connections, storms };
}

interface FaultRow {
  readonly fault: string;
  readonly link: string;
  readonly noticed: Complaint | undefined;
  readonly recoveredMs: number;
  readonly traffic: Traffic;
}

const rows: FaultRow[] = [];

export function addFaultRow(one: FaultRow): void {
  rows.push(one);
}

export function printTable(): void {
  const seconds = (ms: number): string => `${(ms / 1000).toFixed(2)} s`;
  const lines = rows.map(({ fault, link, noticed, recoveredMs, traffic: { requests, connections } }) => {
    const all = [...requests.values()].reduce((sum, count) => sum + count, 0);
    const [most] = [...requests].sort(([, a], [, b]) => b - a);
    const seen = most === undefined ? "0" : `${all}; ${most[1]} of ${shortened(most[0])}`;
    const by = noticed === undefined ? "nothing" : `${brief(noticed.text)} (${seconds(Math.max(0, noticed.afterMs))})`;
    return `| ${fault} | ${link} | ${by} | ${seconds(recoveredMs)} | ${seen} | ${connections} |`;
  });
  const head = [
    "| fault | connection | noticed by | recovered after its end | requests in 10 s; most of one kind | connections |",
    "|---|---|---|---|---|---|",
  ];
  process.stdout.write(`${[...head, ...lines].join("\n")}\n`);
}

/** Removes the addresses of this run, and shortens the text to one cell of a table. */
function brief(text: string): string {
  const plain = text.replaceAll(/[\w.-]+\.fault\.test:\d+/g, "the server").replaceAll("|", "/");
  return plain.length <= 90 ? plain : `${plain.slice(0, 90)}...`;
}

/** For example `stream pods`, `leases/podseidon-generator`, `podprotectors/app`. */
function shortened(key: string): string {
  const [kind = "", path = key] = key.includes(" ") ? key.split(" ") : ["", key];
  const parts = path.split("/");
  const last = /namespaces\/[^/]+\/[^/]+\/[^/]+$/.test(path) ? parts.slice(-2).join("/") : (parts.at(-1) ?? "");
  return `${kind} ${last}`.trim();
}
