/** `why`: would a deletion of this pod be allowed now? If not, which reservations use the quota, and since when? */

import {
  availableSinceMs,
  isAvailable,
  isFinished,
  maturityCutoffMs,
} from "../../shared/decide/availability/availability.ts";
import { compileSelector } from "../../shared/decide/availability/selector.ts";
import type { SpecFacts } from "../../shared/decide/availability/spec-facts.ts";
import { decide } from "../../shared/decide/quota.ts";
import { parseProtector } from "../../shared/decide/state/protector-state.ts";
import { podPath } from "../../shared/kube/client/api-path.ts";
import { type Pod, parseAnyPod } from "../../shared/schema/pod.ts";
import { type PodProtector, STALE_AFTER_MS } from "../../shared/schema/podprotector.ts";
import {
  ask,
  cellOfWebhookConfiguration,
  covering,
  type DisruptionKind,
  type DryRunResult,
  decisionText,
  requestFor,
  webhookConfigurationOf,
} from "./disruption-dry-run.ts";
import { holdText } from "./explain/explanations.ts";
import type { ClusterClient } from "./invocation/cluster.ts";
import { CELL, type Command, type Context, objectName } from "./invocation/command.ts";
import { CommandError, EXIT, type ExitCode, orElse } from "./invocation/errors.ts";
import { age, fields, inLine, plural, table } from "./invocation/output.ts";
import { reservationText } from "./status.ts";
import { isUnprotected } from "./unprotected.ts";
import { isOverdue, type ProtectorView, type ReservationView, viewProtector, viewReservation } from "./view.ts";

const MAX_UNAVAILABLE_SHOWN = 10;

/** The decision of one protector about the pod, and the reason. */
export interface ProtectorExplanation {
  readonly view: ProtectorView;
  /** Undefined where the cell id of the cluster is not known. */
  readonly allowed: boolean | undefined;
  readonly text: string;
  /** Reservations of other pods, which use quota, oldest first. */
  readonly holders: readonly ReservationView[];
  /** Counted pods of this cluster that are not available, and why. */
  readonly unavailable: readonly { readonly pod: string; readonly why: string }[];
}

export interface Explanation {
  /** The cluster did not ask the webhook about a pod that a protector covers. */
  readonly isUnprotected: boolean;
  readonly kind: DisruptionKind;
  readonly pod: Pick<Pod, "namespace" | "name" | "uid">;
  readonly cluster: string;
  readonly cell: string | undefined;
  readonly answer: DryRunResult;
  readonly opinions: readonly ProtectorExplanation[];
  /** Why the protectors could not be read: a user in a worker cluster may have no access to the core. */
  readonly unread?: string;
}

function unavailableReason(pod: Pod, spec: SpecFacts): string {
  if (availableSinceMs(pod, spec) !== undefined) return `ready for less than ${spec.minReadySeconds}s`;
  if (pod.terminating) return "terminating";
  if (pod.phase !== "Running") return pod.phase;
  const missing = pod.conditions.filter(({ status }) => !status).map(({ type }) => type);
  return missing.includes("Ready") ? "not ready" : missing.length > 0 ? `not ${missing.join(", ")}` : "not available";
}

/**
 * True for a reservation of `pod`. Its predecessor, and a pod of another cell, may have the same name: as in a
 * StatefulSet. A packed record has only a hash of the UID, by which the ledger finds that of the pod.
 */
function isOf(
  { uid, pod: name, cell, operation, firstAgeMs }: ReservationView,
  pod: Pod,
  known: string | undefined,
  ofPod: (cell: string) => readonly ReservationView[],
): boolean {
  if (uid !== undefined) return uid === pod.uid;
  if (name !== pod.name || (known !== undefined && cell !== known)) return false;
  return ofPod(cell).some((own) => own.operation === operation && own.firstAgeMs === firstAgeMs);
}

