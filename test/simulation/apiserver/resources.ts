/** The kinds that the API server model serves, and the target of a request path. */

export interface SimulatedResource {
  readonly group: string;
  readonly version: string;
  readonly plural: string;
  readonly kind: string;
  /** Has a status subresource: writes of the main resource keep the status, and writes of the status keep the rest. */
  readonly status: boolean;
}

export const RESOURCES: readonly SimulatedResource[] = [
  { group: "", version: "v1", plural: "pods", kind: "Pod", status: true },
  { group: "", version: "v1", plural: "configmaps", kind: "ConfigMap", status: false },
  { group: "", version: "v1", plural: "namespaces", kind: "Namespace", status: false },
  { group: "", version: "v1", plural: "events", kind: "Event", status: false },
  { group: "coordination.k8s.io", version: "v1", plural: "leases", kind: "Lease", status: false },
  { group: "apps", version: "v1", plural: "deployments", kind: "Deployment", status: true },
  { group: "podseidon.kubewharf.io", version: "v1alpha1", plural: "podprotectors", kind: "PodProtector", status: true },
];

export interface RequestTarget {
  readonly resource: SimulatedResource;
  readonly namespace: string | undefined;
  readonly name: string | undefined;
  readonly subresource: string | undefined;
  readonly query: URLSearchParams;
}

const MOST_KNOWN_PATHS = 10_000;
const known = new Map<string, RequestTarget | null>();

/** The target of a request path; undefined when the model does not serve it. Each path is parsed once. */
export function parsePath(path: string): RequestTarget | undefined {
  const read = known.get(path);
  if (read !== undefined) return read ?? undefined;
  if (known.size >= MOST_KNOWN_PATHS) known.clear();
  const target = readPath(path);
  known.set(path, target ?? null);
  return target;
}

function readPath(path: string): RequestTarget | undefined {
  const url = new URL(path, "https://model");
  const parts = url.pathname
    .split("/")
    .filter((part) => part !== "")
    .map(decodeURIComponent);
  const [root, ...rest] = parts;
  const group = root === "api" ? "" : rest.shift();
  const version = rest.shift();
  let namespace: string | undefined;
  if (rest[0] === "namespaces" && rest.length > 2) {
    namespace = rest[1];
    rest.splice(0, 2);
  }
  const [plural, name, subresource] = rest;
  const resource = RESOURCES.find((one) => one.group === group && one.version === version && one.plural === plural);
  return resource && { resource, namespace, name, subresource, query: url.searchParams };
}

export function keyOf(resource: SimulatedResource, namespace: string | undefined, name: string): string {
  return `${resource.plural}/${namespace ?? ""}/${name}`;
}

export function prefixOf(resource: SimulatedResource, namespace: string | undefined): string {
  return namespace === undefined ? `${resource.plural}/` : `${resource.plural}/${namespace}/`;
}
