/** `doctor`: is the installation in order? Reads, asks with dry runs, and changes nothing. */

import * as v from "valibot";
import { corePath, podPath } from "../../shared/kube/client/api-path.ts";
import type { ApiResponse } from "../../shared/kube/client/transport.ts";
import { KUBECONFIG_KEY } from "../../shared/kube/credentials/account-token.ts";
import { AGGREGATOR_LEASE, GENERATOR_LEASE, GROUP, PLURAL } from "../../shared/schema/annotations.ts";
import {
  cellFindings,
  certificateFinding,
  clockFinding,
  crdFinding,
  type DoctorFinding,
  deploymentFindings,
  type Finding,
  findingsText,
  leaseFinding,
  ok,
  problem,
  protectorFindings,
  unknown,
  warning,
} from "./findings.ts";
import { type ClusterClient, statusOf } from "./invocation/cluster.ts";
import { type Command, type Context, SYSTEM_NAMESPACE } from "./invocation/command.ts";
import { EXIT, type ExitCode, messageOf } from "./invocation/errors.ts";
import {
  ADMISSION_API,
  hasCellAccounts,
  POLICIES,
  policyFinding,
  type StoredPolicy,
  servesPolicies,
  WORKLOAD_POLICY,
  workloadPolicyFinding,
} from "./policy-findings.ts";
import { cellOfWebhookConfiguration, VALIDATING } from "./question.ts";
import { KUBECONFIG_SECRETS, tokenFinding } from "./token-findings.ts";
import { type ProtectorView, viewProtector } from "./view.ts";
import { webhookConfigurationFindings } from "./webhook-configuration-findings.ts";

const MUTATING = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations";
const ABSENT_POD = "podseidon-doctor-asks-about-no-pod";
/** The oldest that this version was tested with. */
const OLDEST_MINOR = 30;

const Secret = v.looseObject({ data: v.optional(v.record(v.string(), v.string()), {}) });
const Version = v.looseObject({ gitVersion: v.string(), minor: v.string() });

async function reach(cluster: ClusterClient, nowMs: () => number): Promise<readonly Finding[]> {
  let response: ApiResponse;
  try {
    response = await cluster.raw("GET", "/version");
  } catch (error) {
    return [problem("apiserver", messageOf(error), "is the context right, and the cluster up?")];
  }
  const parsed = v.safeParse(v.pipe(v.string(), v.parseJson(), Version), response.body);
  if (response.status !== 200 || !parsed.success)
    return [problem("apiserver", statusOf(response).message, "is the context right?")];
  const { gitVersion, minor } = parsed.output;
  const old = Number.parseInt(minor, 10) < OLDEST_MINOR;
  const version = old
    ? warning("apiserver", `${gitVersion}, older than what this version is written for`, "upgrade the cluster")
    : ok("apiserver", gitVersion);
  return [version, clockFinding(response.headers.date, nowMs())];
}

async function storedPolicy(core: ClusterClient, name: string): Promise<StoredPolicy> {
  const policy = await core.find(`${ADMISSION_API}/validatingadmissionpolicies/${name}`);
  const binding = await core.find(`${ADMISSION_API}/validatingadmissionpolicybindings/${name}`);
  return { name, policy, binding };
}

class Doctor {
  readonly #context: Context;
  readonly #core: ClusterClient;
  readonly #system: string;
  readonly findings: DoctorFinding[] = [];

  constructor(context: Context, core: ClusterClient) {
    this.#context = context;
    this.#core = core;
    this.#system = context.systemNamespace;
  }

