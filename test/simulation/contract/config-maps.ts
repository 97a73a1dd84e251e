/** The part of the contract's script that writes what the aggregators keep in their cells: maps of a label, changed key by key, read in pages. */
import type { ContractCall, ContractValues } from "./script.ts";

const MERGE = "application/merge-patch+json";
const LABEL = "example.com/copy";

export async function copies(call: ContractCall, maps: string): Promise<void> {
  await call("a map of copies", "POST", maps, map("copy-1", "a", { one: "1", two: "2" }));
  await call("a map of others", "POST", maps, map("copy-2", "b", { one: "1" }));
  await call("a second map of copies", "POST", maps, map("copy-3", "a", { three: "3" }));
  await call("take one out, put one in", "PATCH", `${maps}/copy-1`, { data: { one: null, four: "4" } }, MERGE);
  await call("take out what is not there", "PATCH", `${maps}/copy-1`, { data: { one: null } }, MERGE);
  await call("take out all", "PATCH", `${maps}/copy-3`, { data: { three: null } }, MERGE);
  await call("nothing is left in it", "GET", `${maps}/copy-3`);
  const selected = `${maps}?labelSelector=${encodeURIComponent(`${LABEL}=a`)}&limit=1`;
  const { metadata } = await call("first page of a label", "GET", selected);
  const token = String(Reflect.get(Object(metadata), "continue"));
  await call("second page of a label", "GET", `${selected}&continue=${encodeURIComponent(token)}`);
  await call("maps of the label, whatever it says", "GET", `${maps}?labelSelector=${encodeURIComponent(LABEL)}`);
  await call("maps of a label that none has", "GET", `${maps}?labelSelector=${encodeURIComponent(`${LABEL}-of-none`)}`);
  for (const name of ["copy-1", "copy-2", "copy-3"]) await call(`delete ${name}`, "DELETE", `${maps}/${name}`);
}

function map(name: string, of: string, data: ContractValues): ContractValues {
  return { apiVersion: "v1", kind: "ConfigMap", metadata: { name, labels: { [LABEL]: of } }, data };
}
