/** A pipeline over stored protectors of some cores, in virtual time. */
import { ProtectorVersion } from "../../../shared/decide/state/protector-version.ts";
import type { Pod } from "../../../shared/schema/pod.ts";
import type { PodProtector } from "../../../shared/schema/podprotector.ts";
import { Nonces } from "../../../webhook/reserve/nonces.ts";
import { type Disruption, Pipeline } from "../../../webhook/reserve/pipeline.ts";
import type { ProtectorLookup } from "../../../webhook/reserve/protector-cache.ts";
import { ProtectorWriter } from "../../../webhook/reserve/protector-writer.ts";
import type { Verdict } from "../../../webhook/reserve/verdict.ts";
import { VirtualTime } from "../runtime/virtual-ports.ts";
import { ProtectorStore } from "./protector-store.ts";

export interface Protected {
  readonly core: string;
  readonly object: PodProtector;
  readonly isLost?: boolean;
  /** It is lost once a read does not find it, though the watch still shows it. */
  readonly vanishes?: boolean;
}

type PipelineOptions = ConstructorParameters<typeof Pipeline>[0];

export interface PipelineWorld {
  readonly time: VirtualTime;
  readonly pipeline: Pipeline;
  readonly stores: ReadonlyMap<string, ProtectorStore>;
  readonly problems: Map<string, string>;
  /** Runs virtual time until the verdict. */
  decide(disruption: Disruption): Promise<Verdict>;
}

export function world(all: readonly Protected[], callers?: PipelineOptions["callers"]): PipelineWorld {
  const time = new VirtualTime();
  const nonces = new Nonces(time.random);
  const problems = new Map<string, string>();
  const stores = new Map<string, ProtectorStore>();
  const sources: ProtectorLookup[] = [...new Set(all.map(({ core }) => core))].map((core) => {
    const matches = all
      .filter((one) => one.core === core)
      .map(({ object, isLost = false, vanishes = false }) => {
        const { namespace = "", name } = object.metadata;
        const store = new ProtectorStore({ ports: time, object });
        stores.set(`${core}/${name}`, store);
        const writer: ProtectorWriter = new ProtectorWriter({
          namespace,
          name,
          ports: time,
          client: store.client(),
          watched: store.watch(time, 3, () => writer.watchChanged()),
          onEvent: () => undefined,
          tag: nonces.tag,
        });
        const last = new ProtectorVersion(object, 0);
        const match = { core, namespace, name, writer };
        if (isLost) return { ...match, lost: last };
        return vanishes ? { ...match, lastVersion: () => last } : match;
      });
    const match = ({ namespace, labels = {} }: Pod) =>
      matches.filter((one) => one.namespace === namespace && labels[one.name] !== "left");
    return { name: core, problem: () => problems.get(core), match };
  });
  const pipeline = new Pipeline({ cores: sources, ports: time, nonces, settleMs: 75_000, callers });
  const decide = (one: Disruption): Promise<Verdict> => time.result(pipeline.decide(one));
  return { time, pipeline, stores, problems, decide };
}
