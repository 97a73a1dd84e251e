/**
 * The parts of the contract's script that the product's components need: changes in place, the generator's writes,
 * backups.
 */
import type { ContractCall, ContractValues } from "./script.ts";

const MERGE = "application/merge-patch+json";
const STRATEGIC = "application/strategic-merge-patch+json";
const LABELS = { "example.com/contract": "yes" };
const LABEL = "example.com/backup";

export async function changesInPlace(call: ContractCall, pods: string): Promise<void> {
  const made = await call("pod changed", "POST", pods, changeable("changed"));
  await call("another image", "PATCH", `${pods}/changed`, image("app:2"), STRATEGIC);
  await call("the same image", "PATCH", `${pods}/changed`, image("app:2"), STRATEGIC);
  await call("another image, by dry run", "PATCH", `${pods}/changed?dryRun=All`, image("app:3"), STRATEGIC);
  await call("still the old one", "GET", `${pods}/changed`);
  await call("replace at an old version", "PUT", `${pods}/changed`, made);
  await call("another image of an absent pod", "PATCH", `${pods}/none`, image("app:3"), STRATEGIC);
  // Without a node: the real server asks the node whether it can resize.
  await call("pod resized", "POST", pods, changeable("resized", {}));
  await call("resize", "PATCH", `${pods}/resized/resize`, cpu("200m"), STRATEGIC);
  await call("delete what was resized", "DELETE", `${pods}/resized`);
  await call("resize an absent pod", "PATCH", `${pods}/none/resize`, cpu("200m"), STRATEGIC);
  await call("a label", "PATCH", `${pods}/changed`, { metadata: { labels: { x: "1" } } }, STRATEGIC);
  await call("a condition", "PATCH", `${pods}/changed/status`, condition("example.com/counted", "True"), STRATEGIC);
  await call("a second one", "PATCH", `${pods}/changed/status`, condition("example.com/other", "True"), STRATEGIC);
  await call(
    "the first one again",
    "PATCH",
    `${pods}/changed/status`,
    condition("example.com/counted", "False"),
    STRATEGIC,
  );
  const stranger = { metadata: { uid: "00000000-0000-0000-0000-000000000000" } };
  const body = { ...condition("example.com/counted", "True"), ...stranger };
  await call("a condition of another UID", "PATCH", `${pods}/changed/status`, body, STRATEGIC);
  await call("delete what was changed", "DELETE", `${pods}/changed`);
  await call("what was changed is terminating", "GET", `${pods}/changed`);
}

function changeable(name: string, placed: ContractValues = { nodeName: "node-1" }): ContractValues {
  const resources = { requests: { cpu: "100m", memory: "64Mi" } };
  const resizePolicy = [{ resourceName: "cpu", restartPolicy: "RestartContainer" }];
  const containers = [{ name: "app", image: "app:1", resources, resizePolicy }];
  const spec = { ...placed, containers };
  return { apiVersion: "v1", kind: "Pod", metadata: { name, labels: { app: "web" } }, spec };
}

function image(name: string): ContractValues {
  return { spec: { containers: [{ name: "app", image: name }] } };
}

function cpu(amount: string): ContractValues {
  return { spec: { containers: [{ name: "app", resources: { requests: { cpu: amount } } }] } };
}

function condition(type: string, status: string): ContractValues {
  return { status: { conditions: [{ type, status }] } };
}

interface GeneratedPlace {
  readonly protectors: string;
  /** Path of the namespace's ConfigMaps. */
  readonly maps: string;
}

/** `protector` exists as `name`. */
export async function generatorWrites(
  call: ContractCall,
  place: GeneratedPlace,
  protector: unknown,
  name: string,
): Promise<void> {
  const { protectors: path, maps } = place;
  await call("create an existing object by dry run", "POST", `${path}?dryRun=All`, protector);
  const old = { preconditions: { resourceVersion: "1" } };
  await call("delete at another version", "DELETE", `${path}/${name}`, old);
  await call("neither has changed anything", "GET", `${path}/${name}`);
  const map = { apiVersion: "v1", kind: "ConfigMap", metadata: { name: "releases", labels: LABELS }, data: { a: "1" } };
  await call("patch an absent map", "PATCH", `${maps}/releases`, { data: { b: "2" } }, MERGE);
  await call("a map", "POST", maps, map);
  await call("a map again", "POST", maps, map);
  await call("patch the map", "PATCH", `${maps}/releases`, { data: { b: "2" } }, MERGE);
  await call("patch the map without a change", "PATCH", `${maps}/releases`, { data: { b: "2" } }, MERGE);
  await call("maps of a label", "GET", `${maps}?labelSelector=${encodeURIComponent("example.com/contract=yes")}`);
  await call("maps of another", "GET", `${maps}?labelSelector=${encodeURIComponent("example.com/contract=no")}`);
  await call("delete the map", "DELETE", `${maps}/releases`);
  await call("the map is gone", "GET", `${maps}/releases`);
}

export async function backupMaps(call: ContractCall, maps: string): Promise<void> {
  await call("a map of backups", "POST", maps, map("backup-1", "a", { one: "1", two: "2" }));
  await call("a map of others", "POST", maps, map("backup-2", "b", { one: "1" }));
  await call("a second map of backups", "POST", maps, map("backup-3", "a", { three: "3" }));
  await call("remove one key, add another", "PATCH", `${maps}/backup-1`, { data: { one: null, four: "4" } }, MERGE);
  await call("remove an absent key", "PATCH", `${maps}/backup-1`, { data: { one: null } }, MERGE);
  await call("remove all keys", "PATCH", `${maps}/backup-3`, { data: { three: null } }, MERGE);
  await call("no key is left", "GET", `${maps}/backup-3`);
  const selected = `${maps}?labelSelector=${encodeURIComponent(`${LABEL}=a`)}&limit=1`;
  const { metadata } = await call("first page of a label", "GET", selected);
  const token = String(Reflect.get(Object(metadata), "continue"));
  await call("second page of a label", "GET", `${selected}&continue=${encodeURIComponent(token)}`);
  await call("maps with the label, whatever its value", "GET", `${maps}?labelSelector=${encodeURIComponent(LABEL)}`);
  await call(
    "maps with a label that no map has",
    "GET",
    `${maps}?labelSelector=${encodeURIComponent(`${LABEL}-of-none`)}`,
  );
  for (const name of ["backup-1", "backup-2", "backup-3"]) await call(`delete ${name}`, "DELETE", `${maps}/${name}`);
}

function map(name: string, of: string, data: ContractValues): ContractValues {
  return { apiVersion: "v1", kind: "ConfigMap", metadata: { name, labels: { [LABEL]: of } }, data };
}
