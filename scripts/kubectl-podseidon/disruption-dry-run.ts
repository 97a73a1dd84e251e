/**
 * May a pod be disrupted now? A dry run of the deletion or eviction through the cluster's apiserver asks the webhook,
 * and writes nothing. The reasons are computed from the protectors by the webhook's decision code.
 */

import * as v from "valibot";
import { compileSelector, ignoredBy } from "../../shared/decide/availability/selector.ts";
import { readClaim } from "../../shared/decide/bypass-claim.ts";
import type { Decision, DisruptionRequest } from "../../shared/decide/quota.ts";
import { CRITERIA, type Criterion } from "../../shared/decide/state/estimate.ts";
import { podPath } from "../../shared/kube/client/api-path.ts";
import type { ApiResponse } from "../../shared/kube/client/transport.ts";
import {
  FORCE_DELETE_ANNOTATION,
  HEALTH_CRITERION_ANNOTATION,
  NO_PROTECT_ANNOTATION,
} from "../../shared/schema/annotations.ts";
import { valueAt } from "../../shared/schema/check.ts";
import type { Pod } from "../../shared/schema/pod.ts";
import type { PodProtector } from "../../shared/schema/podprotector.ts";
import { formatMs } from "../../shared/schema/time.ts";
import { type ClusterClient, type StatusText, statusOf } from "./invocation/cluster.ts";

/** The default of webhook and aggregator. Only affects deletions that were repeated for minutes. */
const SETTLE_MS = 75_000;

export type DisruptionKind = "delete" | "evict";

export interface DryRunResult extends StatusText {
  readonly verdict:
    | "admitted"
    /** 429: not now. */
    | "refused"
    /** The webhook could not be reached, or failed; with failurePolicy Fail, this refuses, too. */
    | "unanswered"
    /** The user may not do it, so nobody was asked. */
    | "forbidden"
    /** Something else refused: another webhook, the pod is gone. */
    | "rejected";
  /** The webhook's warnings beside its verdict: a suspended protector, dry-run mode. */
  readonly warnings: readonly string[];
}

/** Asks the webhook; `uid` is the precondition. */
export async function ask(
  cluster: ClusterClient,
  kind: DisruptionKind,
  pod: Pick<Pod, "namespace" | "name" | "uid">,
): Promise<DryRunResult> {
  const { namespace, name, uid } = pod;
  const options = { apiVersion: "v1", kind: "DeleteOptions", dryRun: ["All"], preconditions: { uid } };
  if (kind === "delete") return answerOf(await cluster.raw("DELETE", podPath(namespace, name), options));
  const eviction = {
    apiVersion: "policy/v1",
    kind: "Eviction",
    metadata: { namespace, name },
    deleteOptions: { dryRun: ["All"], preconditions: { uid } },
  };
  return answerOf(await cluster.raw("POST", `${podPath(namespace, name, "eviction")}?dryRun=All`, eviction));
}

const ABSENT_POD = "podseidon-doctor-asks-about-no-pod";

/** A dry run of an eviction of a pod that does not exist. If the cluster asks the webhook, the webhook responds. */
export function askAboutNoPod(cluster: Pick<ClusterClient, "raw">, namespace: string): Promise<ApiResponse> {
  const body = { apiVersion: "policy/v1", kind: "Eviction", metadata: { namespace, name: ABSENT_POD } };
  return cluster.raw("POST", `${podPath(namespace, ABSENT_POD, "eviction")}?dryRun=All`, body);
}

const Answered = v.pipe(v.string(), v.parseJson(), v.looseObject({}));

export function answerOf(response: ApiResponse): DryRunResult {
  const warnings = [...(response.headers.warning ?? "").matchAll(/299 \S+ "((?:[^"\\]|\\.)*)"/g)].map(([, text = ""]) =>
    text.replaceAll(/\\(.)/g, "$1"),
  );
  // Something in between answers 200 with a page to log in.
  if (response.status < 300 && v.is(Answered, response.body)) {
    return { verdict: "admitted", message: "", retryAfterSeconds: undefined, causes: [], warnings };
  }
  const status = statusOf(response);
  return { verdict: verdictOf(response.status, status.message), ...status, warnings };
}

function verdictOf(status: number, message: string): Exclude<DryRunResult["verdict"], "admitted"> {
  if (status === 429) return "refused";
  if (status < 300 || status >= 500) return "unanswered";
  // The authorizer's words; a webhook's and a policy's refusal may have this status, too.
  return status === 403 && / is forbidden: User "[^"]*" cannot /.test(message) ? "forbidden" : "rejected";
}

