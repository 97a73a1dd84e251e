/** Paths and queries of API requests. */
import { GROUP, PLURAL, VERSION } from "../../schema/annotations.ts";
import { MAX_NAME_LENGTH } from "../../schema/lengths.ts";

export const PODPROTECTORS_PATH = `/apis/${GROUP}/${VERSION}/${PLURAL}`;

type CoreResource = "configmaps" | "events" | "pods" | "secrets" | "serviceaccounts";

/** A name from an admission request may contain half a surrogate pair, which is invalid in the name of an object. */
export function pathSegment(name: string): string {
  return encodeURIComponent(name.toWellFormed());
}

/**
 * Whether an object can have this name. A forged request may contain any text, and so may a reference to an object.
 * kube-apiserver decodes a path before it splits the path at slashes.
 */
export function isObjectName(name: string): boolean {
  return name.length <= MAX_NAME_LENGTH && /^(?!\.\.?$)[^/%]+$/.test(name);
}

/** Path of a collection in a namespace (empty for all), of one of its objects, or of an object's subresource. */
function pathOf(api: string, resource: string, namespace: string, name?: string, subresource?: string): string {
  const collection = `${api}${namespace === "" ? "" : `/namespaces/${pathSegment(namespace)}`}/${resource}`;
  if (name === undefined) return collection;
  return `${collection}/${pathSegment(name)}${subresource === undefined ? "" : `/${subresource}`}`;
}

/** Path of the PodProtectors of a namespace, of one PodProtector, or of its subresource. */
export function podProtectorPath(namespace: string, name?: string, subresource?: "status"): string {
  return pathOf(`/apis/${GROUP}/${VERSION}`, PLURAL, namespace, name, subresource);
}

/** Path of a resource of the core API. */
export function corePath(resource: CoreResource, namespace: string, name?: string, subresource?: string): string {
  return pathOf("/api/v1", resource, namespace, name, subresource);
}

/** Path of the pods of a namespace, of one pod, or of its subresource. */
export function podPath(namespace: string, name?: string, subresource?: "eviction" | "status"): string {
  return corePath("pods", namespace, name, subresource);
}

/** Path of the ConfigMaps of a namespace, or of one ConfigMap. */
export function configMapPath(namespace: string, name?: string): string {
  return corePath("configmaps", namespace, name);
}

type Parameters = Readonly<Record<string, string | number | boolean | undefined>>;

/** The path with a query; undefined parameters are left out. */
export function withQuery(path: string, parameters: Parameters): string {
  const text = Object.entries(parameters)
    .filter(([, value]) => value !== undefined)
    .map(([name, value]) => `${encodeURIComponent(name)}=${encodeURIComponent(String(value))}`)
    .join("&");
  return text === "" ? path : `${path}?${text}`;
}
