/**
 * Real reviews of pods, among those that a caller of the webhook's port makes up: of the UID of a pod, with any name
 * and version. Whatever their order, the promise holds and no record is settled whose disruption can be committed.
 */
import fc from "fast-check";
import { expect, test } from "vitest";
import { cellUpdate, makeCell, makePod, makeProtector, makeRequest } from "../../../test/support/decide/fixtures.ts";
import type { Pod } from "../../schema/pod.ts";
import type { CellStatus } from "../../schema/podprotector.ts";
import { Ledger } from "../ledger/ledger.ts";
import { EARLIER, hashUid } from "../ledger/reservation.ts";
import { type Allowed, type DisruptionRequest, decide } from "../quota.ts";
import { apply, rollBack } from "../reserve.ts";
import { encodeStatus } from "../state/encode-status.ts";
import { type ProtectorState, parseProtector } from "../state/protector-state.ts";
import { FirstSeenTimes } from "./first-seen.ts";

const PODS = 6;
const SETTLE_MS = 75_000;
const KINDS = ["delete", "evict", "forge", "undo", "commit", "create", "change", "count", "list"] as const;

interface Step {
  readonly kind: (typeof KINDS)[number];
  readonly pod: number;
  /** Whose name a forged review gives. */
  readonly named: number;
  readonly version: number;
  readonly passMs: number;
}

interface Admitted {
  readonly request: DisruptionRequest;
  readonly reason: Allowed["reason"];
  readonly atMs: number;
}

class World {
  readonly #spec;
  readonly #seen = new FirstSeenTimes();
  readonly #pods: Pod[] = [];
  /** The pods at each version. */
  readonly #history: (readonly Pod[])[] = [];
  readonly #forged: Admitted[] = [];
  #real: Admitted[] = [];
  #entry: CellStatus;
  #version = 0;
  #counted = 0;
  #nowMs = 0;
  #listedMs: number | undefined;

  constructor(minAvailable: number, compactThreshold: number) {
    this.#spec = { minAvailable, admissionHistoryConfig: { compactThreshold } };
    for (let pod = 0; pod < PODS; pod++) this.#store([...this.#pods, this.#at(makePod(`web-${pod}`))]);
    this.#counted = this.#version;
    this.#entry = makeCell("a", PODS, [], { resourceVersion: `${this.#version}` });
  }

  get alive(): number {
    return this.#pods.length;
  }

  step({ kind, pod: index, named, version, passMs }: Step): void {
    this.#nowMs += passMs;
    const pod = this.#pods[index];
    if (kind === "count") this.#count(this.#counted + (version % (this.#version - this.#counted + 1)));
    else if (kind === "list") this.#list();
    else if (kind === "undo") this.#undo(index);
    else if (kind === "create") this.#store([...this.#pods, this.#at(makePod(`new-${this.#version}`))]);
    else if (kind === "commit") this.#commit(this.#real[index % Math.max(1, this.#real.length)]);
    else if (pod === undefined) return;
    else if (kind === "change") this.#store(this.#pods.map((one) => (one === pod ? this.#at(pod) : one)));
    else if (kind === "forge") {
      const resourceVersion = `${1 + (version % (this.#version + 5))}`;
      this.#review({ ...pod, name: `web-${named}`, resourceVersion }, "DELETE", this.#forged);
    } else this.#review(pod, kind === "delete" ? "DELETE" : "EVICT", this.#real);
  }

  /** The disruptions that can still be committed, and that no record is about. */
  lost(): readonly Admitted[] {
    const all = [...Ledger.parse(this.#entry.admissionHistory?.buckets).reservations()];
    return this.#real.filter(({ request: { pod, operation, nonce } }) => {
      const of = all.filter(({ uid, uidHash }) => uid === pod.uid || uidHash === hashUid(pod.uid));
      const nonces = of.flatMap(({ records }) => records.get(operation)?.nonces ?? []);
      return !nonces.includes(nonce) && !nonces.includes(EARLIER);
    });
  }

  #at(pod: Pod): Pod {
    return { ...pod, resourceVersion: `${this.#version + 1}` };
  }

  #store(pods: readonly Pod[]): void {
    this.#pods.splice(0, this.#pods.length, ...pods);
    this.#version++;
    this.#history[this.#version] = [...pods];
    this.#forgetOver();
  }

  /** Drops the disruptions that nobody can commit any more. */
  #forgetOver(): void {
    this.#real = this.#real.filter(({ request: { pod, operation }, atMs }) => {
      const now = this.#pods.find(({ uid }) => uid === pod.uid);
      const isSame = operation === "EVICT" || now?.resourceVersion === pod.resourceVersion;
      return now !== undefined && isSame && this.#nowMs - atMs <= SETTLE_MS;
    });
  }

  #write(change: (state: ProtectorState) => void): void {
    const protector = makeProtector([this.#entry], this.#spec);
    const state = parseProtector(protector);
    change(state);
    this.#entry = encodeStatus(state, protector.status).cells[0] ?? this.#entry;
  }

  #review(pod: Pod, operation: "DELETE" | "EVICT", admitted: Admitted[]): void {
    const request = makeRequest(pod, { operation });
    this.#write((state) => {
      const decision = decide(state, request);
      apply(state, request, decision);
      if (decision.allowed) admitted.push({ request, reason: decision.reason, atMs: this.#nowMs });
    });
  }

  #undo(index: number): void {
    const [one] = this.#forged.splice(index % Math.max(1, this.#forged.length), 1);
    if (one === undefined) return;
    const { cell, pod, operation, nonce } = one.request;
    this.#write((state) => rollBack(state, cell, pod.uid, operation, nonce, one.reason === "Reserved"));
  }

  #commit(one: Admitted | undefined): void {
    this.#forgetOver();
    if (one === undefined || !this.#real.includes(one)) return;
    this.#store(this.#pods.filter(({ uid }) => uid !== one.request.pod.uid));
  }

  #list(): void {
    this.#listedMs = this.#nowMs;
    this.#count(this.#version);
  }

  #count(version: number): void {
    this.#forgetOver();
    this.#counted = version;
    const evidence = {
      reachedSentMs: this.#listedMs,
      heardMs: () => Number.POSITIVE_INFINITY,
      aliveSentMs: () => undefined,
    };
    const update = cellUpdate({
      ...{ stored: this.#entry, pods: this.#history[version] ?? [], position: `${version}` },
      ...{ seen: this.#seen, monotonicMs: this.#nowMs, evidence },
    });
    this.#entry = update.entry;
  }
}

const step: fc.Arbitrary<Step> = fc.record({
  kind: fc.constantFrom(...KINDS, "forge", "forge", "count"),
  pod: fc.nat(PODS + 3),
  named: fc.nat(PODS),
  version: fc.nat(100),
  passMs: fc.oneof(fc.nat(100), fc.nat(30_000)),
});

test("forged reviews take nothing from what is promised, in any order", () => {
  fc.assert(
    fc.property(fc.integer({ min: 1, max: 5 }), fc.nat(3), fc.array(step, { maxLength: 40 }), (least, plain, steps) => {
      const world = new World(least, plain);
      for (const one of steps) {
        world.step(one);
        expect(world.lost()).toEqual([]);
        expect(world.alive).toBeGreaterThanOrEqual(least);
      }
    }),
    { numRuns: 2_000 },
  );
});