/** The protectors whose selector covers the pod. */
export function covering(protectors: readonly PodProtector[], pod: Pod): readonly PodProtector[] {
  return protectors.filter(
    ({ metadata, spec }) =>
      metadata.namespace === pod.namespace &&
      compileSelector(spec.selector, "matches").matches(pod.labels) &&
      ignoredBy(spec.ignoredPodSelector)?.(pod.labels) !== true,
  );
}

export function requestFor(pod: Pod, kind: DisruptionKind, cell: string, nowMs: number): DisruptionRequest {
  const claim = readClaim(pod.annotations?.[FORCE_DELETE_ANNOTATION]);
  const wanted = pod.annotations?.[HEALTH_CRITERION_ANNOTATION];
  const criterion: Criterion = CRITERIA.find((known) => known === wanted) ?? "Available";
  return {
    cell,
    operation: kind === "delete" ? "DELETE" : "EVICT",
    nonce: "question",
    pod,
    forced: claim.kind === "claimed" && (claim.untilMs === undefined || nowMs < claim.untilMs),
    noProtect: pod.annotations?.[NO_PROTECT_ANNOTATION] === "true",
    criterion,
    startTime: formatMs(nowMs),
    staleRefreshBefore: formatMs(nowMs - 2 * SETTLE_MS),
  };
}

export function decisionText(decision: Decision): string {
  const { facts } = decision;
  const counted = (facts.healthCriterion ?? "Available").toLowerCase();
  const counts = `needs ${facts.minAvailable}, ${facts.available} ${counted}, ${facts.reserved} reserved`;
  if (decision.allowed) return `${ALLOWED[decision.reason]} (${counts})`;
  return `${REFUSED[decision.cause]} (${counts})`;
}

const ALLOWED: Readonly<Record<Extract<Decision, { allowed: true }>["reason"], string>> = {
  Reserved: "there is quota",
  Repeated: "its deletion was allowed before and is still under way",
  PinnedImmature: "it has not been ready for long enough to be counted",
  PinnedUnavailable: "it is not available",
  PinnedPending: "it is Pending",
  Unavailable: "it is not available",
  Pending: "it is Pending",
  Finished: "it is finished",
  Terminating: "it is on its way out already",
  Mirror: "it is the mirror of a static pod",
  Forced: "its force-delete annotation lets it go",
  Suspended: "the protector is suspended",
  NotEnforced: "the protector only warns: it would be denied",
  NothingPromised: "its protector's minAvailable is 0",
  NotProtected: "the protector does not protect from this operation",
};

const REFUSED: Readonly<Record<Extract<Decision, { allowed: false }>["cause"], string>> = {
  AtMinimum: "no more pods are available than must be",
  NotReady: "the spare pods have the counted gate, and are not Ready yet",
  Reserved: "the spare pods are reserved by disruptions under way",
  OthersShare: "what the caller reserved did not happen, and the rest is kept for others",
  UnhealthyBudget: "unhealthyPodPolicy keeps unavailable pods until the protector is healthy",
  NotCounted: "no aggregator has counted this cell yet",
  OnHold: "the cell is on hold because admission history may have been lost",
  ConcurrentLag: "as many disruptions are under way as maxConcurrentLag allows",
  HistoryFull: "the admission history is full",
  PreActivity: "a pre-activity annotation of the pod holds its disruption back",
  TooManyTogether: "more pods would go at once than the protector can spare",
  RefreshedTooLong: "its deletion was repeated for too long and has to settle first",
};

const Webhooks = v.fallback(
  v.array(
    v.looseObject({
      clientConfig: v.looseObject({
        url: v.optional(v.string()),
        service: v.nullish(v.looseObject({ path: v.optional(v.string()) })),
      }),
    }),
  ),
  [],
);

export const VALIDATING = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";

/** The stored webhook configuration of the cluster; undefined when the user may not read it. */
export async function webhookConfigurationOf(cluster: ClusterClient): Promise<unknown> {
  try {
    return (await cluster.find(`${VALIDATING}/podseidon`)) ?? "none";
  } catch {
    return undefined;
  }
}

/** The cell id in a webhook configuration; undefined without one. */
export function cellOfWebhookConfiguration(raw: unknown): string | undefined {
  for (const { clientConfig } of v.parse(Webhooks, valueAt(raw, "webhooks"))) {
    const { url, service } = clientConfig;
    const path = service?.path ?? (url !== undefined && URL.canParse(url) ? new URL(url).pathname : "");
    const cell = path.replace(/^\/(?:~|secret-)[^/]*/, "").split("/")[2];
    if (cell !== undefined && cell !== "") return decodeURIComponent(cell);
  }
  return undefined;
}
