/** The part of the contract's script that the generator lives by: dry runs, preconditions, ConfigMaps. */
import { type Call, CONTRACT_NAMESPACE } from "./script.ts";

const MERGE = "application/merge-patch+json";
const MAPS = `/api/v1/namespaces/${CONTRACT_NAMESPACE}/configmaps`;
const LABELS = { "example.com/contract": "yes" };

/** `protector` is there under `path`. */
export async function generated(call: Call, path: string, protector: unknown, name: string): Promise<void> {
  await call("create by dry run what is there", "POST", `${path}?dryRun=All`, protector);
  const old = { preconditions: { resourceVersion: "1" } };
  await call("delete at another version", "DELETE", `${path}/${name}`, old);
  await call("neither has changed anything", "GET", `${path}/${name}`);
  const map = { apiVersion: "v1", kind: "ConfigMap", metadata: { name: "releases", labels: LABELS }, data: { a: "1" } };
  await call("patch a map that is not there", "PATCH", `${MAPS}/releases`, { data: { b: "2" } }, MERGE);
  await call("a map", "POST", MAPS, map);
  await call("a map again", "POST", MAPS, map);
  await call("patch the map", "PATCH", `${MAPS}/releases`, { data: { b: "2" } }, MERGE);
  await call("patch the map to what it is", "PATCH", `${MAPS}/releases`, { data: { b: "2" } }, MERGE);
  await call("maps of a label", "GET", `${MAPS}?labelSelector=${encodeURIComponent("example.com/contract=yes")}`);
  await call("maps of another", "GET", `${MAPS}?labelSelector=${encodeURIComponent("example.com/contract=no")}`);
  await call("delete the map", "DELETE", `${MAPS}/releases`);
  await call("the map is gone", "GET", `${MAPS}/releases`);
}
