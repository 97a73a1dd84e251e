import { expect, test } from "vitest";
import { ApiClient } from "../../../shared/kube/client/api-client.ts";
import type { ApiResult } from "../../../shared/kube/client/api-result.ts";
import { ADOPTED, PROTECT_ANNOTATION } from "../../../shared/schema/annotations.ts";
import { type PodProtector, parsePodProtector } from "../../../shared/schema/podprotector.ts";
import { pluginNamed } from "../../../test/support/generator/plugin-named.ts";
import { VirtualTime } from "../../../test/support/runtime/virtual-ports.ts";
import type { ProtectionSource } from "../sources/protection-source.ts";
import type { ReconcileStep } from "./plan.ts";
import { newProtector } from "./protector.ts";
import { type SourceState, sourceStateOf } from "./source-condition.ts";
import { isRefused, perform } from "./steps.ts";

const GENERATOR = "podseidon.kubewharf.io/generator";
const TIME = "2026-01-01T00:00:00Z";
const DELETED = { deletionTimestamp: TIME };
const { kind } = pluginNamed("deployment");
const required = {
  name: "deployment-web",
  spec: { minAvailable: 8, minReadySeconds: 0, selector: {} },
  derivation: "",
};
const source: ProtectionSource = {
  ...{ namespace: "shop", name: "web", uid: "u1", resourceVersion: "7", deleting: false, decision: "Protected" },
  ...{ finalizers: [GENERATOR, "foregroundDeletion"], protectors: [required] },
};
const made = newProtector(kind, source, required, required.name);
const protectorWith = (metadata: object, status?: PodProtector["status"]): PodProtector =>
  parsePodProtector({ ...made, metadata: { ...made.metadata, uid: "p1", resourceVersion: "9", ...metadata }, status });
const protector = protectorWith({});
const MARKED = { annotations: { "podseidon.kubewharf.io/released": "x" } };

type Answer = number | object;
const unanswered = { kind: "unavailable" } as const;

/** Performs the step. Each call is answered with a code, or stores what the answer or the caller says. */
async function performed(step: ReconcileStep, answers: readonly Answer[] = []) {
  const calls: [string, unknown][] = [];
  const rest = [...answers];
  const api = new ApiClient({
    request: async ({ method, path, body }) => {
      calls.push([`${method} ${path.split("/").at(-1)}`, JSON.parse(body ?? "{}")]);
      const answer = rest.shift() ?? 200;
      if (answer === unanswered) throw new Error("no answer");
      const sent = { ...protector, ...JSON.parse(body ?? "{}") };
      const metadata = {
        ...sent.metadata,
        uid: path.includes("/podprotectors") ? "p1" : source.uid,
        resourceVersion: "10",
        ...(typeof answer === "object" ? answer : {}),
      };
      const status = typeof answer === "number" ? answer : 200;
      const reason = status === 404 ? "NotFound" : undefined;
      const message = status === 403 ? "namespace shop because it is being terminated" : "no";
      return {
        status,
        headers: {},
        body: JSON.stringify(
          status === 200 ? { ...sent, metadata } : { kind: "Status", reason, message, details: { name: "x" } },
        ),
      };
    },
    stream: () => Promise.reject(new Error("nothing is watched")),
    close: () => {},
  });
  const told: string[] = [];
  const record = async (): Promise<ApiResult<unknown>> => ({ kind: "ok", object: void told.push("recorded") });
  const options = {
    ...{ api, ports: new VirtualTime(), timeoutMs: 1_000, register: { record } },
    protectors: { wrote: () => void told.push("wrote"), released: () => void told.push("forgotten") },
    onEvent: ({ kind }: { kind: string }) => void told.push(kind),
  };
  const { signal } = new AbortController();
  const context = { options, calls: { api, timeoutMs: 1_000, signal }, key: "deployment/shop/web", kind, source };
  const outcome = await perform(context, step);
  return { calls, told, outcome, names: calls.map(([name]) => name), isRefused: isRefused(outcome) };
}

