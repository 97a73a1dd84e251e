/** Carries out the steps of a plan, one function for each kind of step. A step that fails ends the reconcile. */
import { holdOf } from "../../../shared/decide/state/hold.ts";
import { type ApiClient, about } from "../../../shared/kube/client/api-client.ts";
import { podProtectorPath } from "../../../shared/kube/client/api-path.ts";
import { type ApiFailure, type ApiResult, uncalledWebhook } from "../../../shared/kube/client/api-result.ts";
import type { RegisterWriter } from "../../../shared/recovery/register/register-writer.ts";
import { restore } from "../../../shared/recovery/restore-protector.ts";
import type { Ports } from "../../../shared/runtime/clock.ts";
import { DONE, failed, later, type ReconcileOutcome } from "../../../shared/runtime/reconcile.ts";
import { ADOPTED, GENERATOR_FINALIZER, PROTECT_ANNOTATION } from "../../../shared/schema/annotations.ts";
import { isRecord } from "../../../shared/schema/check.ts";
import { type PodProtector, parsePodProtector } from "../../../shared/schema/podprotector.ts";
import { collectionPath, type ProtectionSource, type SourceKind } from "../sources/protection-source.ts";
import { type ApiCalls, updateProtector, withoutFinalizer } from "./calls.ts";
import { type GeneratorEvent, PROTECTOR_KIND, referenceTo } from "./events.ts";
import type { ReconcileStep, StepKind } from "./plan.ts";
import type { ProtectorIndex } from "./protector-index.ts";
import { release } from "./release.ts";
import { repairProtector } from "./repair.ts";
import { setSourceState } from "./source-condition.ts";

const UNDONE = { kind: "undone" } as const;
/** Time until the apiserver may accept a rejected creation. */
const REPLACE_AGAIN_MS = 30_000;
/** Time until the watch shows the protector, or the version of the source, that caused a conflict. */
const WATCH_LAG_MS = 2_000;
/** Time until a terminating namespace is gone, or accepts objects again. */
const TERMINATING_MS = 60_000;

export interface StepOptions {
  readonly api: ApiClient;
  readonly ports: Ports;
  readonly protectors: Pick<ProtectorIndex, "wrote" | "released"> &
    Partial<Pick<ProtectorIndex, "unanswered" | "told">>;
  readonly register: Pick<RegisterWriter, "record">;
  readonly timeoutMs: number;
  readonly onEvent: (event: GeneratorEvent) => void;
}

/** What all steps of one reconcile have in common. */
export interface StepContext {
  readonly options: StepOptions;
  readonly calls: ApiCalls<keyof ApiClient> & { readonly signal: AbortSignal };
  /** The key of the source. */
  readonly key: string;
  readonly kind: SourceKind;
  /** The source, in the version that the plan was made from. */
  readonly source: ProtectionSource | undefined;
}

/** `undone`: the apiserver has accepted the write, and stored something else. */
type StepOutcome = ReconcileOutcome | { readonly kind: "undone" };

export function perform<K extends StepKind>(context: StepContext, step: ReconcileStep<K>): Promise<StepOutcome> {
  return STEPS[step.kind](context, step);
}

type StepFunctions = {
  readonly [K in StepKind]: (context: StepContext, step: ReconcileStep<K>) => Promise<StepOutcome>;
};