/** The decision of one protector about the pod, by its stored state. Pure. */
export function opinionOf(
  protector: PodProtector,
  pod: Pod,
  kind: DisruptionKind,
  cell: string | undefined,
  pods: readonly Pod[],
  nowMs: number,
): ProtectorExplanation {
  const view = viewProtector(protector, nowMs);
  const state = parseProtector(protector);
  const counted = compileSelector(protector.spec.aggregationSelector ?? protector.spec.selector, "fails");
  const unavailable = pods
    .filter((one) => one.uid !== pod.uid && counted.matches(one.labels) && !isFinished(one))
    .filter((one) => !isAvailable(one, state.spec, maturityCutoffMs(nowMs, state.spec)))
    .map((one) => ({ pod: one.name, why: unavailableReason(one, state.spec) }));
  const known = cell ?? (view.cells.length === 1 ? view.cells[0]?.cell : undefined);
  const ofPod = (id: string): readonly ReservationView[] => {
    const own = state.cells.get(id)?.ledger.get(pod.uid, pod.name);
    return own === undefined ? [] : viewReservation(id, own, nowMs);
  };
  const holders = view.reservations.filter((one) => one.weight > 0 && !isOf(one, pod, known, ofPod));
  if (known === undefined) {
    const text = "it is not known which cell this cluster is: name it by --cell";
    return { view, allowed: undefined, text, holders, unavailable };
  }
  const decision = decide(state, requestFor(pod, kind, known, nowMs));
  return { view, allowed: decision.allowed, text: decisionText(decision), holders, unavailable };
}

const VERDICTS: Readonly<Record<DryRunResult["verdict"], string>> = {
  admitted: "yes: it would be allowed now",
  refused: "no: it would be denied now",
  unanswered: "no: the webhook has not decided",
  forbidden: "not known: your user may not ask",
  rejected: "no: the apiserver refuses it for another reason",
};

/** `flags`: those that find the same clusters, for printed commands. */
export function explanationText(explanation: Explanation, flags = ""): string {
  const { kind, pod, answer, opinions, unread, cluster, cell, isUnprotected } = explanation;
  // Clients repeat some refusals that nothing ends by itself: the webhook's words are more exact.
  const passes = answer.retryAfterSeconds !== undefined && answer.message.includes(" by itself");
  const parts = [
    isUnprotected
      ? `UNPROTECTED: ${cluster} does not call the webhook before pods of namespace ${pod.namespace} are deleted. ` +
        `See kubectl podseidon doctor${flags}\n\n`
      : "",
    fields([
      ["Pod", `${pod.namespace}/${pod.name} in ${cluster}${cell === undefined ? "" : ` (cell ${cell})`}`],
      [
        kind === "delete" ? "Deletion" : "Eviction",
        `${VERDICTS[answer.verdict]}${passes ? "; this passes by itself" : ""}`,
      ],
      ...(answer.message === "" ? [] : [["Answer", answer.message] as const]),
      ...answer.warnings.map((warning) => ["Warning", warning] as const),
    ]),
    opinions.length === 0 && unread === undefined ? "\nNo protector covers this pod.\n" : "",
    unread === undefined ? "" : `\nThe protectors could not be read, so nothing more is known: ${inLine(unread)}\n`,
    ...opinions.map((opinion) => opinionText(opinion, cell, flags)),
  ];
  return parts.join("");
}

function opinionText(opinion: ProtectorExplanation, own: string | undefined, flags: string): string {
  const { view, allowed, text, holders, unavailable } = opinion;
  const word = allowed === undefined ? "?" : allowed ? "agrees" : "refuses";
  const lines = [
    `\nPodProtector ${view.namespace}/${view.name}   ${word}: ${text}\n`,
    `  ${plural(view.required, "pod")} must be ${view.counted}; ${view.available} of ${view.total} ` +
      `are, ${view.reserved} reserved, ${plural(view.allowed, "disruption")} allowed\n`,
  ];
  if (allowed === false && holders.length > 0)
    lines.push(reservationText(holders).replace("\nReservations", "  Held by"));
  if (allowed === false && unavailable.length > 0) {
    const rows = unavailable.slice(0, MAX_UNAVAILABLE_SHOWN).map((one) => [one.pod, one.why]);
    const more = unavailable.length - rows.length;
    lines.push(`  Not available in this cluster:\n${table(["POD", "WHY"], rows, "    ")}`);
    if (more > 0) lines.push(`    and ${more} more\n`);
  }
  for (const cell of view.cells) {
    if (cell.state === "ok" || cell.state === "removed") continue;
    const since = cell.holdAgeMs === undefined ? "" : ` for ${age(cell.holdAgeMs)}`;
    const { heartbeatAgeMs } = cell;
    const beat =
      heartbeatAgeMs === undefined ? "it has sent no heartbeat" : `its last heartbeat was ${age(heartbeatAgeMs)} ago`;
    lines.push(`  Cell ${cell.cell} is ${cell.state}${since}; ${beat}\n`);
    if (cell.hold !== undefined) lines.push(`    ${holdText(cell.hold, isOverdue(cell))}\n`);
    if (own !== undefined && cell.cell !== own && (cell.silentMs ?? 0) > STALE_AFTER_MS)
      lines.push(
        `    If ${cell.cell} is gone for good: kubectl podseidon remove-cell ${cell.cell} --all-namespaces${flags}\n`,
      );
  }
  return lines.join("");
}

