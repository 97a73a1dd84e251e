/** The part of the contract's script that the generator lives by: dry runs, preconditions, ConfigMaps. */
import type { ContractCall } from "./script.ts";

const MERGE = "application/merge-patch+json";
const LABELS = { "example.com/contract": "yes" };

export interface GeneratedPlace {
  readonly protectors: string;
  /** Path of the namespace's ConfigMaps. */
  readonly maps: string;
}

/** `protector` is there as `name`. */
export async function generated(
  call: ContractCall,
  place: GeneratedPlace,
  protector: unknown,
  name: string,
): Promise<void> {
  const { protectors: path, maps } = place;
  await call("create by dry run what is there", "POST", `${path}?dryRun=All`, protector);
  const old = { preconditions: { resourceVersion: "1" } };
  await call("delete at another version", "DELETE", `${path}/${name}`, old);
  await call("neither has changed anything", "GET", `${path}/${name}`);
  const map = { apiVersion: "v1", kind: "ConfigMap", metadata: { name: "releases", labels: LABELS }, data: { a: "1" } };
  await call("patch a map that is not there", "PATCH", `${maps}/releases`, { data: { b: "2" } }, MERGE);
  await call("a map", "POST", maps, map);
  await call("a map again", "POST", maps, map);
  await call("patch the map", "PATCH", `${maps}/releases`, { data: { b: "2" } }, MERGE);
  await call("patch the map to what it is", "PATCH", `${maps}/releases`, { data: { b: "2" } }, MERGE);
  await call("maps of a label", "GET", `${maps}?labelSelector=${encodeURIComponent("example.com/contract=yes")}`);
  await call("maps of another", "GET", `${maps}?labelSelector=${encodeURIComponent("example.com/contract=no")}`);
  await call("delete the map", "DELETE", `${maps}/releases`);
  await call("the map is gone", "GET", `${maps}/releases`);
}