const release: ReconcileStep = { kind: "release", protector, reason: "NotRequired" };
const freed: ReconcileStep = { ...release, protector: protectorWith({ ...MARKED, ...DELETED }) };
const replaced: ReconcileStep = { kind: "replace", protector: protectorWith(DELETED), object: made };
const shared: ReconcileStep = { ...replaced, protector: protectorWith({ ...DELETED, finalizers: [GENERATOR, "b"] }) };
const create: ReconcileStep = { kind: "create", object: made };
const restore: ReconcileStep = { kind: "restore", object: made, lost: protector };
const hold: ReconcileStep = { kind: "addSourceFinalizer", source };
const letGo: ReconcileStep = { kind: "removeSourceFinalizer", source };
const adopt: ReconcileStep = { kind: "adopt", source, protector };
const tell = (state: "deleting" | "vanished"): ReconcileStep => ({ kind: "reportSource", protector, state });
const OTHER = { name: "deployment-idle", uid: "p9" };
const PUT = "PUT deployment-web";
const DRY = "POST podprotectors?dryRun=All";

/** The calls, the outcome, and what was told. */
test.each<[string, ReconcileStep, Answer[], string]>([
  ["a release waits where the source has changed", release, [409], "PATCH web; later; "],
  ["a release waits where the source is gone", release, [404], "PATCH web; later; "],
  ["a release ends where the source can't be confirmed", release, [403], "PATCH web; failed; failed"],
  ["an answer about another source confirms no release", release, [{ uid: "u9" }], "PATCH web; failed; failed"],
  ["the mark of another protector is no release", release, [200, OTHER], `PATCH web,${PUT}; failed; failed`],
  ["an answer about another protector is no creation", create, [OTHER], "POST podprotectors; failed; failed"],
  ["an answer about another protector restores none", restore, [OTHER], "POST podprotectors; failed; failed"],
  ["a release", freed, [], `PATCH web,${PUT}; done; recorded,forgotten,released`],
  ["a release of what has changed", freed, [200, 409], `PATCH web,${PUT}; failed; recorded,failed`],
  ["the finalizer of a source that is gone", letGo, [404], "PATCH web; done; "],
  ["a finalizer that is taken off", letGo, [], "PATCH web; done; letGo"],
  ["a finalizer", hold, [], "PATCH web; done; held"],
  ["a finalizer that a policy drops", hold, [{ finalizers: ["b"] }], "PATCH web; undone; "],
  ["an adoption is told of both", adopt, [], "PATCH web; done; adopted,adopted"],
  ["an adoption that a policy drops", adopt, [{ annotations: {} }], "PATCH web; undone; "],
  ["an adoption that fails", adopt, [409], "PATCH web; failed; failed"],
  ["a creation", create, [], "POST podprotectors; done; wrote,created"],
  ["a creation in a namespace that ends", create, [403], "POST podprotectors; later; "],
  ["a creation that is refused", create, [422], "POST podprotectors; failed; failed"],
  ["a restore", restore, [], "POST podprotectors; done; wrote,restored"],
  ["a restore that is refused", restore, [422], "POST podprotectors; failed; failed"],
  ["a restore after another's", restore, [409], "POST podprotectors; later; "],
  ["a source that waits to be deleted is told of both", tell("deleting"), [], "; done; deletionHeld,deletionHeld"],
  ["a source that is gone is told once", tell("vanished"), [], "; done; sourceVanished"],
  ["a replacement that a core would refuse frees nothing", replaced, [403], `${DRY}; later; kept`],
  ["a replacement that gets no answer frees nothing", replaced, [unanswered], `${DRY}; failed; failed`],
  ["a replacement of what has changed", replaced, [409, 409], `${DRY},${PUT}; failed; failed`],
  ["a replacement", replaced, [409], `${DRY},${PUT},POST podprotectors; done; wrote,replaced`],
  ["a replacement waits for the finalizers of others", shared, [409], `${DRY},${PUT}; later; kept`],
])("%s", async (_, step, answers, expected) => {
  const { names, outcome, told } = await performed(step, answers);
  expect(`${names.join()}; ${outcome.kind}; ${told.join()}`).toBe(expected);
});

