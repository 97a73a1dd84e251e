/** Whether `doctor` can look at a cluster, and what keeps it from that. */
import * as v from "valibot";
import type { ApiResponse } from "../../../shared/kube/client/transport.ts";
import { messageOf } from "../../../shared/runtime/errors.ts";
import { type ClusterClient, isCredentials, statusOf } from "../invocation/cluster.ts";
import { CommandError, orElse } from "../invocation/errors.ts";
import { clockFinding, type DoctorFinding, type Finding, ok, problem, unknown, warning } from "./findings.ts";

/** The oldest minor version of Kubernetes that this version was tested with. */
const OLDEST_MINOR = 30;
const Version = v.looseObject({ gitVersion: v.string(), minor: v.string() });

const LOG_IN = "the installation may be in order: log in to this context again (kubectl auth whoami)";

interface Reached {
  readonly findings: readonly Finding[];
  readonly answers: boolean;
}

/** Asks for the version, which shows whether the apiserver answers, and how its clock is. */
export async function reach(cluster: ClusterClient, nowMs: () => number): Promise<Reached> {
  const silent = (finding: Finding): Reached => ({ findings: [finding], answers: false });
  let response: ApiResponse;
  try {
    response = await cluster.raw("GET", "/version");
  } catch (error) {
    if (error instanceof CommandError && isCredentials(error.cause))
      return silent(unknown("apiserver", messageOf(error), LOG_IN));
    return silent(problem("apiserver", messageOf(error), "is the context right, and the cluster up?"));
  }
  const parsed = v.safeParse(v.pipe(v.string(), v.parseJson(), Version), response.body);
  if (response.status !== 200 || !parsed.success)
    return silent(problem("apiserver", statusOf(response).message, "is the context right?"));
  const { gitVersion, minor } = parsed.output;
  const old = Number.parseInt(minor, 10) < OLDEST_MINOR;
  const version = old
    ? warning("apiserver", `${gitVersion}, older than what this version is written for`, "upgrade the cluster")
    : ok("apiserver", gitVersion);
  return { findings: [version, clockFinding(response.headers.date, nowMs())], answers: true };
}

/** True also where the user may not read namespaces. */
export async function hasNamespace(cluster: ClusterClient, name: string): Promise<boolean> {
  return (await cluster.find(`/api/v1/namespaces/${name}`).catch(orElse(() => name))) !== undefined;
}

/** The cluster, or why this user can't reach it. The other clusters are checked anyway. */
export function reachable(name: string, cluster: Promise<ClusterClient>): Promise<ClusterClient | DoctorFinding> {
  return cluster.catch(orElse(({ message }) => ({ cluster: name, ...unknown("kubeconfig", message, "") })));
}
