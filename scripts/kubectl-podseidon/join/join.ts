/**
 * The command `join`: creates accounts for a worker cluster in the core, and writes their kubeconfigs to the worker
 * cluster.
 */
import * as v from "valibot";
import { configMapPath, corePath, withQuery } from "../../../shared/kube/client/api-path.ts";
import { describeFailure } from "../../../shared/kube/client/api-result.ts";
import {
  homeOf,
  issuedToken,
  KUBECONFIG_KEY,
  readAccountToken,
  tokenRequest,
} from "../../../shared/kube/credentials/account-token.ts";
import { parseKubeconfig } from "../../../shared/kube/credentials/kubeconfig-file.ts";
import { parseConfigMap } from "../../../shared/schema/config-map.ts";
import { CALL_TIMEOUT_MS, type ClusterClient } from "../invocation/cluster.ts";
import { argument, type Command, type Context, SYSTEM_NAMESPACE } from "../invocation/command.ts";
import { CommandError, EXIT, type ExitCode } from "../invocation/errors.ts";
import { age, table } from "../invocation/output.ts";
import { flagsText } from "../invocation/printed-commands.ts";
import { acceptsToken } from "../invocation/token-review.ts";
import {
  accountName,
  accountObjects,
  boundSecret,
  boundSecretName,
  type CellComponent,
  type CellObject,
  CLUSTER_ANNOTATION,
  COMPONENTS,
  type CoreAddress,
  cellOfSecret,
  checkCellName,
  isUsable,
  kubeconfigSecret,
  kubeconfigSecretName,
  kubeconfigText,
  OWN_SELECTOR,
  rolesOf,
} from "./cell-objects.ts";

const WEEK_MS = 7 * 86_400_000;
/**
 * A kubelet takes up to two minutes to update a mounted Secret, which must be much shorter than a fifth of a token's
 * life.
 */
const MIN_LIFE_MS = 3_600_000;
const DURATIONS = "24h or 7d, and no shorter than an hour";
const FIELD_MANAGER = "kubectl-podseidon";

const ApiObject = v.looseObject({
  metadata: v.looseObject({
    name: v.string(),
    uid: v.string(),
    resourceVersion: v.string(),
    annotations: v.optional(v.record(v.string(), v.string()), {}),
  }),
  data: v.optional(v.record(v.string(), v.string()), {}),
});
type ApiObject = v.InferOutput<typeof ApiObject>;
const parseObject = (raw: unknown): ApiObject => v.parse(ApiObject, raw);

/** The result for one object. */
export interface Step {
  readonly cluster: string;
  readonly object: string;
  readonly outcome: string;
}

/** Does the work; an error says which steps were done before it, in `done`. */
export async function tellingSteps(done: () => readonly Step[], work: () => Promise<void>): Promise<void> {
  try {
    await work();
  } catch (error) {
    const made = done().map(({ cluster, object, outcome }) => `${object} ${outcome} (${cluster})`);
    if (!(error instanceof CommandError) || made.length === 0) throw error;
    throw new CommandError(`${error.message}; before that: ${made.join(", ")}. The command can be repeated`);
  }
}

/** The clusters and the cell of one call. */
export interface JoinTarget {
  readonly cell: string;
  readonly core: ClusterClient;
  readonly worker: ClusterClient;
  readonly namespace: string;
  /** Flags that printed commands of the plugin repeat. */
  readonly repeated: string;
}

/**
 * Reads cell and clusters. Requires a named core: otherwise the cluster of the pods would be assumed to be the core.
 */
export async function targetOf(context: Context, args: readonly string[]): Promise<JoinTarget> {
  const cell = argument(args, 0, "a cell");
  checkCellName(cell);
  if (!context.namesCore) {
    throw new CommandError("name the core's context: --core-context CORE, or PODSEIDON_CORE_CONTEXT");
  }
  const [core, worker] = await Promise.all([context.core(), context.cluster()]);
  const repeated = context.repeated("kubeconfig", "system-namespace");
  return { cell, core, worker, namespace: context.systemNamespace, repeated };
}

async function readObject(cluster: ClusterClient, path: string): Promise<ApiObject | undefined> {
  const raw = await cluster.find(path);
  return raw === undefined ? undefined : parseObject(raw);
}

