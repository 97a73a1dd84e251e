/** Holds the simulation's API server model to the real kube-apiserver: clients observe the same, step by step. */
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import { BARE, Cluster } from "../../scripts/control-plane/cluster.ts";
import { root } from "../../scripts/root.ts";
import { modelServer } from "../simulation/contract/model.ts";
import { CONTRACT_NAMESPACE, type ContractServer, observe } from "../simulation/contract/script.ts";

let cluster: Cluster;

beforeAll(async () => {
  cluster = await Cluster.start({
    name: "contract",
    ...BARE,
    flags: { "kube-apiserver": { "feature-gates": "ShardedListAndWatch=true" } },
  });
  await cluster.apply(readFileSync(join(root, "crds/podseidon.kubewharf.io_podprotectors.yaml"), "utf8"));
  await cluster.admin.call("POST", "/api/v1/namespaces", {
    apiVersion: "v1",
    kind: "Namespace",
    metadata: { name: CONTRACT_NAMESPACE },
  });
  await cluster.waitFor("the CRD to be served", async () => {
    const { status } = await cluster.admin.request("GET", "/apis/podseidon.kubewharf.io/v1alpha1/podprotectors");
    return status === 200;
  });
});

afterAll(() => cluster?.stop());

function realServer(): ContractServer {
  return {
    request: (method, path, body, contentType) =>
      cluster.admin.request(method, path, body, contentType === undefined ? {} : { contentType }),
    watch: async (path) => {
      const { text } = await cluster.admin.request("GET", path);
      return text
        .split("\n")
        .filter((line) => line !== "")
        .map((line): unknown => JSON.parse(line));
    },
  };
}

test("a client observes the same of the model and of the real server", async () => {
  const real = await observe(realServer());
  expect(await observe(modelServer())).toEqual(real);
});
