/** Where people read a denial: `kubectl delete`, `kubectl drain`, the events of a ReplicaSet, and the audit log. */
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { deploy } from "../../scripts/bench/rollout.ts";
import { field, items } from "../../scripts/control-plane/api-client.ts";
import { TestEnvironment } from "../../scripts/environment/environment.ts";
import { kubectlDecided } from "../support/cluster/ask.ts";
import { waitUntilSettled } from "../support/cluster/protectors.ts";

const REPLICAS = 4;
/** The `deploy` label asks for a minimum of three quarters. */
const PROMISED = 3;
const AUDIT_POLICY = JSON.stringify({
  apiVersion: "audit.k8s.io/v1",
  kind: "Policy",
  rules: [{ level: "Metadata", verbs: ["delete"], resources: [{ group: "", resources: ["pods"] }] }],
});
const REFUSAL = /PodProtector default\/web needs 3 available pods, 3 are available, 0 of them reserved/;

let environment: TestEnvironment;

beforeAll(async () => {
  environment = await TestEnvironment.start({
    cells: ["cell"],
    single: true,
    replicas: 1,
    settle: "70s",
    cell: {
      nodes: 1,
      files: { "audit.yaml": AUDIT_POLICY },
      flags: { "kube-apiserver": { "audit-policy-file": "$FILES/audit.yaml", "audit-log-path": "$FILES/audit.log" } },
    },
  });
  await deploy(environment, "web", REPLICAS);
  await waitUntilSettled(environment.core, "default", "web", REPLICAS);
  // One pod leaves, so that the rest are at the minimum. Its Deployment creates no other one.
  await environment.core.kubectl(["scale", "deployment/web", `--replicas=${PROMISED}`]);
  await waitUntilSettled(environment.core, "default", "web", PROMISED);
});

afterAll(() => environment?.stop());

/** A pod that stays. The one that left is not counted any more, but may still be there for a moment. */
async function somePod(): Promise<string> {
  const pods = items(await environment.core.admin.get("/api/v1/namespaces/default/pods"));
  const stays = pods.find((pod) => field(pod, "metadata", "deletionTimestamp") === undefined);
  return String(field(stays, "metadata", "name"));
}

/** A line of the log, which may be incomplete. */
function parsed(line: string): unknown {
  try {
    return JSON.parse(line);
  } catch {
    return undefined;
  }
}

describe("a denial names the protector, its minimum, what is available and what is reserved", () => {
  it("in kubectl delete", async () => {
    const { code, stderr } = await kubectlDecided(environment.core, ["delete", "pod", await somePod()]);
    process.stdout.write(stderr);
    expect(code).toBe(1);
    expect(stderr).toMatch(/^Error from server \(TooManyRequests\)/);
    expect(stderr).toMatch(REFUSAL);
  });

  it("in kubectl drain, which waits", async () => {
    const { code, stderr } = await environment.core.kubectl(["drain", "node-1", "--timeout=15s"]);
    await environment.core.kubectl(["uncordon", "node-1"]);
    process.stdout.write(stderr);
    expect(code).toBe(1);
    expect(stderr).toMatch(/will retry after 5s/);
    expect(stderr).toMatch(REFUSAL);
  });

  it("in the events of a ReplicaSet", async () => {
    await environment.core.kubectl(["scale", "deployment/web", "--replicas=1"]);
    let text = "";
    await environment.core.waitFor("an event about the refusal", async () => {
      text = (await environment.core.kubectl(["describe", "replicaset", "--selector=app=web"])).stdout;
      return REFUSAL.test(text);
    });
    process.stdout.write(
      `${text
        .split("\n")
        .filter((line) => line.includes("FailedDelete"))
        .join("\n")}\n`,
    );
    expect(text).toMatch(/Warning\s+FailedDelete/);
  });

  it("in the audit log, with the verdict as annotation", async () => {
    const log = (): unknown[] =>
      readFileSync(join(environment.core.directory, "files", "audit.log"), "utf8")
        .split("\n")
        .map(parsed);
    const refused = log().filter((event) => field(event, "responseStatus", "code") === 429);
    const annotations = refused.map((event) => Object.entries(Object(field(event, "annotations"))));
    process.stdout.write(`${JSON.stringify(field(refused[0], "annotations"))}\n`);
    expect(annotations.flat()).toContainEqual([
      "pods.podseidon.kubewharf.io/reject-by-podprotector",
      expect.stringContaining("web"),
    ]);
    expect(refused.map((event) => String(field(event, "responseStatus", "message"))).join("\n")).toMatch(REFUSAL);
    // The id also leads to the webhook's own log line.
    const ids = refused.map((event) => field(event, "annotations", "pods.podseidon.kubewharf.io/review"));
    const id = ids.find((one) => one !== undefined);
    const name = environment.webhooks[0]?.component.name ?? "";
    await environment.core.waitFor(`review ${id} in the log of ${name}`, async () => {
      const lines = readFileSync(join(environment.core.directory, "product", `${name}.log`), "utf8").split("\n");
      const found = lines.map(parsed).find((line) => field(line, "review") === id);
      return field(found, "outcome") === "denied" && String(field(found, "protectors")).includes("default/web");
    });
  });
});