async function run(context: Context, args: readonly string[]): Promise<ExitCode> {
  const name = objectName(args, "pod");
  const kind: DisruptionKind = context.is("evict") ? "evict" : "delete";
  const named = context.cell;
  const [cluster, core, namespace] = await Promise.all([context.cluster(), context.core(), context.namespace()]);
  const explanation = await context.progress.during(`asking ${cluster.name} about pod ${namespace}/${name}`, () =>
    explain(cluster, core, { namespace, name, kind, named }),
  );
  const [flags] = await context.flagsFor(cluster);
  context.print(explanation, explanationText(explanation, flags));
  const { answer, isUnprotected, unread } = explanation;
  if (answer.verdict === "forbidden") return EXIT.unknown;
  if (answer.verdict !== "admitted" || isUnprotected) return EXIT.no;
  return unread === undefined ? EXIT.yes : EXIT.unknown;
}

interface Question {
  readonly namespace: string;
  readonly name: string;
  readonly kind: DisruptionKind;
  /** The cell by `--cell`. */
  readonly named: string | undefined;
}

async function explain(
  cluster: ClusterClient,
  core: ClusterClient,
  { namespace, name, kind, named }: Question,
): Promise<Explanation> {
  const raw = await cluster.find(podPath(namespace, name));
  if (raw === undefined) {
    throw new CommandError(`there is no pod ${namespace}/${name} in ${cluster.name}; see -n and --context`);
  }
  const pod = parseAnyPod(raw);
  const [answer, configuration, protectors, pods] = await Promise.all([
    ask(cluster, kind, pod),
    webhookConfigurationOf(cluster),
    core.protectors(namespace).catch(orElse(({ message }) => message)),
    // A user who may delete a pod may lack the permission to list all.
    cluster.list(podPath(namespace), {}, parseAnyPod).catch(orElse(() => [])),
  ]);
  const cell = cellOfWebhookConfiguration(configuration) ?? named;
  const [known, unread] = typeof protectors === "string" ? [[], protectors] : [protectors];
  const opinions = covering(known, pod).map((one) => opinionOf(one, pod, kind, cell, pods, core.nowMs()));
  const about = { pod: { namespace, name, uid: pod.uid }, cluster: cluster.name, cell };
  const isAdmitted = answer.verdict === "admitted" && opinions.length > 0;
  const isContradicted = configuration === "none" && opinions.some(({ allowed }) => allowed === false);
  const unprotected = isAdmitted && (isContradicted || (await isUnprotected(cluster, configuration, namespace)));
  return { kind, ...about, answer, opinions, isUnprotected: unprotected, ...(unread !== undefined && { unread }) };
}

export const why: Command = {
  name: "why",
  usage: "POD",
  summary: "Would a deletion of the pod be allowed now, and if not, who holds it?",
  doing: "looking for the cluster",
  description:
    "Asks the webhook by a dry run through kube-apiserver, which changes nothing. Then reads from the protectors " +
    "which deletions hold their quota, and since when. A user who may not read protectors gets only the webhook's " +
    "answer. Exit code 0: the deletion would be allowed. 1: it would be denied, or the webhook is not asked about " +
    "a protected pod. 2: not known, because the user may not delete the pod or may not read the protectors.",
  flags: {
    evict: { type: "boolean", help: "Ask about an eviction, as kubectl drain makes them." },
    ...CELL,
  },
  arity: [1, 1],
  completes: "pods",
  run,
};
