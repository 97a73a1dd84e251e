/** One source from facts to writes (design 7): gather what is there, decide by `plan`, do the steps in order. */
import { type ApiClient, podProtectorPath } from "../../shared/kube/api.ts";
import type { ApiResult } from "../../shared/kube/api-result.ts";
import type { Source as ObjectSource } from "../../shared/kube/source.ts";
import type { Ports } from "../../shared/runtime/clock.ts";
import { DONE, type Outcome, type Reconcile } from "../../shared/runtime/reconcile.ts";
import { GENERATOR_FINALIZER, GROUP, KIND, PLURAL, VERSION } from "../../shared/schema/annotations.ts";
import { parsePodProtector } from "../../shared/schema/parse-podprotector.ts";
import type { PodProtector } from "../../shared/schema/podprotector.ts";
import type { GeneratorEvent } from "./events.ts";
import { outcomeOf } from "./outcome.ts";
import { plan, type Step } from "./plan.ts";
import type { ProtectorIndex } from "./protector-index.ts";
import { release } from "./release.ts";
import { removeCells } from "./remove-cells.ts";
import { collectionPath, parseSourceKey, type Source, type SourcePlugin } from "./source.ts";

export interface ReconcilerOptions {
  readonly api: ApiClient;
  readonly ports: Ports;
  readonly plugins: readonly SourcePlugin[];
  /** The watched objects of each plugin, by its name. */
  readonly sources: ReadonlyMap<string, ObjectSource<Source>>;
  readonly protectors: ProtectorIndex;
  /** Asked before each write: a deposed leader does nothing more. */
  readonly mayWrite: () => boolean;
  readonly timeoutMs: number;
  readonly onEvent: (event: GeneratorEvent) => void;
}

interface Work {
  readonly options: ReconcilerOptions;
  readonly plugin: SourcePlugin;
  readonly key: string;
  readonly signal: AbortSignal;
}

/** The reconciler of the queue's keys (`plugin/namespace/name`). Rejects for a key of an unknown plugin, which is a bug. */
export function reconciler(options: ReconcilerOptions): Reconcile<string> {
  return async (key, { signal }) => {
    const identity = parseSourceKey(key);
    const plugin = options.plugins.find(({ name }) => name === identity.plugin);
    const source = options.sources.get(identity.plugin)?.get(`${identity.namespace}/${identity.name}`);
    if (plugin === undefined) throw new Error(`there is no plugin ${identity.plugin}`);
    const steps = plan({
      plugin,
      plugins: options.plugins,
      identity,
      source,
      protectors: options.protectors.of(key),
      named: (name) => options.protectors.get(`${identity.namespace}/${name}`),
    });
    const work: Work = { options, plugin, key, signal };
    for (const step of steps) {
      // The next leader does it.
      if (!options.mayWrite()) return DONE;
      const outcome = await perform(work, step);
      if (outcome.kind !== "done") return outcome;
    }
    return DONE;
  };
}

async function perform(work: Work, step: Step): Promise<Outcome> {
  const { options, key, signal } = work;
  const calls = { api: options.api, timeoutMs: options.timeoutMs, signal };
  const nowMs = options.ports.clock.nowMs();
  switch (step.kind) {
    case "holdSource":
      return settled(
        work,
        await setFinalizer(work, step.source, true),
        { kind: "held", source: key },
        "hold the source",
      );
    case "letSourceGo": {
      const result = await setFinalizer(work, step.source, false);
      // It was deleted by force meanwhile, which is what was to be made possible.
      if (result.kind === "gone") return DONE;
      return settled(work, result, { kind: "letGo", source: key }, "let the source go");
    }
    case "create": {
      const path = collectionPath(
        { group: GROUP, version: VERSION, resource: PLURAL, kind: KIND },
        step.object.metadata.namespace,
      );
      const result = await options.api.create(path, step.object, parsePodProtector, calls);
      if (result.kind === "ok") options.protectors.wrote(result.object);
      const protector = step.object.metadata.name;
      return settled(work, result, { kind: "created", source: key, protector }, `create protector ${protector}`);
    }
    case "update": {
      const { namespace = "", name } = step.object.metadata;
      const body = { ...step.object, apiVersion: `${GROUP}/${VERSION}`, kind: KIND };
      const result = await options.api.update(podProtectorPath(namespace, name), body, parsePodProtector, calls);
      if (result.kind === "ok") options.protectors.wrote(result.object);
      return settled(work, result, { kind: "updated", source: key, protector: name }, `update protector ${name}`);
    }
    case "removeCells": {
      const result = await removeCells(calls, step.protector, step.cells, nowMs);
      const protector = step.protector.metadata.name;
      return settled(
        work,
        result,
        { kind: "cellsRemoved", protector, cells: step.cells },
        `remove cells of ${protector}`,
      );
    }
    case "release": {
      const { protector, reason } = step;
      const { name } = protector.metadata;
      const result = await release(calls, protector, reason, new Date(nowMs).toISOString());
      if (result.kind === "ok") options.protectors.released(protector);
      return settled(work, result, { kind: "released", source: key, protector: name, reason }, `release ${name}`);
    }
    case "reportOrphan":
      options.onEvent(orphaned(key, step.protector));
      return DONE;
  }
}

function orphaned(source: string, { metadata }: PodProtector): GeneratorEvent {
  return { kind: "orphaned", source, protector: metadata.name, uid: metadata.uid };
}

/** Reports what was done, or what was not, and says what is to happen with the key. */
function settled(work: Work, result: ApiResult<unknown>, event: GeneratorEvent, what: string): Outcome {
  const outcome = outcomeOf(what, result);
  if (outcome.kind === "failed") {
    work.options.onEvent({ kind: "failed", source: work.key, tag: result.kind, error: outcome.error });
  } else work.options.onEvent(event);
  return outcome;
}

/** Puts the generator's finalizer on a source or takes it off; nothing else of the object is touched. */
async function setFinalizer(work: Work, source: Source, present: boolean): Promise<ApiResult<unknown>> {
  const others = source.finalizers.filter((finalizer) => finalizer !== GENERATOR_FINALIZER);
  const finalizers = present ? [...others, GENERATOR_FINALIZER] : others;
  const { uid, resourceVersion } = source;
  const path = `${collectionPath(work.plugin.kind, source.namespace)}/${source.name}`;
  const body = { metadata: { uid, resourceVersion, finalizers } };
  const { api, timeoutMs } = work.options;
  const options = { timeoutMs, signal: work.signal };
  return await api.patch(path, "application/merge-patch+json", body, () => undefined, options);
}