/** The kubeconfig that a component has in the worker cluster. */
export async function heldKubeconfig({ worker, namespace }: JoinTarget, component: CellComponent) {
  const secret = await readObject(worker, corePath("secrets", namespace, kubeconfigSecretName(component)));
  const data = secret?.data[KUBECONFIG_KEY];
  if (data === undefined) return undefined;
  const text = Buffer.from(data, "base64").toString("utf8");
  try {
    const { user, cluster } = await parseKubeconfig(kubeconfigSecretName(component), undefined, text);
    return { text, token: user.token ?? "", cell: homeOf(user)?.cell, server: cluster.server ?? undefined };
  } catch {
    return { text, token: "", cell: undefined, server: undefined };
  }
}

/** Makes all checks that are possible before the first write; returns the UID of the worker cluster. */
async function checkBefore(target: JoinTarget): Promise<string> {
  const { cell, core, worker, namespace } = target;
  const missing: string[] = [];
  for (const { name, path } of rolesOf(namespace)) if ((await core.find(path)) === undefined) missing.push(name);
  if (missing.length > 0) {
    const advice = `kubectl${flagsText({ context: core.name })} apply -k manifests/overlays/core`;
    throw new CommandError(`${core.name} has no ${missing.join(", ")}: prepare it by ${advice}`);
  }
  const system = await readObject(worker, "/api/v1/namespaces/kube-system");
  if (system === undefined)
    throw new CommandError(`${worker.name} has no namespace kube-system, which tells clusters apart`);
  const cluster = system.metadata.uid;
  const joined = await readObject(core, corePath("secrets", namespace, boundSecretName(cell)));
  refuseOther(target, joined, cluster);
  const raw = await worker.find(configMapPath(namespace, "podseidon-cell"));
  const configured = raw === undefined ? undefined : parseConfigMap(raw).data?.id;
  if (configured !== undefined && configured !== cell) {
    throw new CommandError(
      `the manifests of ${worker.name} give it the id ${configured} (ConfigMap podseidon-cell): join it as ` +
        `${configured}. To give it another id: docs/operations.md#rename-a-cell`,
    );
  }
  const ids = await idsOf(target, cluster);
  for (const component of COMPONENTS) ids.push((await heldKubeconfig(target, component))?.cell ?? cell);
  const other = ids.find((id) => id !== cell);
  if (other === undefined) return cluster;
  const flags = flagsText({ "core-context": core.name, context: worker.name });
  const advice = `kubectl podseidon leave ${other}${flags} --yes${target.repeated}`;
  throw new CommandError(
    `${worker.name} has joined as ${other}, and would count twice: first ${advice} (docs/operations.md, Rename a cell)`,
  );
}

function refuseOther({ cell, core }: JoinTarget, joined: ApiObject | undefined, cluster: string): void {
  const by = joined?.metadata.annotations[CLUSTER_ANNOTATION];
  if (by === undefined || by === cluster) return;
  throw new CommandError(
    `another cluster has joined ${core.name} as ${cell} (${by}; this one is ${cluster}): two clusters with one id ` +
      "overwrite each other's counts. Choose another id, or take the other one out by " +
      `kubectl podseidon leave ${cell}${flagsText({ "core-context": core.name })} --context OTHER`,
  );
}

/** The ids by which this cluster has joined the core. Its own kubeconfigs and backups may be gone: an uninstall. */
async function idsOf({ core, namespace }: JoinTarget, cluster: string): Promise<string[]> {
  const list = await core.find(withQuery(corePath("secrets", namespace), { labelSelector: OWN_SELECTOR }));
  const { items } = v.parse(v.looseObject({ items: v.optional(v.array(ApiObject), []) }), list);
  const joined = items.filter(({ metadata }) => metadata.annotations[CLUSTER_ANNOTATION] === cluster);
  return joined.map(({ metadata }) => cellOfSecret(metadata.name));
}

/**
 * Refuses to take the cluster away from another core: its webhook would send the new token to that core's address, and
 * fail each deletion. The same core may have another address: then it knows the token.
 */