test("what confirms a source changes nothing of it, whoever has added finalizers since", async () => {
  const { calls } = await performed(freed);
  expect(calls[0]).toEqual(["PATCH web", { metadata: { uid: "u1", resourceVersion: "7" } }]);
});

test.each<[ReconcileStep, object]>([
  [letGo, { finalizers: ["foregroundDeletion"] }],
  [{ ...hold, source: { ...source, finalizers: ["b"] } }, { finalizers: ["b", GENERATOR] }],
  [adopt, { annotations: { [PROTECT_ANNOTATION]: ADOPTED } }],
])("%j writes of its source nothing else", async (step, change) => {
  const { calls } = await performed(step);
  expect(calls[0]?.[1]).toEqual({ metadata: { uid: "u1", resourceVersion: "7", ...change } });
});

test.each([
  [422, true],
  [403, true],
  [409, false],
  [503, false],
])("an update that is answered with %i is a refusal: %s", async (code, expected) => {
  expect((await performed({ kind: "update", protector, object: protector }, [code])).isRefused).toBe(expected);
});

test("the state of a source is written as conditions, of which one that was never true is absent", async () => {
  const summary = { totalReplicas: 1, aggregatedAvailableReplicas: 1, estimatedAvailableReplicas: 1 };
  const cells = [{ cellID: "c", aggregation: { totalReplicas: 1, availableReplicas: 1 } }];
  const others = { type: "Ready", status: "True", reason: "r", message: "", lastTransitionTime: TIME };
  let present = protectorWith({ generation: 3 }, { cells, summary, conditions: [others] });
  const seen: string[] = [];
  for (const state of ["vanished", "present", "deleting", "vanished"] satisfies SourceState[]) {
    const { calls, told } = await performed({ kind: "setSourceState", protector: present, state });
    present = parsePodProtector({ ...present, status: Object(calls[0]?.[1]).status });
    expect([told, present.status?.cells, sourceStateOf(present)]).toEqual([["wrote", "noted"], cells, state]);
    const { conditions = [] } = present.status ?? {};
    seen.push(conditions.map(({ type, status, reason }) => `${type} ${status} ${reason}`).join());
  }
  const [ready, gone, back] = ["Ready True r", "SourceVanished True SourceMissing", "SourceVanished False"];
  expect(seen).toEqual([
    `${ready},${gone}`,
    `${ready},${back} SourcePresent`,
    `${ready},${back} SourcePresent,SourceDeleting True AsksForReplicas`,
    `${ready},${gone},SourceDeleting False NotDeleted`,
  ]);
  expect(present.status?.conditions?.[1]).toMatchObject({ observedGeneration: 3 });
  const bare = await performed({ kind: "setSourceState", protector, state: "vanished" });
  expect(bare.calls[0]?.[1]).toMatchObject({ metadata: { resourceVersion: "9" }, status: { cells: [] } });
});

test("a lost protector whose number is over cells is restored with a hold on each of them", async () => {
  const summary = { totalReplicas: 9, aggregatedAvailableReplicas: 9, estimatedAvailableReplicas: 9 };
  const cells = [{ cellID: "a", aggregation: { totalReplicas: 9, availableReplicas: 9, resourceVersion: "5" } }];
  const last = protectorWith(DELETED, { cells, summary });
  const lost = { ...last, spec: { ...last.spec, countExpectedPods: true } };
  for (const [step, answers] of [
    [{ kind: "restore", object: made, lost }, []],
    [{ kind: "replace", object: made, protector: lost }, [409]],
  ] satisfies [ReconcileStep, Answer[]][]) {
    const [name, body] = (await performed(step, answers)).calls.at(-1) ?? [];
    expect([name, Object(body).status.cells]).toEqual([
      "PUT status",
      [
        {
          cellID: "a",
          aggregation: { totalReplicas: 0, availableReplicas: 0, hold: expect.stringMatching(/^Restored\//) },
        },
      ],
    ]);
  }
});
