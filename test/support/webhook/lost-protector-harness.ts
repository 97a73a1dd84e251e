import { ProtectorVersion } from "../../../shared/decide/state/protector-version.ts";
import { ObjectStore } from "../../../shared/kube/informer/object-store.ts";
import { GENERATOR_FINALIZER } from "../../../shared/schema/annotations.ts";
import type { Pod } from "../../../shared/schema/pod.ts";
import type { PodProtector } from "../../../shared/schema/podprotector.ts";
import type { ProbeAnswer, ProbeRequest } from "../../../webhook/probe/probe-request.ts";
import { Nonces } from "../../../webhook/reserve/nonces.ts";
import { type Disruption, Pipeline } from "../../../webhook/reserve/pipeline.ts";
import { ProtectorCache } from "../../../webhook/reserve/protector-cache.ts";
import type { Verdict } from "../../../webhook/reserve/verdict.ts";
import { VirtualTime } from "../runtime/virtual-ports.ts";
import { disruption, protector } from "./fixtures.ts";
import { ProtectorStore } from "./protector-store.ts";

const KEY = "default/web";

/** The verdict on an available pod of the lost protector. */
export const VANISHED = { kind: "denied", decisions: [{ decision: { kind: "lost", uid: "uid-of-web" } }] };

export type Spec = Partial<PodProtector["spec"]>;

export function generated(spec: Spec = {}): PodProtector {
  const object = protector(5, { spec });
  return { ...object, metadata: { ...object.metadata, finalizers: [GENERATOR_FINALIZER] } };
}

/** One replica whose watch shows what the test says; the core's store has the protector until the test removes it. */
export class LostProtectorHarness {
  readonly time = new VirtualTime();
  readonly source: ObjectStore<ProtectorVersion>;
  readonly store: ProtectorStore;
  readonly core: ProtectorCache;
  readonly pipeline: Pipeline;
  readonly told: string[] = [];
  readonly lost: string[] = [];
  readonly recorded = new Set<string>();
  reachable = true;
  recovering = false;
  comebacks = 0;
  readonly requests: ProbeRequest[] = [];
  answer: ProbeAnswer["result"] = "allowed";

  constructor(object: PodProtector | undefined) {
    this.store = new ProtectorStore({ ports: this.time, object: object ?? generated() });
    this.source = new ObjectStore<ProtectorVersion>({
      uidOf: ({ uid }) => uid,
      versionOf: ({ version }) => version,
      onHandlerError: (error) => {
        throw error;
      },
    });
    const { source } = this;
    const nonces = new Nonces(this.time.random);
    this.core = new ProtectorCache({
      name: "core",
      source: {
        get: (key) => source.get(key),
        values: () => source.values(),
        get size() {
          return source.size;
        },
        get position() {
          return source.position;
        },
        synced: true,
        lastContactMs: 0,
        confirmedSentMs: 0,
        requestEvidence: () => undefined,
        learned: () => undefined,
        subscribe: (handler) => source.subscribe(handler),
      },
      client: this.store.client(),
      ports: this.time,
      tag: nonces.tag,
      isRecovering: () => this.recovering,
      assumeOutage: () => this.comebacks++,
      onEvent: (event) => {
        if (event.kind === "historyLost") this.lost.push(`${event.finding} ${event.now.key}`);
        else if (event.kind === "lost")
          this.told.push(`${event.protector.key} vanished${event.isKept ? "" : ", not kept"}`);
        else if (event.kind === "lostEnded") this.told.push(`${event.protector.key} ${event.how}`);
      },
      releases: {
        hasEnded: ({ metadata }) => this.recorded.has(metadata.uid),
        inForce: ({ metadata }) => void this.recorded.delete(metadata.uid),
      },
    });
    this.core.problem = () => (this.reachable ? undefined : "out of reach");
    this.pipeline = new Pipeline({
      cores: [this.core],
      ports: this.time,
      nonces,
      settleMs: 75_000,
      askOwner: async (request) => {
        this.requests.push(request);
        return { result: this.answer, message: "" };
      },
    });
    if (object !== undefined) this.show(object);
  }

  show(object: PodProtector): void {
    const entry = new ProtectorVersion(object, 0);
    this.source.upsert(KEY, entry, object.metadata.resourceVersion);
  }

  vanish(): void {
    this.source.remove(KEY, "", "90");
  }

  ask(of: Pod, overrides: Partial<Disruption> = {}): Promise<Verdict> {
    const nowMs = this.time.clock.monotonicMs();
    const asked = disruption(of, { arrivedMs: nowMs, deadlineMs: nowMs + 9_500, ...overrides });
    return this.time.result(this.pipeline.decide(asked));
  }
}