async function checkCore(target: JoinTarget, { server }: CoreAddress): Promise<void> {
  const { cell, core, worker, namespace } = target;
  for (const component of COMPONENTS) {
    const held = await heldKubeconfig(target, component);
    if (held?.server === undefined || held.server === server) continue;
    if ((await acceptsToken(core, namespace, held.token)) === true) continue;
    const secrets = COMPONENTS.map(kubeconfigSecretName).join(" ");
    const context = flagsText({ context: worker.name });
    throw new CommandError(
      `${worker.name} has a kubeconfig for another core (${held.server}) than ${core.name} (${server}). To leave it: ` +
        `kubectl podseidon leave ${cell} --core-context OTHER${context} --yes. If it is gone: ` +
        `kubectl${context} --namespace ${namespace} delete secret ${secrets}`,
    );
  }
}

class Joining {
  readonly steps: Step[] = [];
  readonly #target: JoinTarget;

  constructor(target: JoinTarget) {
    this.#target = target;
  }

  /** Takes the id, which two clusters that join at the same time may both have found free: one creates the Secret. */
  async claim(cluster: string): Promise<ApiObject> {
    const { cell, core, namespace } = this.#target;
    const secret = boundSecret(cell, namespace, cluster);
    const options = { timeoutMs: CALL_TIMEOUT_MS, fieldManager: FIELD_MANAGER };
    const isFree = (await readObject(core, secret.path)) === undefined;
    const made = isFree
      ? await core.api.create(corePath("secrets", namespace), secret.body, parseObject, options)
      : undefined;
    if (made !== undefined && made.kind !== "ok" && made.kind !== "conflict")
      throw new CommandError(`${core.name}: ${secret.name}: ${describeFailure(made)}`);
    if (made?.kind !== "ok") refuseOther(this.#target, await readObject(core, secret.path), cluster);
    // Its fields are to be applied, as those of all other objects: otherwise the next join would change it.
    return await this.apply(core, secret, made?.kind === "ok");
  }

  /** Applies an object, unless it is already as wanted. `isNew`: it was created for this. */
  async apply(cluster: ClusterClient, { name, path, body }: CellObject, isNew = false): Promise<ApiObject> {
    const before = isNew ? undefined : await readObject(cluster, path);
    const forced = withQuery(path, { force: true, fieldManager: FIELD_MANAGER });
    const result = await cluster.api.patch(forced, "application/apply-patch+yaml", body, parseObject, {
      timeoutMs: CALL_TIMEOUT_MS,
    });
    if (result.kind !== "ok") throw new CommandError(`${cluster.name}: ${name}: ${describeFailure(result)}`);
    const isSame = before?.metadata.resourceVersion === result.object.metadata.resourceVersion;
    this.#tell(cluster, name, before === undefined ? "created" : isSame ? "unchanged" : "changed");
    return result.object;
  }

  async component(component: CellComponent, address: CoreAddress, bound: ApiObject, lifeMs: number): Promise<void> {
    const { cell, core, worker, namespace } = this.#target;
    const [account, ...permissions] = accountObjects(component, cell, namespace);
    if (account === undefined) throw new Error("a component has an account");
    const { uid } = (await this.apply(core, account)).metadata;
    for (const permission of permissions) await this.apply(core, permission);
    const held = await heldKubeconfig(this.#target, component);
    const isOurs = held !== undefined && isUsable(held.token, uid, bound.metadata.uid, core.nowMs());
    const keeps = isOurs && (await acceptsToken(core, namespace, held.token)) !== false;
    const token = keeps ? held.token : await this.#request(component, bound, lifeMs);
    const home = { cell, namespace, secret: kubeconfigSecretName(component) };
    const text = kubeconfigText(address, accountName(component, cell), token, home);
    const life = age((readAccountToken(token)?.expiresMs ?? 0) - core.nowMs());
    if (held?.text === text) {
      this.#tell(worker, `secret/${home.secret}`, `unchanged, its token ends in ${life}`);
      return;
    }
    await this.apply(worker, kubeconfigSecret(component, namespace, text));
    this.#tell(core, `token of ${accountName(component, cell)}`, `${keeps ? "kept" : "issued"}, ends in ${life}`);
  }

  async #request(component: CellComponent, { metadata }: ApiObject, lifeMs: number): Promise<string> {
    const { cell, core, namespace } = this.#target;
    const path = corePath("serviceaccounts", namespace, accountName(component, cell), "token");
    const body = tokenRequest(lifeMs, { name: boundSecretName(cell), uid: metadata.uid });
    const result = await core.api.create(path, body, issuedToken, { timeoutMs: CALL_TIMEOUT_MS });
    if (result.kind === "ok") return result.object;
    throw new CommandError(`${core.name}: a token of ${accountName(component, cell)}: ${describeFailure(result)}`);
  }

  #tell({ name }: ClusterClient, object: string, outcome: string): void {
    this.steps.push({ cluster: name, object, outcome });
  }
}