const STEPS: StepFunctions = {
  async addSourceFinalizer(context, { source }) {
    const result = await setFinalizer(context, source, true);
    if (result.kind === "ok" && !includes(result.object.finalizers, GENERATOR_FINALIZER)) return UNDONE;
    return finish(context, result, "add the finalizer to the source", { kind: "held", source: context.key });
  },

  async removeSourceFinalizer(context, { source }) {
    const { protectors } = context.options;
    const name = protectors.unanswered?.get(context.key);
    if (name !== undefined) {
      // Without its release, it would outlive the source.
      const found = await lookFor(context, source.namespace, name);
      if (found?.kind !== "failed") protectors.unanswered?.delete(context.key);
      if (found !== undefined) return found;
    }
    const result = await setFinalizer(context, source, false);
    // The source was deleted by force meanwhile.
    if (result.kind === "gone") return DONE;
    return finish(context, result, "remove the finalizer from the source", { kind: "letGo", source: context.key });
  },

  async create(context, { object }) {
    const { calls } = context;
    const { namespace, name } = object.metadata;
    const parse = about(namespace, name, parsePodProtector);
    const result = await calls.api.create(podProtectorPath(namespace), object, parse, calls);
    if (isNamespaceTerminating(result)) return later(TERMINATING_MS);
    return finishWrite(context, result, `create protector ${name}`, "created", name);
  },

  async restore(context, { object, lost }) {
    const { calls } = context;
    const { name } = lost.metadata;
    const result = await restore(calls.api, object, lost, calls, holdText(context, lost));
    // An aggregator has restored the protector.
    if (result.kind === "conflict") return later(WATCH_LAG_MS);
    return finishWrite(context, result, `restore protector ${name}`, "restored", name);
  },

  replace: replaceDeleted,

  async update(context, { protector, object }) {
    const { name } = object.metadata;
    const result = await repairProtector(context.calls, protector, object);
    return finishWrite(context, result, `update protector ${name}`, "updated", name);
  },

  async removeCells(context, { protector, cells }) {
    const { name } = protector.metadata;
    // Seldom used: an operator removes a cell once.
    const { removeCells } = await import("./remove-cells.ts");
    const result = await removeCells(context.calls, protector, cells);
    if (result.kind === "ok") context.options.protectors.wrote(result.object);
    return finish(context, result, `remove cells of ${name}`, { kind: "cellsRemoved", protector: name, cells });
  },

  async release(context, { protector, reason, isLost }) {
    const { options, calls, key } = context;
    const { namespace = "", name } = protector.metadata;
    const time = timeOf(context);
    // Somebody may have restored it, which no watch has shown yet.
    const found = isLost && (await lookFor(context, namespace, name));
    // One of somebody else's under its name is no reason to ask at full speed until the watch shows it.
    if (found) return found.kind === "later" ? later(WATCH_LAG_MS) : found;
    const confirmed = await confirmSource(context);
    if (confirmed.kind === "conflict" || confirmed.kind === "gone") return later(WATCH_LAG_MS);
    if (confirmed.kind !== "ok") return failedCall(context, confirmed, `confirm the source of ${name}`);
    const record = options.register.record.bind(options.register);
    const result = await release({ ...calls, record }, protector, reason, time, isLost);
    if (result.kind === "ok") options.protectors.released(protector);
    return finish(context, result, `release ${name}`, { kind: "released", source: key, protector: name, reason });
  },

  async adopt(context, { source, protector }) {
    const result = await patchSource(context, source, { annotations: { [PROTECT_ANNOTATION]: ADOPTED } });
    if (result.kind !== "ok") return failedCall(context, result, "have the source ask for protection");
    if (!isRecord(result.object.annotations) || !(PROTECT_ANNOTATION in result.object.annotations)) return UNDONE;
    tellBoth(context, "adopted", protector);
    return DONE;
  },

  async reportSource(context, { protector, state }) {
    const { options, key } = context;
    const { name, uid } = protector.metadata;
    // The write that follows it is repeated where others write the status.
    if (options.protectors.told?.get(uid) === state) return DONE;
    options.protectors.told?.set(uid, state);
    if (state === "deleting") tellBoth(context, "deletionHeld", protector);
    else options.onEvent({ kind: "sourceVanished", source: key, protector: name, uid });
    return DONE;
  },

  async setSourceState(context, { protector, state }) {
    const { name } = protector.metadata;
    const result = await setSourceState(context.calls, protector, state, timeOf(context));
    if (result.kind === "ok") context.options.protectors.told?.delete(protector.metadata.uid);
    return finishWrite(context, result, `note the source of ${name}`, "noted", name);
  },
};

