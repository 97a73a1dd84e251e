import { createHash } from "node:crypto";
import { performance } from "node:perf_hooks";
import { expect } from "vitest";
import type { ApiserverClient } from "../../../scripts/control-plane/api-client.ts";
import { createHttpsTransport } from "../../../shared/kube/client/https-transport.ts";
import type { Transport } from "../../../shared/kube/client/transport.ts";
import type { ClusterAccess, CredentialSource } from "../../../shared/kube/credentials/cluster-access.ts";
import { FileCredentials, type Given } from "../../../shared/kube/credentials/file-credentials.ts";
import { Reflector } from "../../../shared/kube/informer/reflector.ts";
import type { ReflectorEvent, ReflectorOptions } from "../../../shared/kube/informer/reflector-options.ts";
import { isRawObject } from "../../../shared/kube/stream/raw-object.ts";
import { StallDetector } from "../../../shared/runtime/stall-detector.ts";
import { systemPorts } from "../../../shared/runtime/system-ports.ts";
import { hasReached } from "../../../shared/schema/resource-version.ts";
import { quorumState } from "./churn.ts";

interface Item {
  readonly name: string;
  readonly uid: string;
  readonly version: string;
}

function parseItem(raw: unknown): Item {
  if (!isRawObject(raw)) throw new Error("no object");
  const { name = "", uid = "", resourceVersion = "" } = raw.metadata;
  return { name, uid, version: resourceVersion };
}

/** Credentials of a token or token file, with one trusted CA. */
export function tokenCredentials(token: Given, ca: string): CredentialSource {
  const none = { basic: undefined, cert: undefined, key: undefined, serverName: undefined, proxy: undefined };
  return new FileCredentials({ where: "test", token, ca, ...none, skipVerification: false });
}

interface RecordedState {
  readonly position: string;
  readonly digest: bigint;
}

/** Against a hanging test: a busy server may need half a minute to apply its priority and fairness. */
const HANG_MS = 240_000;
/** A reflector whose process has not run for so long lists: its server may have been restored meanwhile. */
const STALL_MS = 1_000;
/** Until a quorum check is newer than the stall. */
const STALL_COUNTS_MS = 10_000;

/** One list-watch with a record of its events and of its state at each position. */
export class StreamHarness implements AsyncDisposable {
  readonly source: Reflector<Item>;
  readonly events: (ReflectorEvent & { readonly atMs: number })[] = [];
  /** The state at each position. Tests clear the list. */
  states: RecordedState[] = [];
  readonly #transport: Transport;
  readonly #path: string;
  readonly #waiting = new Set<() => void>();
  /** Of this process, on a busy machine. */
  readonly #stalls = new StallDetector(systemPorts, STALL_MS, () => undefined);
  #digest = 0n;

