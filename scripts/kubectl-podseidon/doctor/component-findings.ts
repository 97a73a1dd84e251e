/** The findings of `doctor` about the project's own processes: leases, Deployments, how the webhook runs. Pure. */
import * as v from "valibot";
import { SKEW_MS } from "../invocation/cluster.ts";
import { age } from "../invocation/output.ts";
import { type Finding, ok, problem, warning } from "./findings.ts";

const Lease = v.looseObject({
  spec: v.optional(
    v.looseObject({
      holderIdentity: v.nullish(v.string()),
      leaseDurationSeconds: v.nullish(v.number()),
      renewTime: v.nullish(v.string()),
    }),
  ),
});
/** The duration of a lease without its own: client-go's default. */
const LEASE_SECONDS = 15;

/** `without` is the reason why no lease is needed, if so; `nowMs` is the clock of the apiserver. */
export function leaseFinding(check: string, raw: unknown, nowMs: number, without?: string): Finding {
  const advice =
    `is the Deployment podseidon-${check} running? Without it ` +
    `${check === "generator" ? "no new workload is protected" : "nothing is counted"}`;
  const parsed = v.safeParse(Lease, raw);
  if (raw === undefined || !parsed.success) {
    if (without !== undefined) return ok(check, without);
    return warning(check, "no lease in the system namespace: it never ran here, or without leader election", advice);
  }
  const { holderIdentity, renewTime, leaseDurationSeconds } = parsed.output.spec ?? {};
  const ageMs = nowMs - Date.parse(renewTime ?? "");
  if (!holderIdentity || !Number.isFinite(ageMs)) return problem(check, "nobody leads", advice);
  const seconds = leaseDurationSeconds ?? LEASE_SECONDS;
  if (ageMs > 1000 * seconds + SKEW_MS)
    return problem(check, `${holderIdentity} renewed its lease of ${seconds} s ${age(ageMs)} ago`, advice);
  return ok(check, `led by ${holderIdentity}, renewed ${age(ageMs)} ago`);
}

const Container = v.looseObject({
  image: v.optional(v.string(), ""),
  args: v.optional(v.array(v.string()), []),
  env: v.optional(v.array(v.looseObject({ name: v.string(), value: v.optional(v.string()) })), []),
});
const Deployment = v.looseObject({
  metadata: v.looseObject({ name: v.string() }),
  spec: v.looseObject({
    replicas: v.optional(v.number(), 1),
    template: v.looseObject({ spec: v.looseObject({ containers: v.array(Container) }) }),
  }),
  // Kubernetes leaves a 0 out.
  status: v.optional(
    v.looseObject({
      replicas: v.optional(v.number(), 0),
      readyReplicas: v.optional(v.number(), 0),
      updatedReplicas: v.optional(v.number(), 0),
    }),
  ),
});
export type ProjectDeployment = v.InferOutput<typeof Deployment>;

/** The readable Deployments. */
export function parseDeployments(raw: readonly unknown[]): readonly ProjectDeployment[] {
  return raw.flatMap((one) => {
    const parsed = v.safeParse(Deployment, one);
    return parsed.success ? [parsed.output] : [];
  });
}

export function noNamespace(namespace: string): Finding {
  const advice =
    "name the namespace of podseidon by --system-namespace; if there is none, apply the manifests: docs/install.md";
  return problem("components", `there is no namespace ${namespace}`, advice);
}

/** The project's Deployments of one cluster: whether they run, and how the webhook does. */
export function deploymentFindings(deployments: readonly ProjectDeployment[], namespace: string): Finding[] {
  // Processes that do not run show in the lease, in the heartbeat, or in the missing response of the webhook.
  if (deployments.length === 0)
    return [ok("components", `no Deployment in ${namespace}; --system-namespace names another`)];
  const kubectl = `kubectl --namespace ${namespace}`;
  const findings: Finding[] = deployments.map(({ metadata, spec, status }) => {
    const ready = status?.readyReplicas ?? 0;
    const found = `${ready} of ${spec.replicas} ready`;
    if (spec.replicas === 0)
      return warning(metadata.name, "scaled to 0", `${kubectl} scale deployment ${metadata.name} --replicas=2`);
    if (ready === 0) return problem(metadata.name, found, `${kubectl} describe deployment ${metadata.name}`);
    if (ready < spec.replicas) return warning(metadata.name, found, "some replicas are not ready");
    // While a new replica can't start, those of the earlier version stay, and are ready.
    const { replicas = 0, updatedReplicas = 0 } = status ?? {};
    const earlier = replicas - updatedReplicas;
    return earlier > 0 || updatedReplicas < spec.replicas
      ? warning(
          metadata.name,
          `${found}, ${earlier} of an earlier version`,
          `the roll-out is not complete: ${kubectl} rollout status deployment ${metadata.name}`,
        )
      : ok(metadata.name, found);
  });
  const webhook = deployments.find(({ metadata }) => metadata.name === WEBHOOK_DEPLOYMENT);
  const [container] = webhook?.spec.template.spec.containers ?? [];
  return container === undefined ? findings : [...findings, ...webhookFindings(container)];
}

export const WEBHOOK_DEPLOYMENT = "podseidon-webhook";

/** One finding about the images in all checked clusters. Clusters may pull one image from different registries. */
export function versionFinding(deployments: readonly ProjectDeployment[]): Finding {
  const containers = deployments.flatMap(({ spec }) => spec.template.spec.containers);
  const images = [...new Set(containers.map(({ image }) => image))].sort();
  const versions = new Set(images.map((image) => image.slice(image.lastIndexOf("/") + 1)));
  if (versions.size <= 1) return ok("versions", images.join(", ") || "-");
  return warning("versions", images.join(", "), "parts of different versions work together for an upgrade; finish it");
}

/** Like in the webhook: a flag has precedence over the environment, and the last of several flags counts. */
function isDryRun(args: readonly string[], env: v.InferOutput<typeof Container>["env"]): boolean {
  const flag = args.findLast((arg) => arg === "--dry-run" || arg.startsWith("--dry-run="));
  const variable = env.findLast(({ name }) => name === "PODSEIDON_DRY_RUN")?.value;
  const given = flag === undefined ? variable : (flag.split("=")[1] ?? "true");
  return given === "true" || given === "1";
}

/** Whether a Deployment is that of a webhook in dry-run mode. */
export function deniesNothing({ spec }: ProjectDeployment): boolean {
  const [container] = spec.template.spec.containers;
  return container !== undefined && isDryRun(container.args, container.env);
}

function webhookFindings({ args, env }: v.InferOutput<typeof Container>): Finding[] {
  const has = (flag: string): boolean => args.some((arg) => arg === `--${flag}` || arg.startsWith(`--${flag}=`));
  const denies = isDryRun(args, env)
    ? problem(
        "enforcement",
        "the webhook runs with --dry-run: it denies nothing",
        "nothing is protected yet; take the next step of the roll-out (docs/install.md#one-cluster)",
      )
    : ok("enforcement", "the webhook denies what the promise does not allow");
  // How the webhook knows its callers (docs/security.md#who-calls).
  const ways = [
    ...(has("client-ca-file") ? [`client certificates${has("client-name") ? " by name" : ""}`] : []),
    ...(has("secret-path-file") ? ["a secret path (every reader of the webhook configuration knows it)"] : []),
    ...(has("require-caller-token") ? ["identity tokens of apiservers"] : []),
  ];
  const known =
    ways.length > 0 ? `known by ${ways.join(" and ")}` : "everybody who reaches its port: docs/security.md#who-calls";
  return [denies, ok("callers", known)];
}