  #add(cluster: ClusterClient, found: readonly Finding[]): void {
    for (const one of found) this.findings.push({ cluster: cluster.name, ...one });
  }

  /** Adds what `look` finds. A check that can't be made is a finding, too. */
  async #check(
    cluster: ClusterClient,
    check: string,
    look: () => Promise<Finding | readonly Finding[]>,
  ): Promise<void> {
    try {
      this.#add(cluster, [await look()].flat());
    } catch (error) {
      const advice = "see whether your user may read this (kubectl auth can-i)";
      this.#add(cluster, [unknown(check, messageOf(error), advice)]);
    }
  }

  /** Looks at the core cluster; returns its protectors, which the checks of the other clusters need. */
  async core(): Promise<readonly ProtectorView[]> {
    const core = this.#core;
    const reached = await reach(core, () => this.#context.nowMs());
    this.#add(core, reached);
    if (reached[0]?.level === "problem") return [];
    let views: readonly ProtectorView[] = [];
    const crd = `/apis/apiextensions.k8s.io/v1/customresourcedefinitions/${PLURAL}.${GROUP}`;
    await this.#check(core, "crd", async () => crdFinding(await core.find(crd)));
    await this.#check(core, "protectors", async () => {
      views = (await core.protectors(undefined)).map((one) => viewProtector(one, this.#context.nowMs()));
      return [...protectorFindings(views), ...cellFindings(views)];
    });
    await this.#check(core, "generator", () => this.#lease(core, "generator", GENERATOR_LEASE));
    await this.#check(core, "cell policies", () => this.#policies(core));
    await this.#check(core, "workload deletions", async () =>
      workloadPolicyFinding(await storedPolicy(core, WORKLOAD_POLICY)),
    );
    await this.#check(core, "permissions", () => this.#permissions(core, CORE_PERMISSIONS));
    return views;
  }

  /** A cluster that has pods. */
  async cell(cluster: ClusterClient, views: readonly ProtectorView[]): Promise<void> {
    if (cluster !== this.#core) {
      const reached = await reach(cluster, () => this.#context.nowMs());
      this.#add(cluster, reached);
      if (reached[0]?.level === "problem") return;
    }
    const deployments = `/apis/apps/v1/namespaces/${this.#system}/deployments`;
    await this.#check(cluster, "webhook configuration", () => this.#webhookConfiguration(cluster, views));
    await this.#check(cluster, "webhook", () => this.#answers(cluster, views));
    await this.#check(cluster, "serving certificate", () => this.#serving(cluster));
    await this.#check(cluster, "core token", () => this.#tokens(cluster));
    await this.#check(cluster, "aggregator", () => this.#lease(cluster, "aggregator", AGGREGATOR_LEASE));
    await this.#check(cluster, "components", async () => deploymentFindings(await cluster.list(deployments)));
    await this.#check(cluster, "permissions", () => this.#permissions(cluster, CELL_PERMISSIONS));
  }

  async #policies(core: ClusterClient): Promise<Finding> {
    const accounts = await core.list(corePath("serviceaccounts", this.#system));
    if (!hasCellAccounts(accounts)) return ok("cell policies", "no cell has accounts of its own");
    if (!servesPolicies(await core.find(ADMISSION_API))) return policyFinding(undefined);
    return policyFinding(await Promise.all(POLICIES.map((name) => storedPolicy(core, name))));
  }

  async #webhookConfiguration(cluster: ClusterClient, views: readonly ProtectorView[]): Promise<readonly Finding[]> {
    const validating = await cluster.find(`${VALIDATING}/podseidon`);
    const mutating = await cluster.find(`${MUTATING}/podseidon`);
    const findings = webhookConfigurationFindings(validating, mutating, this.#context.nowMs());
    const cell = cellOfWebhookConfiguration(validating);
    const counted = views.some(({ cells }) => cells.some((one) => one.cell === cell && one.state !== "not counted"));
    if (cell === undefined || views.length === 0 || counted) return findings;
    const advice =
      `run the aggregator of this cluster with --cell-id ${cell}: until ` +
      "it counts, clients are told to retry deletions of protected pods";
    return [...findings, problem("cell", `asks as ${cell}, which no protector counts`, advice)];
  }

  /**
   * The webhook also decides an eviction of a pod that does not exist: a 404 in the webhook's name shows that it was
   * reached.
   */
  async #answers(cluster: ClusterClient, views: readonly ProtectorView[]): Promise<Finding> {
    const namespace = views[0]?.namespace ?? cluster.namespace;
    const path = `${podPath(namespace, ABSENT_POD, "eviction")}?dryRun=All`;
    const body = { apiVersion: "policy/v1", kind: "Eviction", metadata: { namespace, name: ABSENT_POD } };
    const response = await cluster.raw("POST", path, body);
    const { message } = statusOf(response);
    const name = /^admission webhook "([^"]+)"/.exec(message)?.[1];
    if (name !== undefined) return ok("webhook", `answers as ${name}`);
    if (response.status === 403)
      return unknown("webhook", message, "asking needs the permission to create pods/eviction");
    if (response.status >= 500) {
      return problem(
        "webhook",
        message,
        "deletions of pods are denied while it does not answer: see docs/runbooks/PodseidonWebhookDown.md",
      );
    }
    return problem("webhook", `was not asked: ${message}`, "see the webhook configuration");
  }

  async #serving(cluster: ClusterClient): Promise<Finding> {
    const text = await this.#secret(cluster, "podseidon-webhook-tls", "tls.crt");
    if (text === undefined) {
      return unknown(
        "serving certificate",
        "no Secret podseidon-webhook-tls here",
        "that is right where the webhook runs elsewhere, or has its certificate from files",
      );
    }
    return certificateFinding("serving certificate", [text], this.#context.nowMs());
  }

  /** A cluster that is its own core has none. */
  async #tokens(cluster: ClusterClient): Promise<readonly Finding[]> {
    const findings: Finding[] = [];
    for (const name of KUBECONFIG_SECRETS) {
      const text = await this.#secret(cluster, name, KUBECONFIG_KEY);
      if (text !== undefined) findings.push(await tokenFinding(name, text, this.#context.nowMs()));
    }
    return findings;
  }

  async #secret(cluster: ClusterClient, name: string, key: string): Promise<string | undefined> {
    const parsed = v.safeParse(Secret, await cluster.find(corePath("secrets", this.#system, name)));
    const data = parsed.success ? parsed.output.data[key] : undefined;
    return data === undefined ? undefined : Buffer.from(data, "base64").toString("utf8");
  }

  async #lease(cluster: ClusterClient, part: string, name: string): Promise<Finding> {
    const raw = await cluster.find(`/apis/coordination.k8s.io/v1/namespaces/${this.#system}/leases/${name}`);
    return leaseFinding(part, raw, this.#context.nowMs());
  }

  /** Asks the authorizer about each ServiceAccount that is there. */
  async #permissions(cluster: ClusterClient, wanted: readonly Permission[]): Promise<readonly Finding[]> {
    const accounts = [...new Set(wanted.map(({ account }) => account))];
    const present = new Set<string>();
    for (const account of accounts) {
      const path = corePath("serviceaccounts", this.#system, `podseidon-${account}`);
      if ((await cluster.find(path)) !== undefined) present.add(account);
    }
    const asked = wanted.filter(({ account }) => present.has(account));
    if (asked.length === 0) return [unknown("permissions", `no ServiceAccount of podseidon in ${this.#system}`, "")];
    const missing: string[] = [];
    for (const one of asked)
      if (!(await this.#may(cluster, one)))
        missing.push(`podseidon-${one.account} may not ${one.verb} ${one.resource}`);
    if (missing.length === 0) return [ok("permissions", `${asked.length} asked for, all granted`)];
    return [problem("permissions", missing.join("; "), "apply the manifests of this release again")];
  }

  async #may(cluster: ClusterClient, { account, verb, resource, group, subresource }: Permission): Promise<boolean> {
    const body = {
      apiVersion: "authorization.k8s.io/v1",
      kind: "SubjectAccessReview",
      spec: {
        user: `system:serviceaccount:${this.#system}:podseidon-${account}`,
        groups: ["system:serviceaccounts", `system:serviceaccounts:${this.#system}`, "system:authenticated"],
        resourceAttributes: { verb, resource, group, subresource },
      },
    };
    const response = await cluster.raw("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", body);
    const Answer = v.looseObject({ status: v.looseObject({ allowed: v.boolean() }) });
    const parsed = v.safeParse(v.pipe(v.string(), v.parseJson(), Answer), response.body);
    if (!parsed.success) throw new Error(statusOf(response).message);
    return parsed.output.status.allowed;
  }
}

interface Permission {
  readonly account: string;
  readonly verb: string;
  readonly group: string;
  readonly resource: string;
  readonly subresource?: string;
}

const protectors = { group: GROUP, resource: PLURAL };
const CORE_PERMISSIONS: readonly Permission[] = [
  { account: "webhook", verb: "watch", ...protectors },
  { account: "webhook", verb: "update", ...protectors, subresource: "status" },
  { account: "aggregator", verb: "watch", ...protectors },
  { account: "aggregator", verb: "update", ...protectors, subresource: "status" },
  { account: "generator", verb: "create", ...protectors },
  { account: "generator", verb: "watch", group: "apps", resource: "deployments" },
];
const CELL_PERMISSIONS: readonly Permission[] = [
  { account: "aggregator", verb: "watch", group: "", resource: "pods" },
  { account: "webhook", verb: "get", group: "", resource: "pods" },
  { account: "webhook", verb: "list", group: "", resource: "pods" },
];

async function run(context: Context, args: readonly string[]): Promise<ExitCode> {
  const core = await context.core();
  const clusters =
    args.length === 0 ? [await context.cluster()] : await Promise.all(args.map((name) => context.named(name)));
  const doctor = new Doctor(context, core);
  const views = await context.progress.during(`looking at ${core.name}, the core`, () => doctor.core());
  for (const cluster of new Set(clusters))
    await context.progress.during(`looking at ${cluster.name}, which has pods`, () => doctor.cell(cluster, views));
  context.print(doctor.findings, findingsText(doctor.findings));
  return doctor.findings.some(({ level }) => level === "problem") ? EXIT.no : EXIT.yes;
}

export const doctor: Command = {
  name: "doctor",
  usage: "[CONTEXT ...]",
  summary: "Is the installation in order? Each finding a line, and what to do.",
  doing: "looking for the clusters",
  description:
    "Looks at the core cluster and at the clusters of the named contexts (of --context when none is named): " +
    "reachability, clocks, the CRD, protectors, cells, webhook configurations, certificates, tokens for the core, " +
    "the core's policies for cells, " +
    "leases, versions, and the permissions of the ServiceAccounts. Changes nothing. " +
    "Exit code 0: no problem; 1: at least one.",
  flags: SYSTEM_NAMESPACE,
  arity: [0, 100],
  run,
};
