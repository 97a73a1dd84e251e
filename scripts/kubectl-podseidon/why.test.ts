/** `why` for who may not read the protectors: the denial names the command, and its reader has a worker cluster. */
import { expect, test } from "vitest";
import { systemPorts } from "../../shared/runtime/system-ports.ts";
import { listeningApiserver } from "../../test/support/kube/listening-apiserver.ts";
import { runCommandLine } from "./cli.ts";

const POD = "/api/v1/namespaces/shop/pods/web-0";
const pod = {
  metadata: { name: "web-0", namespace: "shop", labels: { app: "web" }, uid: "u", resourceVersion: "1" },
  spec: { containers: [{ name: "a" }] },
  status: { phase: "Running" },
};

interface Answers {
  readonly refusal?: string;
  /** The status of the list of pods. */
  readonly pods?: number;
  /** The cell of the webhook configuration, which can't be read without it. */
  readonly cell?: string;
}

const why = (deletion: number, protectors: number, ...flags: readonly string[]) =>
  whyWith({}, deletion, protectors, ...flags);

/** The deletion is answered by `deletion`, and the protectors by `protectors`. */
async function whyWith(
  { refusal = "pod shop/web-0 may not be deleted now", pods = 200, cell }: Answers,
  deletion: number,
  protectors: number,
  ...flags: readonly string[]
) {
  const status = (code: number, message: string): [number, unknown] => [code, { kind: "Status", message }];
  const { kubeconfig, close } = await listeningApiserver(({ url = "", method }, response) => {
    const [path = ""] = url.split("?");
    const [code, body] =
      method === "DELETE"
        ? status(deletion, refusal)
        : path === POD
          ? [200, pod]
          : path === "/api/v1/namespaces/shop/pods"
            ? [pods, { metadata: { resourceVersion: "1" }, items: [pod] }]
            : cell !== undefined && path.endsWith("/validatingwebhookconfigurations/podseidon")
              ? [200, { webhooks: [{ name: "w", clientConfig: { service: { path: `/webhook/${cell}` } } }] }]
              : status(path.endsWith("/podprotectors") ? protectors : 403, "nobody\nmay read this");
    response.writeHead(code).end(JSON.stringify(body));
  });
  let out = "";
  const say = (text: string): void => {
    out += text;
  };
  const args = ["why", "web-0", "-n", "shop", "--kubeconfig", kubeconfig, ...flags];
  const code = await runCommandLine(args, {
    ...{ terminal: { out: say, err: say, interactive: false }, ports: systemPorts, environment: {} },
  });
  close();
  return { code, out };
}

test.each([
  [403, /^The protectors could not be read, .*: c: GET .*: nobody\\nmay read this; /m],
  [
    404,
    /^The protectors could not be read, .*: c: GET .*no PodProtectors there; name the core cluster by --core-cont/m,
  ],
])("the webhook's answer is told where the list of protectors gives %d", async (status, text) => {
  const { code, out } = await why(429, status);
  expect(out).toMatch(/^Deletion: +no: it would be denied now$/m);
  expect(out).toMatch(/^Answer: +pod shop\/web-0 may not be deleted now$/m);
  expect(out).toMatch(text);
  expect(out).not.toContain("No protector covers this pod");
  expect(code).toBe(1);
});

test("whether a pod that would go is protected is not known", async () => {
  const { code, out } = await why(200, 403, "-o", "json");
  expect(JSON.parse(out)).toMatchObject({
    ...{ answer: { verdict: "admitted" }, isUnprotected: false, opinions: [] },
    unread: expect.stringContaining("may read this"),
  });
  expect(code).toBe(2);
});

test("who may not list the pods of the namespace gets the webhook's answer about this one", async () => {
  const { code, out } = await whyWith({ pods: 403 }, 429, 403);
  expect(out).toMatch(/^Deletion: +no: it would be denied now$/m);
  expect(code).toBe(1);
});

test.each([
  ['pods "web-0" is forbidden: User "reader" cannot delete resource "pods" in API group ""', 2, "not known: your user"],
  ['admission webhook "other" denied the request: no', 1, "no: the apiserver refuses it for another reason"],
])("a 403 with %j ends with exit code %d", async (refusal, expected, text) => {
  const { code, out } = await whyWith({ refusal }, 403, 403);
  expect(out).toMatch(new RegExp(`^Deletion: +${text}`, "m"));
  expect(code).toBe(expected);
});

test.each([
  ["the webhook configuration names another cell", "a", "a"],
  ["the webhook configuration can't be read", undefined, "b"],
])("--cell b where %s", async (_, cell, expected) => {
  const { out } = await whyWith(cell === undefined ? {} : { cell }, 429, 200, "--cell", "b");
  expect(out).toContain(`(cell ${expected})`);
});
