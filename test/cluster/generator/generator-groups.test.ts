/** Objects with several protectors: one for each group of pods that the paths of `--scalable` name. */

import { afterAll, beforeAll, expect, test } from "vitest";
import { field, items } from "../../../scripts/control-plane/api-client.ts";
import { BARE, Cluster } from "../../../scripts/control-plane/cluster.ts";
import type { Transport } from "../../../shared/kube/client/transport.ts";
import { PROTECTED } from "../../support/cluster/deployments.ts";
import {
  eventually,
  GROUP,
  generatorTransport,
  grantScalable,
  installCrd,
  installGenerator,
  protectorPath,
  type RunningGenerator,
  readObject,
  startGenerator,
} from "../../support/generator/generator-harness.ts";

/** Of a kind without a scale subresource, whose objects have several groups of pods. */
const SHARDS =
  "fleet.example.com/v1/databases?name=.spec.shards[*].name&replicas=.spec.shards[*].size" +
  "&selector=db={.metadata.name},shard={.spec.shards[*].name}&maxUnavailable=.spec.shards[*].maxUnavailable";
const namespace = "default";

let cluster: Cluster;
let transport: Transport;
let one: RunningGenerator | undefined;

beforeAll(async () => {
  cluster = await Cluster.start(BARE);
  await installGenerator(cluster);
  await grantScalable(cluster, "fleet.example.com", "databases");
  transport = await generatorTransport(cluster);
});

afterAll(async () => {
  await one?.stop();
  transport?.close();
  await cluster?.stop();
});

function database(shards: readonly object[]): object {
  const metadata = { name: "web", namespace, labels: PROTECTED };
  return { apiVersion: "fleet.example.com/v1", kind: "Database", metadata, spec: { minReadySeconds: 30, shards } };
}

const minimum = (name: string, expected: number): Promise<unknown> =>
  eventually(cluster, protectorPath(namespace, name), (found) => field(found, "spec", "minAvailable") === expected);
const gone = (path: string): Promise<unknown> => eventually(cluster, path, (found) => found === undefined);
const patch = (path: string, body: object): Promise<unknown> => cluster.admin.call("PATCH", path, body);
const told = (running: RunningGenerator, kind: string): Promise<void> =>
  cluster.waitFor(`an event ${kind}`, async () => running.events.some((event) => event.kind === kind));

test("a custom resource by the paths of its fields has a protector for each group of its pods", async () => {
  one = startGenerator(transport, { plugins: { scalable: [SHARDS] } });
  await installCrd(cluster, "databases.fleet.example.com");
  const path = `/apis/fleet.example.com/v1/namespaces/${namespace}/databases/web`;
  const [a, b] = [
    { name: "a", size: 8 },
    { name: "b", size: 5, maxUnavailable: 1 },
  ];
  const shards = (...all: readonly object[]): Promise<unknown> => patch(path, { spec: { shards: all } });
  const names = async (): Promise<unknown[]> =>
    items(await cluster.admin.get(protectorPath(namespace))).map((found) => field(found, "metadata", "name"));
  await cluster.apply([database([a, b])]);
  await minimum("database-web-a", 6);
  const found = await minimum("database-web-b", 4);
  expect(field(found, "spec", "selector", "matchExpressions")).toEqual([
    { key: "db", operator: "In", values: ["web"] },
    { key: "shard", operator: "In", values: ["b"] },
  ]);
  expect(field(found, "spec", "minReadySeconds")).toBe(30);
  expect(field(found, "metadata", "ownerReferences", 0, "kind")).toBe("Database");
  await shards(a, { name: "b", size: 9, maxUnavailable: 2 }, { name: "c", size: 2 });
  await minimum("database-web-b", 7);
  await minimum("database-web-c", 1);
  await cluster.admin.call("DELETE", protectorPath(namespace, "database-web-c"));
  await eventually(cluster, protectorPath(namespace, "database-web-c"), (after) => {
    const uid = field(after, "metadata", "uid");
    return uid !== undefined && field(after, "metadata", "deletionTimestamp") === undefined;
  });
  // What can't be read keeps its protector, and hides no other group.
  await shards({ name: "a", size: 12 }, { name: "b" });
  await told(one, "unresolved");
  await minimum("database-web-a", 9);
  expect(await names()).toEqual(["database-web-a", "database-web-b", "database-web-c"]);
  await shards({ name: "a", size: 12 }, b);
  await gone(protectorPath(namespace, "database-web-c"));
  await minimum("database-web-b", 4);
  expect(field(await readObject(cluster, path), "metadata", "finalizers")).toEqual([`${GROUP}/generator`]);
  await cluster.admin.call("DELETE", path);
  await shards({ name: "a", size: 0 }, { ...b, size: 1 });
  await minimum("database-web-a", 0);
  expect(await names()).toEqual(["database-web-a", "database-web-b"]);
  await shards({ name: "a", size: 0 }, { ...b, size: 0 });
  await gone(path);
  expect(await names()).toEqual([]);
});