/** Undefined where there is no such protector. One that is found counts from now on. */
async function lookFor(context: StepContext, namespace: string, name: string): Promise<ReconcileOutcome | undefined> {
  const found = await context.calls.api.getPodProtector(namespace, name, context.calls);
  if (found.kind === "gone") return undefined;
  if (found.kind !== "ok") return failedCall(context, found, `look for protector ${name}`);
  context.options.protectors.wrote(found.object);
  return later(1);
}

/**
 * The finalizer keeps a deleted protector in force, but the deletion can't be undone. So the finalizer is removed
 * without the mark of a release, and the protector is created again with its reservations. Where the apiserver rejects
 * the creation, such as while the CRD or the namespace is being deleted, the deleted protector stays.
 */
async function replaceDeleted(
  context: StepContext,
  { protector, object }: ReconcileStep<"replace">,
): Promise<ReconcileOutcome> {
  const { options, calls, key } = context;
  const { namespace = "", name, uid } = protector.metadata;
  const what = `replace protector ${name}`;
  const keep = (why: string): ReconcileOutcome => {
    options.onEvent({ kind: "kept", source: key, protector: name, uid, why });
    return later(REPLACE_AGAIN_MS);
  };
  const dryRun = { ...calls, dryRun: true };
  const tried = await calls.api.create(podProtectorPath(namespace), object, parsePodProtector, dryRun);
  if (tried.kind === "rejected") return keep(tried.message);
  // An apiserver that accepts the object answers with a conflict, because an object of the same name exists.
  if (tried.kind !== "conflict" && tried.kind !== "ok") return failedCall(context, tried, what);
  const last = withoutFinalizer(protector);
  const freed = await updateProtector(calls, last);
  if (freed.kind !== "ok") return failedCall(context, freed, what);
  const { finalizers = [] } = last.metadata;
  if (finalizers.length > 0) return keep(`it waits for the finalizers ${finalizers.join(", ")}`);
  // The update had the version as precondition, so its result is the last state of the protector.
  const restored = await restore(calls.api, object, freed.object, calls, holdText(context, protector));
  return finishWrite(context, restored, what, "replaced", name);
}

/** Emits one event about the source, and one about its protector. */
function tellBoth(
  { options, key, kind, source }: StepContext,
  what: "adopted" | "deletionHeld",
  { metadata: { namespace = "", name, uid } }: PodProtector,
): void {
  if (source === undefined) return;
  for (const about of [referenceTo(kind, source), { ...PROTECTOR_KIND, namespace, name, uid }])
    options.onEvent({ kind: what, source: key, protector: name, about });
}

/** The hold of cells that say how many pods the lost protector has there. */
function holdText({ options: { ports } }: StepContext, { spec }: PodProtector): string | undefined {
  return spec.countExpectedPods === true ? holdOf("Restored", ports.random.token(), ports.clock.nowMs()) : undefined;
}

function timeOf({ options }: StepContext): string {
  return new Date(options.ports.clock.nowMs()).toISOString();
}

/** Checks the message: the reason is Forbidden, as for a missing permission. */
function isNamespaceTerminating(result: ApiResult<unknown>): boolean {
  return result.kind === "rejected" && result.status === 403 && result.message.includes("is being terminated");
}

/**
 * A release is final, so it must not rely on a cache: a patch that changes nothing has the version of the source as
 * precondition. A late watch may show a deleted source after a new one was created with the same name.
 */
async function confirmSource(context: StepContext): Promise<ApiResult<unknown>> {
  const { source } = context;
  if (source === undefined) return { kind: "ok", object: undefined };
  return await patchSource(context, source, {});
}

/** Adds the generator's finalizer to a source or removes it, and changes nothing else. */
async function setFinalizer(
  context: StepContext,
  source: ProtectionSource,
  present: boolean,
): Promise<ApiResult<Metadata>> {
  const others = source.finalizers.filter((finalizer) => finalizer !== GENERATOR_FINALIZER);
  const finalizers = present ? [...others, GENERATOR_FINALIZER] : others;
  return await patchSource(context, source, { finalizers });
}

type Metadata = Readonly<Record<string, unknown>>;

function metadataOf(raw: unknown): Metadata {
  return isRecord(raw) && isRecord(raw.metadata) ? raw.metadata : {};
}