export function stepsText(steps: readonly Step[]): string {
  return table(
    ["CLUSTER", "OBJECT", "RESULT"],
    steps.map(({ cluster, object, outcome }) => [cluster, object, outcome]),
  );
}

function refuseAddress(server: string): void {
  if (!URL.canParse(server) || !server.startsWith("https://"))
    throw new CommandError(`--server: ${server} is no address like https://HOST:6443`);
}

/** The core's address that the operator uses, unless a flag has the one for worker clusters. */
async function addressOf(context: Context, { core, namespace }: JoinTarget): Promise<CoreAddress> {
  const server = context.text("server") ?? core.access.server;
  refuseAddress(server);
  const { tls } = await core.access.credentials.current(context.ports.clock.monotonicMs());
  const raw = tls.ca === undefined ? await core.find(configMapPath(namespace, "kube-root-ca.crt")) : undefined;
  const ca = tls.ca ?? (raw === undefined ? undefined : parseConfigMap(raw).data?.["ca.crt"]);
  return { server, ca, serverName: tls.serverName };
}

async function run(context: Context, args: readonly string[]): Promise<ExitCode> {
  const lifeMs = context.duration("duration", DURATIONS) ?? WEEK_MS;
  if (lifeMs < MIN_LIFE_MS) throw new CommandError(`--duration ${context.text("duration")}: write it as ${DURATIONS}`);
  const given = context.text("server");
  if (given !== undefined) refuseAddress(given);
  const target = await targetOf(context, args);
  const { cell, core, worker, namespace } = target;
  if (worker === core && context.text("context") === undefined)
    throw new CommandError(
      `name the context of the worker cluster: --context WORKER (--context ${core.name} is for the core's own pods)`,
    );
  const cluster = await context.progress.during("checking both clusters", () => checkBefore(target));
  const address = await addressOf(context, target);
  await checkCore(target, address);
  const joining = new Joining(target);
  const join = async (): Promise<void> => {
    const bound = await joining.claim(cluster);
    if ((await worker.find(`/api/v1/namespaces/${namespace}`)) === undefined) {
      const body = { apiVersion: "v1", kind: "Namespace", metadata: { name: namespace } };
      await joining.apply(worker, { name: `namespace/${namespace}`, path: `/api/v1/namespaces/${namespace}`, body });
    }
    for (const component of COMPONENTS) await joining.component(component, address, bound, lifeMs);
  };
  const made = (): readonly Step[] => joining.steps.filter(({ outcome }) => !outcome.startsWith("unchanged"));
  await context.progress.during(`joining ${worker.name} to ${core.name}`, () => tellingSteps(made, join));
  const apply = `kubectl${context.repeated("kubeconfig")}${flagsText({ context: worker.name })} apply -k FOLDER`;
  const next =
    `${worker.name} may use ${core.name} (${address.server}) as cell ${cell}. Its pods start once the manifests with ` +
    `this id are applied (docs/install.md):\n  ${apply}\n`;
  context.print({ cell, server: address.server, steps: joining.steps }, `${stepsText(joining.steps)}\n${next}`);
  return EXIT.yes;
}

export const join: Command = {
  name: "join",
  usage: "CELL",
  summary: "Give a worker cluster accounts of its own in the core.",
  doing: "looking for the clusters",
  description:
    "Makes ServiceAccounts for the webhook and the aggregator of the cluster in --context, in the core, with the " +
    "permissions of its manifests, and a Secret that their tokens are bound to. Writes their kubeconfigs to the " +
    "Secrets podseidon-core-webhook and podseidon-core-aggregator of the cluster, whose components renew the tokens " +
    "themselves. A second call changes nothing, unless a token was revoked, is rejected or is about to expire.",
  flags: {
    server: {
      type: "string",
      value: "URL",
      help: "The core's address for the worker cluster; that of the core's context when unset.",
    },
    duration: { type: "string", value: "TIME", help: "Life of the tokens, as 24h or 7d. Default: 7d." },
    ...SYSTEM_NAMESPACE,
  },
  arity: [1, 1],
  completes: "cells",
  run,
};