  constructor(
    path: string,
    server: string,
    credentials: CredentialSource,
    options: Partial<ReflectorOptions<Item>> = {},
  ) {
    const access: ClusterAccess = { description: "test", server, namespace: undefined, credentials };
    this.#transport = createHttpsTransport(access, { ports: systemPorts, userAgent: "fault-test" });
    this.#path = path;
    this.source = new Reflector<Item>({
      name: "maps",
      transport: this.#transport,
      ports: systemPorts,
      path,
      parse: parseItem,
      keyOf: (item) => item.name,
      uidOf: (item) => item.uid,
      versionOf: (item) => item.version,
      serverTimeoutSeconds: [4, 5],
      pageSize: 20,
      onEvent: (event) => this.#told(event),
      ...options,
    });
    this.source.subscribe({
      changed: (before, after) => {
        this.#digest += hash(after) - hash(before);
      },
      advanced: (position) => {
        this.states.push({ position, digest: this.#digest });
        this.#wake();
      },
      confirmed: () => this.#wake(),
    });
    this.#stalls.start();
    this.source.start();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#stalls.stop();
    await this.source.stop();
    this.#transport.close();
  }

  /** Resolves when `condition` holds. Checks it at each event. */
  async until(what: string, condition: () => boolean): Promise<void> {
    const deadline = AbortSignal.timeout(HANG_MS);
    while (!condition()) {
      if (deadline.aborted)
        throw new Error(`waited ${HANG_MS / 1000} s for ${what}; last: ${JSON.stringify(this.events.slice(-5))}`);
      await new Promise<void>((resolve) => {
        this.#waiting.add(resolve);
        deadline.addEventListener("abort", () => resolve(), { once: true });
      });
    }
  }

  /** Waits until the reflector has reached the server's version; returns both states, which then must be equal. */
  async caughtUp(admin: ApiserverClient): Promise<{ held: string[]; truth: string[] }> {
    const truth = await quorumState(admin, this.#path);
    await this.until(`version ${truth.version}`, () => hasReached(this.source.position, truth.version));
    const held = [...this.source.values()].map((item) => `${item.name} ${item.uid}@${item.version}`).sort();
    return { held, truth: truth.objects };
  }

  /** Failures since `sinceMs`, as `during tag`. */
  failures(sinceMs: number, untilMs = Number.POSITIVE_INFINITY): string[] {
    return this.events.flatMap((event) =>
      event.kind === "failed" && event.atMs >= sinceMs && event.atMs < untilMs ? [`${event.during} ${event.tag}`] : [],
    );
  }

  listReasons(sinceMs: number): string[] {
    return this.events.flatMap((event) => (event.kind === "listed" && event.atMs >= sinceMs ? [event.reason] : []));
  }

  /**
   * Checks why there were lists since `sinceMs`. A stall of this process asks for one, too, and may come before another
   * reason.
   */
  expectLists(sinceMs: number, ...reasons: string[]): void {
    const lists = this.listReasons(sinceMs);
    const failures = `failures before: ${this.failures(sinceMs).join(", ")}`;
    if (this.#stalls.wokeMs < sinceMs - STALL_COUNTS_MS) expect(lists, failures).toEqual(reasons);
    else expect([...reasons, "standstill"], failures).toEqual(expect.arrayContaining(lists));
  }

  /** Time from `sinceMs` to the first failure after it. */
  noticedMs(sinceMs: number): number | undefined {
    const first = this.events.find((event) => event.kind === "failed" && event.atMs >= sinceMs);
    return first && first.atMs - sinceMs;
  }

  /** Time from the first failure after `sinceMs` to the next stream or list. */
  brokenMs(sinceMs: number): number {
    const failed = this.events.findIndex((event) => event.kind === "failed" && event.atMs >= sinceMs);
    if (failed < 0) return 0;
    const mended = this.events.slice(failed).find(({ kind }) => kind === "watching" || kind === "listed");
    return (mended?.atMs ?? Number.POSITIVE_INFINITY) - (this.events[failed]?.atMs ?? 0);
  }

  #told(event: ReflectorEvent): void {
    this.events.push({ ...event, atMs: performance.now() });
    this.#wake();
  }

  #wake(): void {
    for (const resolve of this.#waiting) resolve();
    this.#waiting.clear();
  }
}

/** A sum of hashes does not depend on their order, so equal sums mean equal sets. */
function hash(item: Item | undefined): bigint {
  if (item === undefined) return 0n;
  return createHash("sha256").update(`${item.name} ${item.uid} ${item.version}`).digest().readBigUInt64BE();
}

/**
 * Positions at which `harness` held another state than `reference`. A position between two positions of the reference
 * belongs to the earlier one, because nothing happened in the collection in between.
 */
export function wrongPositions(harness: readonly RecordedState[], reference: readonly RecordedState[]): string[] {
  return harness.flatMap(({ position, digest }) => {
    const there = reference.findLast((state) => hasReached(position, state.position));
    return there === undefined || there.digest === digest ? [] : [position];
  });
}

/** What a fault cost. */
interface StreamFaultRow {
  readonly name: string;
  /** From the fault to the first reported failure; undefined when there was none. */
  readonly noticedMs: number | undefined;
  /** From the end of the fault to the first event of a write after it. */
  readonly recoveredMs: number;
  readonly lists: readonly string[];
  /** In the first ten seconds. */
  readonly requests: { readonly stream: number; readonly confirm: number };
}

const rows: StreamFaultRow[] = [];

/** Adds a row to the table at the end of the run. */
export function addFaultRow(row: StreamFaultRow): void {
  rows.push(row);
}

export function printFaultTable(): void {
  const seconds = (ms: number | undefined): string => (ms === undefined ? "-" : `${(ms / 1000).toFixed(2)} s`);
  const lines = rows.map(
    ({ name, noticedMs, recoveredMs, lists, requests }) =>
      `| ${name} | ${seconds(noticedMs)} | ${seconds(recoveredMs)} | ${lists.join(", ") || "none"} | ` +
      `${requests.stream} + ${requests.confirm} |`,
  );
  const head =
    "| fault | noticed after | caught up after its end | lists | requests in 10 s (stream + quorum checks) |\n" +
    "|---|---|---|---|---|";
  process.stdout.write(`${head}\n${lines.join("\n")}\n`);
}