function includes(list: unknown, item: string): boolean {
  return Array.isArray(list) && list.includes(item);
}

/** Changes the metadata of a source, with the version that was read as precondition, and returns what was stored. */
async function patchSource(
  { calls, kind }: StepContext,
  { namespace, name, uid, resourceVersion }: ProtectionSource,
  metadata: object,
): Promise<ApiResult<Metadata>> {
  const path = `${collectionPath(kind, namespace)}/${name}`;
  const body = { metadata: { uid, resourceVersion, ...metadata } };
  const parse = (raw: unknown): Metadata => {
    const stored = metadataOf(raw);
    // A proxy may mix up responses: one about another source confirms nothing of this one.
    if ((stored.uid ?? uid) !== uid) throw new Error("the answer is about another object");
    return stored;
  };
  return await calls.api.patch(path, "application/merge-patch+json", body, parse, calls);
}

/** {@link finish} for a call that returns the stored protector. */
function finishWrite(
  context: StepContext,
  result: ApiResult<PodProtector>,
  what: string,
  kind: "created" | "updated" | "restored" | "replaced" | "noted",
  protector: string,
): ReconcileOutcome {
  const { protectors } = context.options;
  const isNew = kind !== "updated" && kind !== "noted";
  if (isNew && result.kind === "unavailable") protectors.unanswered?.set(context.key, protector);
  if (result.kind === "ok") {
    protectors.wrote(result.object);
    if (protectors.unanswered?.get(context.key) === protector) protectors.unanswered.delete(context.key);
  }
  return finish(context, result, what, { kind, source: context.key, protector });
}

/** Emits `event`, or the failure of the step that does `what`. */
function finish(
  context: StepContext,
  result: ApiResult<unknown>,
  what: string,
  event: GeneratorEvent,
): ReconcileOutcome {
  if (result.kind !== "ok") return failedCall(context, result, what);
  context.options.onEvent(event);
  return DONE;
}

class StepError extends Error {
  override readonly name = "StepError";
  readonly tag: ApiFailure["kind"];
  /** The apiserver, a policy, a quota or a webhook keeps the write from being made, so that people must act. */
  readonly isRefusal: boolean;
  constructor(failure: ApiFailure, message: string, options?: ErrorOptions) {
    super(message, options);
    this.tag = failure.kind;
    this.isRefusal =
      failure.kind === "rejected" || (failure.kind === "unavailable" && uncalledWebhook(failure) !== undefined);
  }
}

export function isRefused(outcome: StepOutcome): outcome is ReconcileOutcome & { readonly kind: "failed" } {
  return outcome.kind === "failed" && outcome.error instanceof StepError && outcome.error.isRefusal;
}

export function isRejected({ error }: ReconcileOutcome & { readonly kind: "failed" }): boolean {
  return error instanceof StepError && error.tag === "rejected";
}

/**
 * Emits the failure. Every call is retried: after a conflict, the watch delivers the newer version, and permissions and
 * other webhooks may change without a change of the object.
 */
export function failedCall(
  { options, key }: Pick<StepContext, "options" | "key">,
  failure: ApiFailure,
  what: string,
): ReconcileOutcome {
  const cause = failure.kind === "unavailable" ? { cause: failure.error } : undefined;
  const error = new StepError(failure, `${what}: ${reasonOf(failure)}`, cause);
  options.onEvent({ kind: "failed", source: key, tag: failure.kind, error });
  return failed(error, true, failure.kind === "unavailable" ? failure.retryAfterMs : undefined);
}

function reasonOf(failure: ApiFailure): string {
  switch (failure.kind) {
    case "conflict":
      return `the object has changed meanwhile: ${failure.message}`;
    case "gone":
      return "the object is gone";
    case "rejected":
      return `the apiserver refused (${failure.status}): ${failure.message}`;
    case "unavailable": {
      const webhook = uncalledWebhook(failure);
      if (webhook === undefined) return "the apiserver gave no answer";
      return `the apiserver can't call the admission webhook ${webhook}, and makes no such write`;
    }
  }
}
