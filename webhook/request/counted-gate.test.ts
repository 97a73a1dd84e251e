import { expect, test } from "vitest";
import { COUNTED_CONDITION, COUNTED_GATE } from "../../shared/schema/annotations.ts";
import type { PodProtector } from "../../shared/schema/podprotector.ts";
import { protector } from "../../test/support/webhook/fixtures.ts";
import type { AdmissionRequest } from "./admission-request.ts";
import { type GateContext, gatePod, SILENT_AFTER_MS } from "./counted-gate.ts";

type Json = Readonly<Record<string, unknown>>;

const NOW_MS = Date.parse("2026-05-01T12:00:00Z");
const ADDED = [{ op: "add", path: "/spec/readinessGates", value: [{ conditionType: COUNTED_CONDITION }] }];

interface Case {
  readonly wish?: string | undefined;
  readonly isOptedIn?: boolean;
  readonly heartbeatAgoMs?: number | undefined;
  readonly cell?: string;
  readonly problem?: string;
  readonly protectors?: PodProtector[];
  readonly pod?: Json;
  readonly spec?: Json;
  readonly request?: Partial<AdmissionRequest>;
}

function patched(one: Case): unknown {
  const { wish, isOptedIn = false, cell = "cell-1" } = one;
  const agoMs = "heartbeatAgoMs" in one ? one.heartbeatAgoMs : 60_000;
  const heartbeat = agoMs === undefined ? {} : { heartbeatTime: new Date(NOW_MS - agoMs).toISOString() };
  const object = protector(5, { aggregation: heartbeat });
  const annotations = wish === undefined ? {} : { [COUNTED_GATE]: wish };
  const made = { ...object, metadata: { ...object.metadata, annotations } };
  const context: GateContext = {
    cell,
    isOptedIn,
    ownNamespace: "podseidon-system",
    nowMs: NOW_MS,
    monotonicMs: 0,
    cores: [
      { problem: () => undefined, covering: () => [] },
      { problem: () => one.problem, covering: () => one.protectors ?? [made] },
    ],
  };
  const request: AdmissionRequest = {
    uid: "r",
    operation: "CREATE",
    group: "",
    resource: "pods",
    subResource: "",
    namespace: "default",
    name: "",
    user: { username: "eve", uid: undefined, groups: [], extra: {} },
    dryRun: false,
    object: { metadata: { generateName: "web-", labels: { app: "web" }, ...one.pod }, spec: { ...one.spec } },
    oldObject: undefined,
    ...one.request,
  };
  return gatePod(request, context);
}

const BOTH = [{ conditionType: "a/b" }, { conditionType: COUNTED_CONDITION }];
const PART = { "app.kubernetes.io/part-of": "podseidon" };
const enabled = { wish: "enabled" };

test.each<[string, Case, unknown]>([
  ["its protector asks for it", enabled, ADDED],
  ["its namespace asks for it", { isOptedIn: true }, ADDED],
  ["its namespace asks for it and its protector declines", { isOptedIn: true, wish: "disabled" }, undefined],
  ["neither asks for it", {}, undefined],
  ["the protector says something else", { wish: "true" }, undefined],
  ["no protector covers it", { isOptedIn: true, protectors: [] }, undefined],
  ["no aggregator has ever counted this cell", { ...enabled, cell: "cell-2" }, undefined],
  ["upstream's aggregator counts, which opens no gate", { ...enabled, heartbeatAgoMs: undefined }, undefined],
  ["the aggregator is silent", { ...enabled, heartbeatAgoMs: SILENT_AFTER_MS }, undefined],
  ["the aggregator is slow", { ...enabled, heartbeatAgoMs: SILENT_AFTER_MS - 1 }, ADDED],
  ["the cache may be old", { ...enabled, problem: "not confirmed" }, undefined],
  [
    "it has other gates",
    { ...enabled, spec: { readinessGates: [{ conditionType: "a/b" }] } },
    [{ op: "add", path: "/spec/readinessGates/-", value: { conditionType: COUNTED_CONDITION } }],
  ],
  ["its list of gates is null", { ...enabled, spec: { readinessGates: null } }, ADDED],
  ["it has the gate", { ...enabled, spec: { readinessGates: [{ conditionType: COUNTED_CONDITION }] } }, undefined],
  ["it mirrors a static pod", { ...enabled, pod: { annotations: { "kubernetes.io/config.mirror": "x" } } }, undefined],
  [
    "it belongs to the project",
    {
      ...enabled,
      pod: { labels: { "app.kubernetes.io/part-of": "podseidon" } },
      request: { namespace: "podseidon-system" },
    },
    undefined,
  ],
  ["it has the gate beside another", { ...enabled, spec: { readinessGates: BOTH } }, undefined],
  ["it says that it belongs to the project", { ...enabled, pod: { labels: PART } }, ADDED],
  ["it is in the project's namespace", { ...enabled, request: { namespace: "podseidon-system" } }, ADDED],
  ["the request is no pod's", { ...enabled, request: { resource: "podtemplates" } }, undefined],
  ["the request is an update", { ...enabled, request: { operation: "UPDATE" } }, undefined],
  ["the request is an eviction", { ...enabled, request: { subResource: "eviction" } }, undefined],
  ["the object is null", { ...enabled, request: { object: null } }, ADDED],
])("a new pod: %s", (_, one, expected) => {
  expect(patched(one)).toEqual(expected);
});
