/**
 * The values of `--scalable`: a custom resource, and the paths in its objects for the facts that a plugin needs.
 *
 *     GROUP/VERSION/RESOURCE[?SETTING=TEMPLATE[&SETTING=TEMPLATE]...]
 *
 * The settings are `replicas` (several are multiplied), `selector`, `maxUnavailable` and `name`. With `[*]` in its
 * paths, each entry of a list is a group of pods with its own protector; so is each value for the same resource.
 */
import * as v from "valibot";
import { listsOf, parseTemplate, type Template } from "./object-paths.ts";
import type { SourceKind } from "./protection-source.ts";

/** One value of `--scalable`. */
export interface Scalable {
  readonly resource: Omit<SourceKind, "kind">;
  /** Name of the group of pods, at the end of the protector's name. */
  readonly name?: Template | undefined;
  /** The factors of the number of pods; empty where the scale subresource has the number. */
  readonly replicas: readonly Template[];
  /** All of them are required; empty where the scale subresource has the selector. */
  readonly selector: readonly Template[];
  readonly maxUnavailable?: Template | undefined;
}

export interface ScalableResource {
  readonly resource: Scalable["resource"];
  readonly groups: readonly Scalable[];
}

/** Separates two values. A comma counts only before a resource, because a selector may contain commas, too. */
export const SCALABLE_SEPARATOR = /,(?=[a-z0-9][a-z0-9.-]*\/[a-z0-9][a-z0-9.-]*\/[a-z0-9][a-z0-9.-]*(?:[,?]|$))/;

const RESOURCE = "group/version/resource such as argoproj.io/v1alpha1/rollouts";
const template = v.pipe(
  v.string(),
  v.rawTransform<string, Template>(({ dataset, addIssue, NEVER }) => {
    const found = parseTemplate(dataset.value);
    if (found !== undefined) return found;
    addIssue({ message: `is no path such as .spec.size, nor text with paths such as {.metadata.name}-db` });
    return NEVER;
  }),
);
const once = v.pipe(v.array(template), v.maxLength(1, "is given twice"));
const Settings = v.strictObject({
  name: v.optional(once, []),
  replicas: v.optional(v.array(template), []),
  selector: v.optional(v.array(template), []),
  maxUnavailable: v.optional(once, []),
});
const KNOWN = Object.keys(Settings.entries);

/** The resources by their groups, and the problems with the values, as text for the operator. */
export function readScalables(values: readonly string[]): {
  readonly resources: readonly ScalableResource[];
  readonly problems: readonly string[];
} {
  const problems: string[] = [];
  const byResource = new Map<string, { resource: Scalable["resource"]; groups: Scalable[] }>();
  for (const text of values) {
    const found = parseScalable(text);
    if (typeof found === "string") {
      problems.push(found);
      continue;
    }
    const { group, version, resource } = found.resource;
    const known = byResource.get(`${resource}.${group}`) ?? { resource: found.resource, groups: [] };
    if (known.resource.version !== version) problems.push(`${text} is given in another version, too`);
    known.groups.push(found);
    byResource.set(`${resource}.${group}`, known);
  }
  for (const { resource, groups } of byResource.values()) {
    if (groups.length === 1 || groups.every(({ name }) => name !== undefined)) continue;
    problems.push(`${resource.resource}.${resource.group} is given several times: each must have a name of its own`);
  }
  return { resources: [...byResource.values()], problems };
}

/** The parsed value, or the problem with it. */
function parseScalable(text: string): Scalable | string {
  const [path = "", ...rest] = text.split("?");
  const parts = path.split("/");
  const [group = "", version = "", resource = ""] = parts;
  const isResource = parts.length === 3 && parts.every((part) => /^[a-z0-9][a-z0-9.-]*$/.test(part));
  if (!isResource || rest.length > 1) return `expected ${RESOURCE}, not ${text}`;
  const stated: Record<string, string[]> = {};
  for (const setting of rest.flatMap((settings) => settings.split("&"))) {
    const [key = "", ...value] = setting.split("=");
    if (!KNOWN.includes(key)) return `${path}: the setting ${key || '""'} is not one of ${KNOWN.join(", ")}`;
    stated[key] = [...(stated[key] ?? []), value.join("=")];
  }
  const parsed = v.safeParse(Settings, stated);
  if (!parsed.success) {
    const [issue] = parsed.issues;
    return `${path}: ${issue.path?.[0].key} ${issue.message}`;
  }
  const { name, replicas, selector, maxUnavailable } = parsed.output;
  const scalable: Scalable = {
    resource: { group, version, resource },
    ...{ name: name[0], replicas, selector, maxUnavailable: maxUnavailable[0] },
  };
  const problem = contradictionOf(scalable);
  return problem === undefined ? scalable : `${path}: ${problem}`;
}

export function templatesOf({ name, replicas, selector, maxUnavailable }: Scalable): Template[] {
  return [name, ...replicas, ...selector, maxUnavailable].filter((one) => one !== undefined);
}

function contradictionOf(scalable: Scalable): string | undefined {
  const { name, replicas, selector } = scalable;
  const lists = new Set(templatesOf(scalable).flatMap(listsOf));
  const isOfEntry = (one: Template | undefined): boolean => one !== undefined && listsOf(one).length > 0;
  const isCounted = replicas.length > 0;
  if (isCounted && selector.length === 0) return "replicas needs selector";
  if (!isCounted && (name !== undefined || lists.size > 0)) return "name and [*] need replicas";
  if (lists.size > 1) return `one list of groups at most, not ${[...lists].join(" and ")}`;
  if (lists.size > 0 && !isOfEntry(name)) return "with [*], name needs a path with [*] too, to tell groups";
  // Otherwise all groups would protect the same pods.
  if (lists.size > 0 && !selector.some(isOfEntry)) return "with [*], selector needs a path with [*] too";
  return undefined;
}
