/**
 * The objects that `join` creates for a cell: accounts and permissions in the core, kubeconfigs in the worker cluster.
 * Pure.
 */
import { corePath } from "../../../shared/kube/client/api-path.ts";
import {
  extensionsOf,
  KUBECONFIG_KEY,
  readAccountToken,
  renewalMs,
  type TokenHome,
} from "../../../shared/kube/credentials/account-token.ts";
import { CommandError } from "../invocation/errors.ts";

/** The processes of a worker cluster that use the core, each with its own account there. */
export const COMPONENTS = ["webhook", "aggregator"] as const;
export type CellComponent = (typeof COMPONENTS)[number];

const RBAC = "rbac.authorization.k8s.io";
/** Which cluster joined as the cell: the UID of its namespace `kube-system`. */
export const CLUSTER_ANNOTATION = "podseidon.kubewharf.io/cluster";
const LABELS = { "app.kubernetes.io/part-of": "podseidon" };
/** Selects what `join` makes. */
export const OWN_SELECTOR = "app.kubernetes.io/part-of=podseidon";

const SUBDOMAIN = /^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$/;
/** Names of objects have 253 characters; the longest prefix here is `podseidon-aggregator-register.`. */
const MAX_CELL_CHARACTERS = 253 - "podseidon-aggregator-register.".length;

/** Throws a sentence for a cell whose id is invalid in the names of its accounts. */
export function checkCellName(cell: string): void {
  if (cell.length <= MAX_CELL_CHARACTERS && SUBDOMAIN.test(cell)) return;
  throw new CommandError(
    `${cell}: the id of a cell that joins is part of names of ServiceAccounts: lower-case letters, digits, "-" and ` +
      `".", with a letter or digit at each end, as in worker-2 (a DNS-1123 subdomain, at most ${MAX_CELL_CHARACTERS})`,
  );
}

/** The account in the core. The core's policies match this name. */
export const accountName = (component: CellComponent, cell: string): string => `podseidon-${component}.${cell}`;
/** The Secret in the core that the tokens of the cell are bound to. */
export const boundSecretName = (cell: string): string => `podseidon-cell.${cell}`;
export const cellOfSecret = (name: string): string => name.replace("podseidon-cell.", "");
/** The Secret in the worker cluster that the component mounts. */
export const kubeconfigSecretName = (component: CellComponent): string => `podseidon-core-${component}`;

/** An object to apply. */
export interface CellObject {
  /** The name in kubectl's format: `secret/podseidon-cell.worker-2`. */
  readonly name: string;
  readonly path: string;
  readonly body: Readonly<Record<string, unknown>>;
}

function rbacObject(kind: string, namespace: string | undefined, name: string, rest: object): CellObject {
  const plural = `${kind.toLowerCase()}s`;
  const within = namespace === undefined ? "" : `/namespaces/${namespace}`;
  return {
    name: `${kind.toLowerCase()}/${name}`,
    path: `/apis/${RBAC}/v1${within}/${plural}/${name}`,
    body: { apiVersion: `${RBAC}/v1`, kind, metadata: { name, namespace, labels: LABELS }, ...rest },
  };
}

function coreObject(kind: "Secret" | "ServiceAccount", namespace: string, name: string, rest: object): CellObject {
  const resource = kind === "Secret" ? "secrets" : "serviceaccounts";
  return {
    name: `${kind.toLowerCase()}/${name}`,
    path: corePath(resource, namespace, name),
    body: { apiVersion: "v1", kind, metadata: { name, namespace, labels: LABELS }, ...rest },
  };
}

/** The bound Secret; `cluster` is the value of {@link CLUSTER_ANNOTATION}. */
export function boundSecret(cell: string, namespace: string, cluster: string): CellObject {
  const made = coreObject("Secret", namespace, boundSecretName(cell), { type: "Opaque" });
  const metadata = { name: boundSecretName(cell), namespace, labels: LABELS };
  return { ...made, body: { ...made.body, metadata: { ...metadata, annotations: { [CLUSTER_ANNOTATION]: cluster } } } };
}

/** The roles of `manifests/base/*-core-access`, which the accounts are bound to. */
export function rolesOf(namespace: string): readonly { readonly name: string; readonly path: string }[] {
  return COMPONENTS.flatMap((component) => [
    rbacObject("ClusterRole", undefined, `podseidon-${component}-core`, {}),
    rbacObject("Role", namespace, `podseidon-${component}-register`, {}),
  ]);
}

/**
 * The account of one component and its permissions. The account may request tokens for itself, but for no other
 * account.
 */
export function accountObjects(component: CellComponent, cell: string, namespace: string): readonly CellObject[] {
  const account = accountName(component, cell);
  const subjects = [{ kind: "ServiceAccount", name: account, namespace }];
  const bound = (kind: "ClusterRole" | "Role", role: string, name = `${role}.${cell}`): CellObject => {
    const roleRef = { apiGroup: RBAC, kind, name: role };
    return rbacObject(`${kind}Binding`, kind === "Role" ? namespace : undefined, name, { roleRef, subjects });
  };
  const renewal = `podseidon-${component}-token.${cell}`;
  const rules = [
    { apiGroups: [""], resources: ["serviceaccounts/token"], resourceNames: [account], verbs: ["create"] },
  ];
  return [
    coreObject("ServiceAccount", namespace, account, { automountServiceAccountToken: false }),
    bound("ClusterRole", `podseidon-${component}-core`),
    bound("Role", `podseidon-${component}-register`),
    rbacObject("Role", namespace, renewal, { rules }),
    bound("Role", renewal, renewal),
  ];
}

/** How the worker cluster reaches the core. */
export interface CoreAddress {
  readonly server: string;
  /** PEM; undefined uses the machine's trust store. */
  readonly ca: string | undefined;
  readonly serverName: string | undefined;
}

/** The kubeconfig of one component, as text. */
export function kubeconfigText({ server, ca, serverName }: CoreAddress, user: string, token: string, home: TokenHome) {
  const cluster = {
    server,
    ...(ca === undefined ? {} : { "certificate-authority-data": Buffer.from(ca).toString("base64") }),
    ...(serverName === undefined ? {} : { "tls-server-name": serverName }),
  };
  const config = {
    apiVersion: "v1",
    kind: "Config",
    "current-context": "core",
    clusters: [{ name: "core", cluster }],
    contexts: [{ name: "core", context: { cluster: "core", user } }],
    users: [{ name: user, user: { token, extensions: extensionsOf(home) } }],
  };
  return `${JSON.stringify(config, null, 2)}\n`;
}

/** The Secret of one component in the worker cluster. */
export function kubeconfigSecret(component: CellComponent, namespace: string, text: string): CellObject {
  const data = { [KUBECONFIG_KEY]: Buffer.from(text).toString("base64") };
  return coreObject("Secret", namespace, kubeconfigSecretName(component), { type: "Opaque", data });
}

/** Whether a token is bound to these UIDs, so that it is not revoked, and does not expire soon. */
export function isUsable(token: string, accountUid: string, secretUid: string, nowMs: number): boolean {
  const read = readAccountToken(token);
  if (read?.account?.uid !== accountUid || read.boundTo?.uid !== secretUid) return false;
  return nowMs < renewalMs(read, 0);
}
