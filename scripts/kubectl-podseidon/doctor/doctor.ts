/** `doctor`: is the installation in order? Only reads and makes dry runs; changes nothing. */

import * as v from "valibot";
import { corePath, podPath } from "../../../shared/kube/client/api-path.ts";
import { KUBECONFIG_KEY } from "../../../shared/kube/credentials/account-token.ts";
import { BACKUP_LABEL } from "../../../shared/recovery/backup/backup-format.ts";
import { messageOf } from "../../../shared/runtime/errors.ts";
import {
  AGGREGATOR_LEASE,
  GENERATOR_FINALIZER,
  GENERATOR_LEASE,
  GROUP,
  PLURAL,
} from "../../../shared/schema/annotations.ts";
import { valueAt } from "../../../shared/schema/check.ts";
import { parseAnyPod } from "../../../shared/schema/pod.ts";
import { namespacedName, type PodProtector } from "../../../shared/schema/podprotector.ts";
import { askAboutNoPod, cellOfWebhookConfiguration, covering, VALIDATING } from "../disruption-dry-run.ts";
import { ClusterClient } from "../invocation/cluster.ts";
import { type Command, type Context, SYSTEM_NAMESPACE } from "../invocation/command.ts";
import { EXIT, type ExitCode, orElse } from "../invocation/errors.ts";
import { withFlags } from "../invocation/printed-commands.ts";
import { acceptsToken } from "../invocation/token-review.ts";
import { type CellView, type ProtectorView, viewProtector } from "../view.ts";
import { answerFinding } from "./answer-finding.ts";
import { backupFindings } from "./backup-findings.ts";
import {
  deploymentFindings,
  leaseFinding,
  noNamespace,
  type ProjectDeployment,
  parseDeployments,
  versionFinding,
  WEBHOOK_DEPLOYMENT,
} from "./component-findings.ts";
import {
  cellFindings,
  crdFinding,
  type DoctorFinding,
  type Finding,
  findingsText,
  ok,
  ownCertificateFinding,
  problem,
  protectorFindings,
  unknown,
} from "./findings.ts";
import { flowControlFinding } from "./flow-control-finding.ts";
import { CELL_PERMISSIONS, CORE_PERMISSIONS, mayDo, permissionFindings } from "./permission-findings.ts";
import {
  ADMISSION_API,
  CELL_COMPONENT_POLICIES,
  CORE_COMPONENT_POLICIES,
  type ComponentPolicy,
  componentPolicyFinding,
  hasCellAccounts,
  POLICIES,
  policyFinding,
  type StoredPolicy,
  servesPolicies,
  WORKLOAD_POLICY,
  workloadPolicyFinding,
} from "./policy-findings.ts";
import { hasNamespace, reach, reachable } from "./reach.ts";
import { SOURCE_REASONS, sourceFindings } from "./source-findings.ts";
import { KUBECONFIG_SECRETS, tokenFinding } from "./token-findings.ts";
import {
  askedNamespaces,
  bindingFinding,
  gateFinding,
  gatesAsked,
  Namespace,
  namespaceFinding,
  webhookConfigurationFindings,
} from "./webhook-configuration-findings.ts";

const MUTATING = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations";
const Data = v.fallback(v.record(v.string(), v.string()), {});

async function storedPolicy(core: ClusterClient, name: string): Promise<StoredPolicy> {
  const policy = await core.find(`${ADMISSION_API}/validatingadmissionpolicies/${name}`);
  const binding = await core.find(`${ADMISSION_API}/validatingadmissionpolicybindings/${name}`);
  return { name, policy, binding };
}

class Doctor {
  readonly #context: Context;
  readonly #core: ClusterClient;
  readonly #system: string;
  readonly #deployments = new Map<ClusterClient, readonly ProjectDeployment[]>();
  #protectors: readonly PodProtector[] = [];
  #views: readonly ProtectorView[] = [];
  readonly findings: DoctorFinding[] = [];

