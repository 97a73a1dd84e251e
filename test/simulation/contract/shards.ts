/**
 * The part of the contract's script for lists and watches of shards (KEP-5866, feature gate `ShardedListAndWatch`).
 * UIDs are random, so the observation is whether each shard shows exactly the objects that its hash range selects.
 * ConfigMaps are used, because the real server announces the deletion of a pod in two events.
 */
import { shardOf } from "../apiserver/shards.ts";
import type { ContractServer, ContractValues } from "./script.ts";

const COUNT = 2;
const MAPS = 12;
const SELECTORS = [
  "shardRange(object.metadata.uid, '0x0000000000000000', '0x8000000000000000')",
  "shardRange(object.metadata.uid, '0x8000000000000000', '0x10000000000000000')",
] as const;
const MERGE = "application/merge-patch+json";

interface Script {
  readonly server: ContractServer;
  /** Path of the ConfigMaps. */
  readonly path: string;
  note(step: string, seen: ContractValues): void;
}

export async function shardedLists(script: Script): Promise<void> {
  const { server, path, note } = script;
  const uids: string[] = [];
  const made = async (name: string): Promise<string> => {
    const { body } = await server.request("POST", path, { apiVersion: "v1", kind: "ConfigMap", metadata: { name } });
    return String(metadataOf(body).uid);
  };
  for (let index = 0; index < MAPS; index += 1) uids.push(await made(`shard-${index}`));
  const all = await server.request("GET", path);
  const version = String(metadataOf(all.body).resourceVersion);
  const known = uidsOf(all.body);
  note("objects to shard", { areThere: uids.every((uid) => known.includes(uid)) });
  for (const [shard, selector] of SELECTORS.entries()) {
    const expected = known.filter((uid) => shardOf(uid, COUNT) === shard).sort();
    const query = `shardSelector=${encodeURIComponent(selector)}`;
    await pages(script, "a shard", expected, selector, [query]);
    await pages(script, "a shard, page by page", expected, selector, [query, "limit=2"]);
    const floor = `resourceVersion=${version}&resourceVersionMatch=NotOlderThan`;
    await pages(script, "a shard, not older than", expected, selector, [query, floor]);
  }
  await changes(script, version, await made("shard-late"));
  const { status } = await server.request("GET", `${path}?shardSelector=nonsense`);
  note("a shard that can't be read", { status });
}

async function pages(
  { server, path, note }: Script,
  step: string,
  expected: readonly string[],
  selector: string,
  query: readonly string[],
): Promise<void> {
  const found: string[] = [];
  const versions = new Set<unknown>();
  let isNamed = true;
  let token = "";
  do {
    const parts = [...query, ...(token === "" ? [] : [`continue=${encodeURIComponent(token)}`])];
    const { body } = await server.request("GET", `${path}?${parts.join("&")}`);
    const { resourceVersion, shardInfo, continue: next } = metadataOf(body);
    found.push(...uidsOf(body));
    versions.add(resourceVersion);
    isNamed &&= record(shardInfo).selector === selector;
    token = typeof next === "string" ? next : "";
  } while (token !== "");
  note(step, { isExact: found.sort().join() === expected.join(), isOneVersion: versions.size === 1, isNamed });
}

/** Notes what each shard's watch announces after `version`; `late` was created since. */
async function changes({ server, path, note }: Script, version: string, late: string): Promise<void> {
  const events: (readonly [type: string, uid: string])[] = [["ADDED", late]];
  for (const name of ["shard-0", "shard-1", "shard-2", "shard-3", "shard-late"]) {
    const patch = { metadata: { annotations: { touched: "yes" } } };
    const { body } = await server.request("PATCH", `${path}/${name}`, patch, MERGE);
    events.push(["MODIFIED", String(metadataOf(body).uid)]);
    await server.request("DELETE", `${path}/${name}`);
    events.push(["DELETED", String(metadataOf(body).uid)]);
  }
  for (const [shard, selector] of SELECTORS.entries()) {
    const query = `watch=true&resourceVersion=${version}&timeoutSeconds=2`;
    const seen = (await server.watch(`${path}?${query}&shardSelector=${encodeURIComponent(selector)}`)).map((line) => {
      const { type, object } = record(line);
      return `${String(type)} ${String(metadataOf(object).uid)}`;
    });
    const expected = events.filter(([, uid]) => shardOf(uid, COUNT) === shard).map((event) => event.join(" "));
    note("a watch of a shard", { isExact: seen.join() === expected.join() });
  }
}

function uidsOf(list: unknown): string[] {
  const { items } = record(list);
  return (Array.isArray(items) ? items : []).map((item) => String(metadataOf(item).uid));
}

function metadataOf(object: unknown): ContractValues {
  return record(record(object).metadata);
}

function record(value: unknown): ContractValues {
  return typeof value === "object" && value !== null && !Array.isArray(value) ? { ...value } : {};
}
