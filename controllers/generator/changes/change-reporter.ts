/** Reports each change of a protector as an Event and a log line, with the writer if the API shows it. */
import * as v from "valibot";
import type { ApiClient } from "../../../shared/kube/client/api-client.ts";
import { podProtectorPath } from "../../../shared/kube/client/api-path.ts";
import type { Clock } from "../../../shared/runtime/clock.ts";
import type { PodProtector } from "../../../shared/schema/podprotector.ts";
import type { GeneratorSinks } from "../observe.ts";
import { PROTECTOR_KIND } from "../protectors/events.ts";
import { CHANGES } from "./change-reasons.ts";
import type { ProtectorChange } from "./protector-changes.ts";

interface ChangeReporterOptions extends Pick<GeneratorSinks, "events" | "log" | "metrics"> {
  readonly api: Pick<ApiClient, "get">;
  readonly clock: Pick<Clock, "nowMs">;
  /** The field manager of this process. */
  readonly ownName: string;
}

const TIMEOUT_MS = 5_000;
/** Concurrent reads of the managers of an object; beyond this, changes are reported without a manager. */
const MAX_QUESTIONS = 8;

const FieldSet = v.record(v.string(), v.unknown());
const ManagedObject = v.looseObject({
  metadata: v.looseObject({
    generation: v.optional(v.number()),
    managedFields: v.optional(
      v.array(
        v.looseObject({
          manager: v.optional(v.string()),
          time: v.optional(v.string()),
          fieldsV1: v.optional(v.looseObject({ "f:spec": v.optional(FieldSet) })),
        }),
      ),
    ),
  }),
});
type ManagedObject = v.InferOutput<typeof ManagedObject>;

/** The manager that last wrote this field of the spec. */
function writerOf(raw: ManagedObject, field: string): string | undefined {
  const owners = (raw.metadata.managedFields ?? []).filter(
    ({ fieldsV1 }) => fieldsV1?.["f:spec"]?.[`f:${field}`] !== undefined,
  );
  return owners.sort((one, other) => ((one.time ?? "") < (other.time ?? "") ? 1 : -1))[0]?.manager;
}

/**
 * Returns a function that reports the changes between two versions of a protector. The function never throws, and
 * returns before the report is written.
 */
export function changeReporter(options: ChangeReporterOptions) {
  const { clock, events, log, metrics, ownName } = options;
  const counter = metrics.counter({
    name: "generator_protector_changes_total",
    help: "Changes of protectors that were told as Events, by what changed.",
    labels: { change: CHANGES },
  });
  let questions = 0;
  const ask = async (after: PodProtector, field: string): Promise<string | undefined> => {
    if (questions >= MAX_QUESTIONS) return undefined;
    questions += 1;
    const { namespace = "", name, generation } = after.metadata;
    const path = podProtectorPath(namespace, name);
    const parse = (raw: unknown): ManagedObject => v.parse(ManagedObject, raw);
    const result = await options.api.get(path, parse, { timeoutMs: TIMEOUT_MS, managedFields: true });
    questions -= 1;
    // A later version may have other managers.
    const isSame = result.kind === "ok" && result.object.metadata.generation === generation;
    return isSame ? writerOf(result.object, field) : undefined;
  };
  const tell = (about: PodProtector, { reason, isWarning, message, series }: ProtectorChange, by?: string): void => {
    const { namespace = "", name, uid } = about.metadata;
    const text = by === undefined ? message : `${message}; by ${by}`;
    // The generator lowers a promise only because its workload asks for fewer pods.
    const type = isWarning && !(reason === "PromiseLowered" && by === ownName) ? "Warning" : "Normal";
    counter.inc({ change: reason });
    log.info({ protector: `${namespace}/${name}`, change: reason, message: text }, "A protector has changed");
    const regarding = { ...PROTECTOR_KIND, namespace, name, uid };
    events.record({ regarding, type, reason, message: text, ...(series === undefined ? {} : { series }) });
  };
  // The texts are loaded with the first change.
  let texts: Promise<typeof import("./protector-changes.ts")> | undefined;
  return (before: PodProtector | undefined, after: PodProtector | undefined): void => {
    const about = after ?? before;
    if (about === undefined) return;
    const nowMs = clock.nowMs();
    texts ??= import("./protector-changes.ts");
    void texts.then(({ changesOf }) => {
      for (const change of changesOf(before, after, nowMs)) {
        if (change.field === undefined || after === undefined) tell(about, change, change.by);
        else void ask(after, change.field).then((by) => tell(about, change, by));
      }
    });
  };
}
