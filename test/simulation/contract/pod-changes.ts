/** The part of the contract's script that changes pods in place, and sets conditions of one's own. */
import type { ContractCall, ContractValues } from "./script.ts";

const STRATEGIC = "application/strategic-merge-patch+json";

export async function changes(call: ContractCall, pods: string): Promise<void> {
  const made = await call("pod changed", "POST", pods, changeable("changed"));
  await call("another image", "PATCH", `${pods}/changed`, image("app:2"), STRATEGIC);
  await call("the same image", "PATCH", `${pods}/changed`, image("app:2"), STRATEGIC);
  await call("another image, by dry run", "PATCH", `${pods}/changed?dryRun=All`, image("app:3"), STRATEGIC);
  await call("still the old one", "GET", `${pods}/changed`);
  await call("replace at an old version", "PUT", `${pods}/changed`, made);
  await call("another image of what is not there", "PATCH", `${pods}/none`, image("app:3"), STRATEGIC);
  // On no node: the real server asks the node whether it can.
  await call("pod resized", "POST", pods, changeable("resized", {}));
  await call("resize", "PATCH", `${pods}/resized/resize`, cpu("200m"), STRATEGIC);
  await call("delete what was resized", "DELETE", `${pods}/resized`);
  await call("resize what is not there", "PATCH", `${pods}/none/resize`, cpu("200m"), STRATEGIC);
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
