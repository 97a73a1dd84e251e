/** ConfigMaps of one namespace in memory, behind the calls that the code makes. */
import type { ApiClient } from "../../../shared/kube/client/api-client.ts";
import type { ApiResult } from "../../../shared/kube/client/api-result.ts";
import type { ConfigMap } from "../../../shared/schema/config-map.ts";

type Api = Pick<ApiClient, "get" | "create" | "patch" | "delete">;
type Data = Record<string, string | null>;

interface Body {
  readonly metadata?: {
    readonly name?: string;
    readonly labels?: Record<string, string>;
    readonly annotations?: Record<string, string>;
    readonly resourceVersion?: string;
  };
  readonly data?: Data;
}

function isBody(value: unknown): value is Body {
  return typeof value === "object" && value !== null;
}

export class ConfigMaps implements Api {
  readonly maps = new Map<string, ConfigMap>();
  /** Method and name of each write. */
  readonly writes: string[] = [];
  /** Answered instead of the next calls. */
  readonly faults: ApiResult<never>[] = [];
  version = 100;

  data(name: string): Readonly<Record<string, string>> | undefined {
    return this.maps.get(name)?.data ?? undefined;
  }

  put(
    name: string,
    data: Readonly<Record<string, string>>,
    labels: Record<string, string> = {},
    annotations: Readonly<Record<string, string>> = this.maps.get(name)?.metadata.annotations ?? {},
  ): ConfigMap {
    const before = this.maps.get(name);
    const resourceVersion = String(++this.version);
    const metadata = {
      name,
      uid: before?.metadata.uid ?? `uid-${resourceVersion}`,
      resourceVersion,
      labels,
      annotations: { ...annotations },
    };
    const map: ConfigMap = { metadata, data: { ...data } };
    this.maps.set(name, map);
    return map;
  }

  async get<T>(path: string, parse: (raw: unknown) => T): Promise<ApiResult<T>> {
    const fault = this.faults.shift();
    if (fault !== undefined) return fault;
    const { pathname, searchParams } = new URL(path, "https://model");
    if (pathname.endsWith("/configmaps")) return this.#list(searchParams.get("labelSelector") ?? "", parse);
    const found = this.maps.get(nameOf(path));
    return found === undefined ? { kind: "gone" } : { kind: "ok", object: parse(found) };
  }

  async create<T>(_path: string, body: unknown, parse: (raw: unknown) => T): Promise<ApiResult<T>> {
    const fault = this.faults.shift();
    if (fault !== undefined) return fault;
    const { metadata, data } = isBody(body) ? body : {};
    const name = metadata?.name ?? "";
    this.writes.push(`create ${name}`);
    if (this.maps.has(name)) return { kind: "conflict", message: "exists" };
    return {
      kind: "ok",
      object: parse(this.put(name, merged({}, data ?? {}), metadata?.labels, metadata?.annotations)),
    };
  }

  async patch<T>(path: string, _type: unknown, body: unknown, parse: (raw: unknown) => T): Promise<ApiResult<T>> {
    const fault = this.faults.shift();
    if (fault !== undefined) return fault;
    const name = nameOf(path);
    this.writes.push(`patch ${name}`);
    const before = this.maps.get(name);
    if (before === undefined) return { kind: "gone" };
    const { resourceVersion = before.metadata.resourceVersion } = (isBody(body) ? body.metadata : undefined) ?? {};
    if (resourceVersion !== before.metadata.resourceVersion) return { kind: "conflict", message: "changed" };
    const { metadata, data } = isBody(body) ? body : {};
    const labels = { ...before.metadata.labels, ...metadata?.labels };
    return { kind: "ok", object: parse(this.put(name, merged(before.data ?? {}, data ?? {}), labels)) };
  }

  async delete(path: string): Promise<ApiResult<unknown>> {
    this.writes.push(`delete ${nameOf(path)}`);
    return this.maps.delete(nameOf(path)) ? { kind: "ok", object: undefined } : { kind: "gone" };
  }

  #list<T>(selector: string, parse: (raw: unknown) => T): ApiResult<T> {
    const [key = "", value] = selector.split("=");
    const items = [...this.maps.values()].filter(({ metadata }) => {
      const found = metadata.labels?.[key];
      return found !== undefined && (value === undefined || found === value);
    });
    return { kind: "ok", object: parse({ metadata: {}, items }) };
  }
}

function nameOf(path: string): string {
  return new URL(path, "https://model").pathname.split("/").at(-1) ?? "";
}

/** As a merge patch has it: null takes a key away. */
function merged(before: Readonly<Record<string, string>>, change: Data): Record<string, string> {
  const all = Object.entries({ ...before, ...change });
  return Object.fromEntries(all.filter((entry): entry is [string, string] => entry[1] !== null));
}
