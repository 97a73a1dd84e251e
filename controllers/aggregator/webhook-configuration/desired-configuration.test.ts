import { describe, expect, test } from "vitest";
import {
  bundlesOf,
  type DeclaredConfiguration,
  declarationOf,
  declarationText,
  desiredConfiguration,
  forCell,
  hasSameWebhooks,
  injectingPatch,
  type LiveConfiguration,
  lastApplied,
  recordChange,
  restoredConfiguration,
  trusts,
  updatedConfiguration,
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

describe("the declared form", () => {
  test("comes from the annotation of kubectl apply", () => {
    expect(lastApplied(live({ [LAST_APPLIED]: JSON.stringify(declared()) }))).toEqual(declared());
  });
  test.each([
    ["is unknown for an object that another client made", {}],
    ["is unknown when the annotation is no JSON", { [LAST_APPLIED]: "{" }],
    ["is unknown when the annotation is another object", { [LAST_APPLIED]: '{"kind":"x"}' }],
  ])("%s", (_name, annotations) => {
    expect(lastApplied(live(annotations))).toBeUndefined();
  });

  test("does not depend on caBundle or on the annotation of kubectl apply", () => {
    const text = declarationText(declared());
    expect(declarationText(declared("Q0E="))).toBe(text);
    expect(declarationText(declarationOf(KIND, live({ [LAST_APPLIED]: "x" })))).toBe(text);
    expect(declarationText({ ...declared(), webhooks: [] })).not.toBe(text);
  });
});

describe("the desired configuration", () => {
  const kind = KIND;
  const file: DeclaredConfiguration = { ...declared(), webhooks: [] };
  const recorded = { declared: { ...declared(), metadata: { name: "recorded" } }, bundles: { two: "UkVD" } };
  const applied = live({ [LAST_APPLIED]: JSON.stringify(declared()) });
  const bundles = { one: "Q0E=" };

  test.each([
    ["is the file's", { live: applied, declared: file, recorded }, file],
    ["else what was last applied", { live: applied, declared: undefined, recorded }, declared()],
    ["else what is on record", { live: live({}), declared: undefined, recorded }, recorded.declared],
    [
      "else the live object",
      { live: live({}), declared: undefined, recorded: undefined },
      declarationOf(KIND, live({})),
    ],
  ])("%s", (_name, input, expected) => {
    expect(desiredConfiguration({ kind, bundles, ...input })?.declared).toEqual(expected);
  });

  test("is what was applied on the server, whatever the annotation of an earlier kubectl apply says", () => {
    const fieldsV1 = { "f:webhooks": { 'k:{"name":"one"}': { "f:failurePolicy": {} } } };
    const managedFields = [{ manager: "flux", operation: "Apply", time: "2026-01-01T00:00:00Z", fieldsV1 }];
    const [one, ...others] = applied.webhooks ?? [];
    const webhooks = [{ ...one, name: "one", clientConfig: {}, failurePolicy: "Ignore" }, ...others];
    const owned = { ...applied, metadata: { ...applied.metadata, managedFields }, webhooks };
    const first = desiredConfiguration({ kind, bundles, live: owned, declared: undefined, recorded: undefined });
    expect(first?.declared.webhooks?.[0]?.failurePolicy).toBe("Ignore");
    // An alteration takes the field from its owner: the record has it, and the annotation does not.
    const altered = desiredConfiguration({ kind, bundles, live: applied, declared: undefined, recorded: first });
    expect(altered?.declared.webhooks?.[0]?.failurePolicy).toBe("Ignore");
  });

  describe("of a webhook that moves from a Service to a URL, or back,", () => {
    const service = { name: "podseidon-webhook", path: "/webhook/east", port: 443 };
    const url = "https://podseidon.example/webhook/east";
    const EARLIER = "2026-01-01T00:00:00Z";
    const LATER = "2026-01-01T00:00:09Z";
    type Client = Record<string, unknown>;
    type At = readonly [client: Client, fields: Client];
    /** The webhook at an address, of which a manager owns these fields. */
    const owned = (manager: string, operation: string, time: string, [client, fields]: At) => {
      const item = { ".": {}, "f:name": {}, "f:clientConfig": fields };
      const managedFields = [{ manager, operation, time, fieldsV1: { "f:webhooks": { 'k:{"name":"one"}': item } } }];
      const metadata = { ...applied.metadata, annotations: {}, managedFields };
      return { metadata, webhooks: [{ name: "one", clientConfig: client }] };
    };
    // The apiserver's default of the port has no owner.
    const inService: At = [{ service }, { "f:service": { "f:name": {}, "f:path": {} } }];
    const atUrl: At = [{ url }, { "f:url": {} }];

    test.each<[string, string, At, At]>([
      ["flux", "Apply", inService, atUrl],
      ["flux", "Apply", atUrl, inService],
      ["helm", "Update", inService, atUrl],
      ["helm", "Update", atUrl, inService],
    ])("by %s (%s), has one address", (manager, operation, before, after) => {
      for (const known of [before, [before[0], {}]] as const) {
        const first = owned(manager, operation, EARLIER, known);
        const recorded = desiredConfiguration({ kind, bundles, live: first, declared: undefined, recorded: undefined });
        const moved = owned(manager, operation, LATER, after);
        const desired = desiredConfiguration({ kind, bundles, live: moved, declared: undefined, recorded });
        expect(desired?.declared.webhooks?.[0]?.clientConfig).toEqual(after[0]);
      }
    });
  });

  test("is what kubectl applied again, with the annotation of before, after Helm had changed it", () => {
    const item = (...fields: string[]) => ({ 'k:{"name":"one"}': Object.fromEntries(fields.map((one) => [one, {}])) });
    const annotation = { "f:annotations": { ".": {}, [`f:${LAST_APPLIED}`]: {} } };
    const kubectl = (time: string, ...fields: string[]) => ({
      ...{ manager: "kubectl-client-side-apply", operation: "Update", time },
      fieldsV1: { "f:metadata": annotation, "f:webhooks": item(".", "f:name", ...fields) },
    });
    const helm = (...fields: string[]) => ({
      ...{ manager: "helm", operation: "Update", time: "2026-01-01T00:00:05Z" },
      fieldsV1: { "f:webhooks": item(...fields) },
    });
    const ofManagers = (failurePolicy: string, ...managedFields: ReturnType<typeof helm>[]): LiveConfiguration => ({
      metadata: { ...applied.metadata, managedFields },
      webhooks: (applied.webhooks ?? []).map((one) => (one.name === "one" ? { ...one, failurePolicy } : one)),
    });
    const steps: readonly [LiveConfiguration, string][] = [
      [ofManagers("Fail", kubectl("2026-01-01T00:00:00Z", "f:failurePolicy")), "Fail"],
      [ofManagers("Ignore", kubectl("2026-01-01T00:00:00Z"), helm("f:failurePolicy")), "Ignore"],
      [ofManagers("Fail", kubectl("2026-01-01T00:00:09Z", "f:failurePolicy"), helm("f:name")), "Fail"],
    ];
    let recorded: ReturnType<typeof desiredConfiguration>;
    for (const [live, expected] of steps) {
      recorded = desiredConfiguration({ kind, bundles, live, declared: undefined, recorded });
      expect(recorded?.declared.webhooks?.[0]?.failurePolicy).toBe(expected);
    }
  });

  test("stays one whatever its owners give up", () => {
    const of = (time: string, fieldsV1: Record<string, unknown>): LiveConfiguration => ({
      ...applied,
      metadata: { ...applied.metadata, managedFields: [{ manager: "flux", operation: "Apply", time, fieldsV1 }] },
    });
    const whole = { "f:metadata": { "f:annotations": { ".": {}, "f:note": {} } }, "f:webhooks": {} };
    const first = of("2026-01-01T00:00:00Z", whole);
    const recorded = desiredConfiguration({ kind, bundles, live: first, declared: undefined, recorded: undefined });
    const live = of("2026-01-01T00:00:09Z", { "f:webhooks": { 'k:{"name":"one"}': { ".": {}, "f:name": {} } } });
    const desired = desiredConfiguration({ kind, bundles, live, declared: undefined, recorded });
    expect(desired?.declared.metadata.name).toBe(applied.metadata.name);
    const nothing = of("2026-01-01T00:00:09Z", { "f:metadata": {} });
    const odd = { ...first, metadata: { ...first.metadata, managedFields: [{ ...whole, manager: "x" }] } };
    for (const one of [nothing, odd])
      expect(desiredConfiguration({ kind, bundles, live: one, declared: undefined, recorded })).toBeDefined();
  });

  test("is unknown without any of these", () => {
    expect(
      desiredConfiguration({ kind, bundles, live: undefined, declared: undefined, recorded: undefined }),
    ).toBeUndefined();
  });

  test("has the caBundle that was seen last, or that is on record", () => {
    const desired = desiredConfiguration({ kind, bundles, live: undefined, declared: file, recorded });
    expect(desired?.bundles).toEqual({ one: "Q0E=", two: "UkVD" });
  });

  test("is recorded again when its form or a caBundle has changed", () => {
    const desired = { declared: declared(), bundles };
    expect(recordChange(undefined, desired)).toBe("form");
    expect(recordChange({ ...desired, declared: file }, desired)).toBe("form");
    expect(recordChange({ ...desired, bundles: {} }, desired)).toBe("rest");
    expect(recordChange({ declared: declared("T0xE"), bundles }, desired)).toBeUndefined();
  });

  test("is created with the annotation that kubectl apply compares with", () => {
    const created = restoredConfiguration({ declared: declared(), bundles });
    expect(lastApplied({ ...live({}), metadata: { ...live({}).metadata, ...created.metadata } })).toEqual(
      JSON.parse(declarationText(declared())),
    );
    expect(bundlesOf(created)).toEqual({ one: "Q0E=", two: "Q0E=" });
  });

  test("replaces the webhooks of the live object and leaves its caBundle", () => {
    const updated = updatedConfiguration({ declared: declared(), bundles: { one: "T0xE" } }, live({ note: "stays" }));
    expect(updated.metadata).toEqual(live({ note: "stays" }).metadata);
    expect(bundlesOf(updated)).toEqual({ one: "Q0E=", two: "Q0E=" });
    const reversed = { ...updated, webhooks: [...(updated.webhooks ?? [])].reverse() };
    expect(hasSameWebhooks(updated, reversed, declared())).toBe(true);
    expect(hasSameWebhooks(updated, live({}), declared())).toBe(false);
  });

  describe("and what AKS adds to namespaceSelectors", () => {
    const OPTED_OUT = { "admissions.enforcer/disabled": "true" };
    const own = { key: "kubernetes.io/metadata.name", operator: "NotIn", values: ["podseidon-system"] };
    const added = [
      { key: "control-plane", operator: "NotIn", values: ["true"] },
      { key: "kubernetes.azure.com/managedby", operator: "NotIn", values: ["aks"] },
    ];
    const selecting = (...matchExpressions: readonly unknown[]): LiveConfiguration => ({
      ...live({}),
      webhooks: (live({}).webhooks ?? []).map((webhook) => ({
        ...webhook,
        namespaceSelector: matchExpressions.length === 0 ? {} : { matchExpressions },
      })),
    });
    const from = (annotations: Record<string, string>): DeclaredConfiguration => ({
      ...declared(),
      metadata: { ...declared().metadata, annotations },
    });

    test.each([
      ["is no difference", selecting(own), selecting(own, ...added), {}, true],
      ["is none beside an empty selector", selecting(), selecting(...added), {}, true],
      ["hides no other difference", selecting(own), selecting(...added), {}, false],
      ["is one where the declaration opts out", selecting(own), selecting(own, ...added), OPTED_OUT, false],
      [
        "is another expression than one that is like it",
        selecting(own),
        selecting(own, { key: "control-plane", operator: "NotIn", values: ["true", "false"] }),
        {},
        false,
      ],
    ])("%s", (_name, wanted, found, annotations, isSame) => {
      expect(hasSameWebhooks(wanted, found, from(annotations))).toBe(isSame);
    });

    test("is not added again, because an update has the declared annotation against it", () => {
      const updated = updatedConfiguration({ declared: from(OPTED_OUT), bundles }, live({ note: "stays" }));
      expect(updated.metadata.annotations).toEqual({ note: "stays", ...OPTED_OUT });
    });
  });
});

test("each webhook keeps its caBundle, and a new one gets that of another", () => {
  expect(bundlesOf(live({}))).toEqual({ one: "Q0E=" });
  const completed = withBundles(declared().webhooks, { one: "Q0E=" });
  expect(completed.map(({ clientConfig }) => clientConfig.caBundle)).toEqual(["Q0E=", "Q0E="]);
});

test("CELL in paths and URLs stands for the cell's id", () => {
  const [one, two] = forCell(declared(), "east").webhooks ?? [];
  expect(one?.clientConfig).toMatchObject({ service: { path: "/webhook/east" } });
  expect(two?.clientConfig).toMatchObject({ url: "https://127.0.0.1:8443/webhook/east/mutate" });
});

describe("the secret segment of the webhook's path", () => {
  const SECRET = `/~${"s".repeat(43)}`;
  const OLD = `/~${"o".repeat(43)}`;
  const injected = { caBundle: "Q0E=", segment: SECRET };
  const hexadecimal = (segment: string): string => Buffer.from(segment.slice(2), "base64url").toString("hex");
  /** kube-apiserver takes each part of a Service's path as a DNS name. */
  const inService = (segment: string): string => (segment === "" ? "" : `/secret-${hexadecimal(segment)}`);
  const webhooks = (segment: string): LiveConfiguration["webhooks"] => [
    {
      name: "one",
      clientConfig: { service: { name: "w", path: `${inService(segment)}/webhook/east` }, caBundle: "Q0E=" },
    },
    { name: "two", clientConfig: { url: `https://127.0.0.1:8443${segment}/webhook/east/mutate`, caBundle: "Q0E=" } },
  ];
  const configuration = (segment: string): LiveConfiguration => ({ ...live({}), webhooks: webhooks(segment) });
  const withPatch = (segment: string): unknown =>
    injectingPatch(configuration(segment), injected).flatMap((one) => Reflect.get(one, "value"));

  test("is written in front of the path, once", () => {
    const expected = ["5", ...(webhooks(SECRET) ?? []).map(({ clientConfig }) => clientConfig)];
    expect(withPatch("")).toEqual(expected);
    expect(withPatch(OLD)).toEqual(expected);
    expect(withPatch(SECRET)).toEqual(["5"]);
    expect(["", OLD, SECRET].map((one) => trusts(configuration(one), injected))).toEqual([false, false, true]);
  });

  test("is not mistaken for a cell whose id begins alike, where the path has no prefix", () => {
    const clients = (inPath: string, inUrl: string): LiveConfiguration["webhooks"] => [
      { name: "one", clientConfig: { service: { name: "w", path: `${inPath}/secret-east` }, caBundle: "Q0E=" } },
      { name: "two", clientConfig: { url: `https://podseidon.example${inUrl}/~east/mutate`, caBundle: "Q0E=" } },
    ];
    const patch = injectingPatch({ ...live({}), webhooks: clients("", "") }, injected);
    const expected = clients(inService(SECRET), SECRET) ?? [];
    expect(patch.map((one) => Reflect.get(one, "value"))).toEqual(["5", ...expected.map((one) => one.clientConfig)]);
  });

  test("is no part of the declared form, and stays when that is restored", () => {
    const form = declarationOf(KIND, configuration(SECRET));
    expect(declarationText(form)).toBe(declarationText(declarationOf(KIND, configuration(""))));
    const desired = { declared: declarationOf(KIND, configuration(OLD)), bundles: {} };
    expect(updatedConfiguration(desired, configuration(SECRET)).webhooks).toEqual(webhooks(SECRET));
    expect(updatedConfiguration(desired, configuration("")).webhooks).toEqual(webhooks(""));
  });
});
