import { describe, expect, test } from "vitest";
import {
  bundlesOf,
  type DeclaredConfiguration,
  declarationOf,
  declarationText,
  forCell,
  type LiveConfiguration,
  lastApplied,
  withBundles,
} from "./desired-configuration.ts";

const LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration";
const KIND = "ValidatingWebhookConfiguration";

function declared(caBundle?: string): DeclaredConfiguration {
  const service = { namespace: "podseidon-system", name: "podseidon-webhook", path: "/webhook/CELL" };
  return {
    kind: KIND,
    metadata: { name: "podseidon", labels: { a: "b" } },
    webhooks: [
      {
        name: "one",
        clientConfig: { service, ...(caBundle === undefined ? {} : { caBundle }) },
        failurePolicy: "Fail",
      },
      { name: "two", clientConfig: { url: "https://127.0.0.1:8443/webhook/CELL/mutate" } },
    ],
  };
}

function live(annotations: Record<string, string>): LiveConfiguration {
  const { metadata, webhooks } = declared("Q0E=");
  return { metadata: { ...metadata, uid: "u", resourceVersion: "5", annotations }, webhooks };
}

describe("what an operator declared", () => {
  test("is read from what kubectl apply leaves", () => {
    expect(lastApplied(live({ [LAST_APPLIED]: JSON.stringify(declared()) }))).toEqual(declared());
  });
  test.each([
    ["is unknown for an object that was made otherwise", {}],
    ["is unknown when it can't be read", { [LAST_APPLIED]: "{" }],
    ["is unknown when it is something else", { [LAST_APPLIED]: '{"kind":"x"}' }],
  ])("%s", (_name, annotations) => {
    expect(lastApplied(live(annotations))).toBeUndefined();
  });

  test("is the same whatever the authorities are, and whatever kubectl notes", () => {
    const text = declarationText(declared());
    expect(declarationText(declared("Q0E="))).toBe(text);
    expect(declarationText(declarationOf(KIND, live({ [LAST_APPLIED]: "x" })))).toBe(text);
    expect(declarationText({ ...declared(), webhooks: [] })).not.toBe(text);
  });
});

test("authorities are kept by webhook, and given to one that has none yet", () => {
  expect(bundlesOf(live({}))).toEqual({ one: "Q0E=" });
  const completed = withBundles(declared().webhooks, { one: "Q0E=" });
  expect(completed.map(({ clientConfig }) => clientConfig.caBundle)).toEqual(["Q0E=", "Q0E="]);
});

test("CELL in paths and URLs stands for the cell's id", () => {
  const [one, two] = forCell(declared(), "east").webhooks ?? [];
  expect(one?.clientConfig).toMatchObject({ service: { path: "/webhook/east" } });
  expect(two?.clientConfig).toMatchObject({ url: "https://127.0.0.1:8443/webhook/east/mutate" });
});
