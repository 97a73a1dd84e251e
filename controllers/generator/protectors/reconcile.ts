/** One source from facts to writes (design 7): gather what is there, decide by `plan`, do the steps in order. */
import type { ApiClient } from "../../../shared/kube/client/api-client.ts";
import { podProtectorPath } from "../../../shared/kube/client/api-path.ts";
import type { ApiResult } from "../../../shared/kube/client/api-result.ts";
import type { LostProtectorsBySource } from "../../../shared/recovery/lost-protectors-by-source.ts";
import type { RegisterWriter } from "../../../shared/recovery/register/register-writer.ts";
import { restore } from "../../../shared/recovery/restore-protector.ts";
import type { Ports } from "../../../shared/runtime/clock.ts";
import { DONE, later, type Reconcile, type ReconcileOutcome } from "../../../shared/runtime/reconcile.ts";
import { GENERATOR_FINALIZER, GROUP, KIND, PLURAL, VERSION } from "../../../shared/schema/annotations.ts";
import { type PodProtector, parsePodProtector } from "../../../shared/schema/podprotector.ts";
import type { Resolver } from "../budgets/resolve.ts";
import type { KindWatch } from "../sources/kind-watch.ts";
import {
  collectionPath,
  type ProtectionSource,
  parseSourceKey,
  type RequiredProtector,
  type SourceKind,
  type SourcePlugin,
} from "../sources/protection-source.ts";
import type { GeneratorEvent } from "./events.ts";
import { outcomeOf } from "./outcome.ts";
import { plan, type ReconcileStep } from "./plan.ts";
import { requiredBy } from "./protector.ts";
import type { ProtectorIndex } from "./protector-index.ts";
import { release } from "./release.ts";
import { removeCells } from "./remove-cells.ts";
import { replace } from "./replace.ts";
import { Reports } from "./reports.ts";
import { noteSource } from "./source-condition.ts";

export interface ReconcilerOptions {
  readonly api: ApiClient;
  readonly ports: Ports;
  readonly plugins: readonly SourcePlugin[];
  /** The watched objects of each plugin, by its name. */
  readonly kinds: ReadonlyMap<string, Pick<KindWatch, "kind" | "get">>;
  readonly resolver: Pick<Resolver, "resolve" | "forget">;
  readonly protectors: Pick<ProtectorIndex, "of" | "get" | "wrote" | "released">;
  readonly lost: Pick<LostProtectorsBySource, "of">;
  readonly register: Pick<RegisterWriter, "record">;
  /** Asked before each write: a deposed leader does nothing more. */
  readonly mayWrite: () => boolean;
  readonly timeoutMs: number;
  readonly onEvent: (event: GeneratorEvent) => void;
}

/** What can't be made anew now is tried again after this. */
const REPLACE_AGAIN_MS = 30_000;
const RESTORE_AGAIN_MS = 2_000;
/** What was planned from an old version of its source is planned again after this, or when the watch shows the new one. */
const CONFIRM_AGAIN_MS = 2_000;

interface Work {
  readonly options: ReconcilerOptions;
  readonly kind: SourceKind;
  readonly key: string;
  readonly signal: AbortSignal;
  /** As the steps were planned from it. */
  readonly source?: ProtectionSource | undefined;
}

/** What rests on something that is not watched is looked at again after this time. */
const RECHECK_MS = 30_000;
/** A protector that its terminating namespace does not take: the namespace is gone by then, or its end was cancelled by hand. */
const TERMINATING_MS = 60_000;
const TERMINATING = "its namespace is being deleted and takes no new protector";