  constructor(context: Context, core: ClusterClient) {
    this.#context = context;
    this.#core = core;
    this.#system = context.systemNamespace;
  }

  async #add(cluster: ClusterClient, found: readonly Finding[]): Promise<void> {
    const [plugin, kubectl, both] = await this.#context.flagsFor(cluster);
    for (const one of found) {
      const advice = withFlags(one.advice, plugin, kubectl, this.#context.systemFlag, both);
      this.findings.push({ cluster: cluster.name, ...one, advice });
    }
  }

  /** Adds the findings of `look`. A failed check is a finding, too. */
  async #check(
    cluster: ClusterClient,
    check: string,
    look: () => Promise<Finding | readonly Finding[]>,
  ): Promise<void> {
    try {
      await this.#add(cluster, [await look()].flat());
    } catch (error) {
      const message = messageOf(error);
      const isDenied = /\b403\b|forbidden/i.test(message);
      const advice = isDenied ? "see whether your user may read this (kubectl auth can-i --list)" : "";
      await this.#add(cluster, [unknown(check, message, advice)]);
    }
  }

  /** Checks the core, except for its cells. False when the core does not answer. */
  async core(): Promise<boolean> {
    const core = this.#core;
    if (!(await this.#reach(core))) return false;
    const crd = `/apis/apiextensions.k8s.io/v1/customresourcedefinitions/${PLURAL}.${GROUP}`;
    await this.#check(core, "crd", async () => crdFinding(await core.find(crd)));
    await this.#check(core, "protectors", async () => {
      this.#protectors = await core.protectors(undefined);
      this.#views = this.#protectors.map((one) => viewProtector(one, core.nowMs()));
      return [...protectorFindings(this.#views), ...cellFindings(this.#views)];
    });
    await this.#processes(core);
    await this.#check(core, "generator", () => this.#generator());
    await this.#check(core, "sources", () => this.#sources());
    await this.#check(core, "cell policies", () => this.#policies(core));
    await this.#check(core, "workload deletions", async () =>
      workloadPolicyFinding(await storedPolicy(core, WORKLOAD_POLICY)),
    );
    await this.#componentPolicies(core, CORE_COMPONENT_POLICIES);
    await this.#check(core, "permissions", () => permissionFindings(core, this.#system, CORE_PERMISSIONS));
    return true;
  }

  /** Checks a cluster that has pods. */
  async cell(cluster: ClusterClient): Promise<void> {
    if (cluster !== this.#core) {
      if (!(await this.#reach(cluster))) return;
      await this.#processes(cluster);
    } else if (await this.#isCoreAlone()) {
      const found = "none in this cluster: name the contexts of those that have pods";
      await this.#add(cluster, [ok("pods", found)]);
      return;
    }
    await this.#check(cluster, "webhook configuration", () => this.#webhookConfiguration(cluster));
    await this.#check(cluster, "webhook", () => this.#answers(cluster));
    await this.#check(cluster, "core token", () => this.#tokens(cluster));
    await this.#check(cluster, "aggregator", () => this.#aggregator(cluster));
    await this.#check(cluster, "backups", () => this.#backups(cluster));
    await this.#componentPolicies(cluster, CELL_COMPONENT_POLICIES);
    await this.#check(cluster, "permissions", () => permissionFindings(cluster, this.#system, CELL_PERMISSIONS));
  }

  /** Checks what runs in a cluster. */
  async #processes(cluster: ClusterClient): Promise<void> {
    await this.#check(cluster, "components", () => this.#components(cluster));
    await this.#check(cluster, "serving certificate", () => this.#serving(cluster));
    if (this.#deployments.get(cluster)?.length)
      await this.#check(cluster, "flow control", () => flowControlFinding(cluster, this.#system));
  }

  /** Checks the versions in all checked clusters. */
  async versions(): Promise<void> {
    const deployments = [...this.#deployments.values()].flat();
    if (deployments.length > 0) await this.#add(this.#core, [versionFinding(deployments)]);
  }

  async #reach(cluster: ClusterClient): Promise<boolean> {
    const { findings, answers } = await reach(cluster, () => this.#context.nowMs());
    await this.#add(cluster, findings);
    return answers;
  }

  async #components(cluster: ClusterClient): Promise<readonly Finding[]> {
    const path = `/apis/apps/v1/namespaces/${this.#system}/deployments`;
    const deployments = parseDeployments(await cluster.list(path));
    this.#deployments.set(cluster, deployments);
    if (deployments.length === 0 && !(await hasNamespace(cluster, this.#system))) return [noNamespace(this.#system)];
    return deploymentFindings(deployments, this.#system);
  }

  #hasDeployment(cluster: ClusterClient, name: string): boolean {
    return this.#deployments.get(cluster)?.some(({ metadata }) => metadata.name === name) ?? false;
  }

  /**
   * True when the core has nothing of a cell, and no pod that a protector covers. Unreadable objects count as present.
   */
  async #isCoreAlone(): Promise<boolean> {
    const core = this.#core;
    if (this.#hasDeployment(core, "podseidon-aggregator")) return false;
    try {
      const paths = [`${VALIDATING}/podseidon`, `${MUTATING}/podseidon`, this.#leasePath(AGGREGATOR_LEASE)];
      for (const path of paths) if ((await core.find(path)) !== undefined) return false;
      for (const namespace of new Set(this.#views.map((view) => view.namespace))) {
        const pods = await core.list(podPath(namespace), {}, parseAnyPod);
        if (pods.some((pod) => covering(this.#protectors, pod).length > 0)) return false;
      }
      return true;
    } catch {
      return false;
    }
  }

  async #policies(core: ClusterClient): Promise<Finding> {
    const accounts = await core.list(corePath("serviceaccounts", this.#system));
    if (!hasCellAccounts(accounts)) return ok("cell policies", "no cell has accounts of its own");
    if (!servesPolicies(await core.find(ADMISSION_API))) return policyFinding(undefined, this.#system);
    return policyFinding(await Promise.all(POLICIES.map((name) => storedPolicy(core, name))), this.#system);
  }

  /** Of the components that have an account in this cluster. */
  async #componentPolicies(cluster: ClusterClient, policies: readonly ComponentPolicy[]): Promise<void> {
    for (const wanted of policies)
      await this.#check(cluster, `${wanted.component} policy`, async () => {
        const account = corePath("serviceaccounts", this.#system, `podseidon-${wanted.component}`);
        if ((await cluster.find(account)) === undefined) return [];
        const { permits } = wanted;
        if (permits !== undefined && !(await mayDo(cluster, this.#system, permits))) return [];
        const isServed = servesPolicies(await cluster.find(ADMISSION_API));
        const stored = isServed ? await storedPolicy(cluster, wanted.name) : undefined;
        return componentPolicyFinding(wanted, stored, this.#system);
      });
  }

  async #webhookConfiguration(cluster: ClusterClient): Promise<readonly Finding[]> {
    const validating = await cluster.find(`${VALIDATING}/podseidon`);
    const mutating = await cluster.find(`${MUTATING}/podseidon`);
    const gate = await cluster.find(`${MUTATING}/podseidon-gate`);
    const findings = webhookConfigurationFindings(validating, mutating, cluster.nowMs(), gate, this.#system);
    const cell = cellOfWebhookConfiguration(validating);
    if (cell === undefined || this.#views.length === 0) return findings;
    const here = this.#views.filter(({ cells }) => cells.some((one) => one.cell === cell && one.total > 0));
    const protectedIn = new Set(here.map(({ namespace }) => namespace));
    const namespaces = (await cluster.list("/api/v1/namespaces")).map((raw) => v.parse(Namespace, raw));
    const asked = namespaces.filter(({ metadata }) => protectedIn.has(metadata.name));
    findings.push(...namespaceFinding(validating, asked), ...bindingFinding(validating, mutating, asked));
    findings.push(...gateFinding(gatesAsked(this.#of(here), namespaces), gate));
    if (this.#isCounted(cell)) return findings;
    const advice =
      `run the aggregator of this cluster with --cell-id ${cell}: until ` +
      "it counts, clients are told to retry deletions of protected pods";
    return [...findings, problem("cell", `asks as ${cell}, which no protector counts`, advice)];
  }

  async #cellOf(cluster: ClusterClient): Promise<string | undefined> {
    return cellOfWebhookConfiguration(await cluster.find(`${VALIDATING}/podseidon`));
  }

  #isCounted(cell: string | undefined): boolean {
    const isIt = (one: CellView): boolean =>
      one.cell === cell && one.state !== "not counted" && one.state !== "removed";
    return this.#views.some(({ cells }) => cells.some(isIt));
  }

  /** The protectors of these views. */
  #of(views: readonly ProtectorView[]): readonly PodProtector[] {
    const ids = new Set(views.map(namespacedName));
    return this.#protectors.filter(({ metadata }) => ids.has(namespacedName(metadata)));
  }

  async #answers(cluster: ClusterClient): Promise<Finding> {
    return answerFinding(await askAboutNoPod(cluster, await this.#askedNamespace(cluster)));
  }

  /**
   * A namespace in which this cluster asks the webhook, preferably one with protectors. The core's namespaces may not
   * exist here.
   */
  async #askedNamespace(cluster: ClusterClient): Promise<string> {
    const usual = this.#views[0]?.namespace ?? cluster.namespace;
    const read = async (): Promise<readonly string[]> =>
      askedNamespaces(await cluster.find(`${VALIDATING}/podseidon`), await cluster.list("/api/v1/namespaces"));
    // A user who may evict pods may lack the permission to list namespaces.
    const asked = await read().catch(orElse(() => []));
    const namespaces = new Set(this.#views.map((view) => view.namespace));
    return asked.find((one) => namespaces.has(one)) ?? asked[0] ?? usual;
  }

  /** Checks the cluster that runs the webhook. */
  async #serving(cluster: ClusterClient): Promise<readonly Finding[]> {
    const check = "serving certificate";
    const text = await this.#secret(cluster, "podseidon-webhook-tls", "tls.crt");
    if (text !== undefined) return [ownCertificateFinding(check, text, cluster.nowMs())];
    if (!this.#hasDeployment(cluster, WEBHOOK_DEPLOYMENT)) return [];
    return [ok(check, "is not of Secret podseidon-webhook-tls")];
  }

  /** Checks the tokens for the core. A cluster that is its own core has none. */
  async #tokens(cluster: ClusterClient): Promise<readonly Finding[]> {
    const findings: Finding[] = [];
    const cell = await this.#cellOf(cluster);
    const accepts = (token: string): Promise<boolean | undefined> => acceptsToken(this.#core, this.#system, token);
    for (const name of KUBECONFIG_SECRETS) {
      const text = await this.#secret(cluster, name, KUBECONFIG_KEY);
      if (text !== undefined) findings.push(await tokenFinding(name, text, this.#core.nowMs(), accepts, cell));
    }
    return findings;
  }

  async #secret(cluster: ClusterClient, name: string, key: string): Promise<string | undefined> {
    const secret = await cluster.find(corePath("secrets", this.#system, name));
    const { [key]: data } = v.parse(Data, valueAt(secret, "data"));
    return data === undefined ? undefined : Buffer.from(data, "base64").toString("utf8");
  }

  #leasePath(name: string): string {
    return `/apis/coordination.k8s.io/v1/namespaces/${this.#system}/leases/${name}`;
  }

  async #lease(cluster: ClusterClient, part: string, name: string, without: string | undefined): Promise<Finding> {
    return leaseFinding(part, await cluster.find(this.#leasePath(name)), cluster.nowMs(), without);
  }

  async #generator(): Promise<Finding> {
    const isNeeded =
      this.#hasDeployment(this.#core, GENERATOR_LEASE) ||
      this.#protectors.some(({ metadata }) => metadata.finalizers?.includes(GENERATOR_FINALIZER));
    const without = isNeeded ? undefined : "none: every protector is made by hand";
    return await this.#lease(this.#core, "generator", GENERATOR_LEASE, without);
  }

  async #sources(): Promise<readonly Finding[]> {
    const path = "/api/v1/events";
    const lists = SOURCE_REASONS.map((reason) => this.#core.list(path, { fieldSelector: `reason=${reason}` }));
    return sourceFindings((await Promise.all(lists)).flat(), this.#core.nowMs());
  }

  async #backups(cluster: ClusterClient): Promise<readonly Finding[]> {
    const cell = await this.#cellOf(cluster);
    const here = this.#views.filter(({ cells }) =>
      cells.some((one) => one.cell === cell && one.total > 0 && one.state !== "removed"),
    );
    if (here.length === 0) return [];
    const maps = await cluster.list(corePath("configmaps", this.#system), { labelSelector: BACKUP_LABEL });
    return backupFindings(this.#of(here), maps, cluster.nowMs(), this.#system);
  }

  /** Without a lease, heartbeats show that an aggregator counts. */
  async #aggregator(cluster: ClusterClient): Promise<Finding> {
    const cell = await this.#cellOf(cluster);
    const isCurrent = this.#views.some(({ cells }) =>
      cells.some((one) => one.cell === cell && one.state === "ok" && one.heartbeatAgeMs !== undefined),
    );
    const without = isCurrent ? "counts, without leader election" : undefined;
    return await this.#lease(cluster, "aggregator", AGGREGATOR_LEASE, without);
  }
}

async function run(context: Context, args: readonly string[]): Promise<ExitCode> {
  const core = await context.core();
  const wanted = args.length === 0 ? [context.cluster()] : args.map((name) => context.named(name));
  const found = await Promise.all(
    wanted.map((one, index) => reachable(args[index] ?? context.text("context") ?? "-", one)),
  );
  const clusters = found.filter((one) => one instanceof ClusterClient);
  const doctor = new Doctor(context, core);
  doctor.findings.push(...found.flatMap((one) => (one instanceof ClusterClient ? [] : [one])));
  const isReached = await context.progress.during(`looking at ${core.name}, the core`, () => doctor.core());
  for (const cluster of new Set(clusters))
    if (isReached || cluster !== core)
      await context.progress.during(`looking at ${cluster.name}, which has pods`, () => doctor.cell(cluster));
  await doctor.versions();
  context.print(doctor.findings, findingsText(doctor.findings));
  const has = (wanted: Finding["level"]): boolean => doctor.findings.some(({ level }) => level === wanted);
  return has("problem") ? EXIT.no : has("unknown") ? EXIT.unknown : EXIT.yes;
}

export const doctor: Command = {
  name: "doctor",
  usage: "[CONTEXT ...]",
  summary: "Is the installation in order? Each finding a line, and what to do.",
  doing: "looking for the clusters",
  description:
    "Looks at the core cluster and at the clusters of the named contexts (of --context when none is named; " +
    "a core that has no cell is looked at as a core alone): " +
    "reachability, clocks, the CRD, protectors, cells, what can't be protected as it asks, " +
    "webhook configurations, certificates, tokens for the core, " +
    "the core's policies for cells, what limits the components' own accounts, backups of protectors, " +
    "leases, versions, flow control, and the permissions of the ServiceAccounts. Changes nothing. " +
    "Exit code 0: no problem; 1: at least one; 2: none was found, but a check could not be made.",
  flags: SYSTEM_NAMESPACE,
  arity: [0, 100],
  run,
};