/** The reconciler of the queue's keys (`plugin/namespace/name`). Rejects for a key of an unknown plugin, which is a bug. */
export function reconciler(options: ReconcilerOptions): Reconcile<string> {
  const reports = new Reports(options.onEvent);
  return async (key, { signal }) => {
    const identity = parseSourceKey(key);
    const watch = options.kinds.get(identity.plugin);
    if (watch === undefined) throw new Error(`there is no plugin ${identity.plugin}`);
    const work: Work = { options, kind: watch.kind, key, signal };
    const found = watch.get(`${identity.namespace}/${identity.name}`);
    const protectors = options.protectors.of(key);
    const ready = await resolved(work, found, protectors, reports);
    if (ready.kind === "end") return ready.outcome;
    const steps = plan({
      plugin: watch,
      plugins: options.plugins,
      identity,
      source: ready.source,
      protectors,
      named: (name) => options.protectors.get(`${identity.namespace}/${name}`),
      lost: options.lost.of(key),
    });
    const planned: Work = { ...work, source: ready.source };
    for (const step of steps) {
      // The next leader does it.
      if (!options.mayWrite()) return DONE;
      const done = await perform(planned, step);
      // Of what is done before it, again perhaps, that says nothing.
      if (step.kind === "create" && done.kind === "later")
        reports.tell(`${key}#namespace`, "namespaceTerminating", watch.kind, found, TERMINATING);
      if (done.kind !== "done") return done;
    }
    reports.tell(`${key}#namespace`, "namespaceTerminating", watch.kind, found, undefined);
    return ready.recheck ? later(RECHECK_MS) : DONE;
  };
}

type Ready =
  | { readonly kind: "go"; readonly source: ProtectionSource | undefined; readonly recheck: boolean }
  | { readonly kind: "end"; readonly outcome: ReconcileOutcome };

/** The source with the protectors that it requires, or what is to happen when that can't be told. */
async function resolved(
  work: Work,
  source: ProtectionSource | undefined,
  protectors: readonly PodProtector[],
  reports: Reports,
): Promise<Ready> {
  const { options, key, kind, signal } = work;
  if (source?.need === undefined) {
    options.resolver.forget(key);
    reports.tell(key, "ignored", kind, source, source?.why);
    return { kind: "go", source, recheck: false };
  }
  // One that vanished counts: what it required would be forgotten otherwise where that can't be found out anew.
  const present = protectors[0] ?? options.lost.of(key)[0];
  const question = { key, kind, source, need: source.need, present, signal };
  const resolution = await options.resolver.resolve(question);
  switch (resolution.kind) {
    case "waiting":
      return { kind: "end", outcome: DONE };
    case "failed": {
      const outcome = outcomeOf("find out how many pods there should be", resolution.failure);
      if (outcome.kind === "failed") {
        options.onEvent({ kind: "failed", source: key, tag: resolution.failure.kind, error: outcome.error });
      }
      return { kind: "end", outcome };
    }
    case "unresolved": {
      reports.tell(key, "unresolved", kind, source, resolution.why);
      const known = kept(options, key, protectors);
      // To plan without any would be to let the source go.
      if (known.length === 0) return { kind: "end", outcome: later(RECHECK_MS) };
      return { kind: "go", source: { ...source, protectors: known }, recheck: true };
    }
    case "resolved":
      reports.tell(key, "unresolved", kind, source, resolution.why);
      return {
        kind: "go",
        source: { ...source, protectors: resolution.protectors },
        recheck: resolution.recheck,
      };
  }
}

/** What can't be told anew stays required: a protector that is deleted or altered meanwhile comes back all the same. */
function kept({ lost }: ReconcilerOptions, key: string, present: readonly PodProtector[]): RequiredProtector[] {
  const names = new Set(present.map(({ metadata }) => metadata.name));
  return [...present, ...lost.of(key).filter(({ metadata }) => !names.has(metadata.name))].map(requiredBy);
}

async function perform(work: Work, step: ReconcileStep): Promise<ReconcileOutcome> {
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
      if (isNamespaceTerminating(result)) return later(TERMINATING_MS);
      const protector = step.object.metadata.name;
      return settled(work, result, { kind: "created", source: key, protector }, `create protector ${protector}`);
    }
    case "restore": {
      const { name } = step.copy.metadata;
      const result = await restore(options.api, step.object, step.copy, calls);
      // Someone else has made it again: the watch is about to say so.
      if (result.kind === "conflict") return later(RESTORE_AGAIN_MS);
      if (result.kind === "ok") options.protectors.wrote(result.object);
      return settled(work, result, { kind: "restored", source: key, protector: name }, `restore protector ${name}`);
    }
    case "replace":
      return replaceStep(work, step);
    case "update": {
      const { namespace = "", name } = step.object.metadata;
      const body = { ...step.object, apiVersion: `${GROUP}/${VERSION}`, kind: KIND };
      const result = await options.api.update(podProtectorPath(namespace, name), body, parsePodProtector, calls);
      if (result.kind === "ok") options.protectors.wrote(result.object);
      return settled(work, result, { kind: "updated", source: key, protector: name }, `update protector ${name}`);
    }
    case "removeCells": {
      const result = await removeCells(calls, step.protector, step.cells);
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
      const current = await confirmSource(work);
      // The watch is about to say what there is now.
      if (current.kind === "conflict" || current.kind === "gone") return later(CONFIRM_AGAIN_MS);
      if (current.kind !== "ok") return reported(work, current, `confirm the source of ${name}`);
      const record = options.register.record.bind(options.register);
      const result = await release({ ...calls, record }, protector, reason, new Date(nowMs).toISOString());
      if (result.kind === "ok") options.protectors.released(protector);
      return settled(work, result, { kind: "released", source: key, protector: name, reason }, `release ${name}`);
    }
    case "reportOrphan":
      options.onEvent(orphaned(key, step.protector));
      return DONE;
    case "noteSource": {
      const { name } = step.protector.metadata;
      const result = await noteSource(calls, step.protector, step.vanished, new Date(nowMs).toISOString());
      if (result.kind === "ok") options.protectors.wrote(result.object);
      return settled(work, result, { kind: "noted", source: key, protector: name }, `note the source of ${name}`);
    }
  }
}

/** The apiserver says it in words only; its reason for it is a mere Forbidden, as for a missing permission. */
function isNamespaceTerminating(result: ApiResult<unknown>): boolean {
  return result.kind === "rejected" && result.status === 403 && result.message.includes("is being terminated");
}

async function replaceStep(
  work: Work,
  { protector, object }: Extract<ReconcileStep, { kind: "replace" }>,
): Promise<ReconcileOutcome> {
  const { options, key, signal } = work;
  const { name, uid } = protector.metadata;
  const replaced = await replace({ api: options.api, timeoutMs: options.timeoutMs, signal }, protector, object);
  if (replaced.kind === "failed") {
    const event: GeneratorEvent = { kind: "replaced", source: key, protector: name };
    return settled(work, replaced.result, event, `replace protector ${name}`);
  }
  if (replaced.kind === "kept") {
    options.onEvent({ kind: "kept", source: key, protector: name, uid, why: replaced.why });
    return later(REPLACE_AGAIN_MS);
  }
  options.protectors.wrote(replaced.object);
  options.onEvent({ kind: "replaced", source: key, protector: name });
  return DONE;
}

function orphaned(source: string, { metadata }: PodProtector): GeneratorEvent {
  return { kind: "orphaned", source, protector: metadata.name, uid: metadata.uid };
}

/** Reports what was done, or what was not, and says what is to happen with the key. */
function settled(work: Work, result: ApiResult<unknown>, event: GeneratorEvent, what: string): ReconcileOutcome {
  const next = reported(work, result, what);
  if (next.kind !== "failed") work.options.onEvent(event);
  return next;
}

/** Reports what could not be done. */
function reported(work: Work, result: ApiResult<unknown>, what: string): ReconcileOutcome {
  const next = outcomeOf(what, result);
  if (next.kind === "failed")
    work.options.onEvent({ kind: "failed", source: work.key, tag: result.kind, error: next.error });
  return next;
}

/**
 * A release can't be undone, so it rests on no cache: by a patch that changes nothing, and that the apiserver takes for this version of the
 * source only. A watch that lags may still show the source that was deleted, when another of its name is there.
 */
async function confirmSource(work: Work): Promise<ApiResult<unknown>> {
  const { source } = work;
  if (source === undefined) return { kind: "ok", object: undefined };
  return await setFinalizer(work, source, source.finalizers.includes(GENERATOR_FINALIZER));
}

/** Puts the generator's finalizer on a source or takes it off; nothing else of the object is touched. */
async function setFinalizer(work: Work, source: ProtectionSource, present: boolean): Promise<ApiResult<unknown>> {
  const others = source.finalizers.filter((finalizer) => finalizer !== GENERATOR_FINALIZER);
  const finalizers = present ? [...others, GENERATOR_FINALIZER] : others;
  const { uid, resourceVersion } = source;
  const path = `${collectionPath(work.kind, source.namespace)}/${source.name}`;
  const body = { metadata: { uid, resourceVersion, finalizers } };
  const { api, timeoutMs } = work.options;
  const options = { timeoutMs, signal: work.signal };
  return await api.patch(path, "application/merge-patch+json", body, () => undefined, options);
}
