import { describe, expect, test } from "vitest";
import { PERHAPS_RESTORED } from "../../../shared/recovery/restore-protector.ts";
import {
  DERIVATION_ANNOTATION,
  GENERATOR_FINALIZER,
  RELEASED_ANNOTATION,
  RESTORED_ANNOTATION,
  SOURCE_NAME_LABEL,
  SUSPENSION_CHANGED_BY_ANNOTATION,
} from "../../../shared/schema/annotations.ts";
import type { PodProtector, PodProtectorSpec } from "../../../shared/schema/podprotector.ts";
import { changesOf } from "./protector-changes.ts";

const NOW_MS = Date.parse("2026-11-23T16:00:00Z");
const UNTIL = "2026-11-23T16:02:10Z";

interface Fixture {
  readonly generation?: number;
  readonly spec?: Partial<PodProtectorSpec>;
  readonly annotations?: Readonly<Record<string, string>>;
  readonly deleting?: boolean;
  readonly byHand?: boolean;
  readonly labels?: Readonly<Record<string, string>>;
  readonly hold?: string;
  /** `remove-cell` has taken the cell out. */
  readonly isRemoved?: boolean;
  readonly suspended?: "True" | "False";
}

function protector(fixture: Fixture = {}): PodProtector {
  const { generation = 1, spec, annotations = {}, labels = {} } = fixture;
  const { deleting = false, byHand = false, hold, suspended, isRemoved = false } = fixture;
  const counted = { totalReplicas: 10, availableReplicas: 10, resourceVersion: "7", epoch: 1, ...(hold && { hold }) };
  const aggregation = isRemoved ? { totalReplicas: 0, availableReplicas: 0, epoch: 1 } : counted;
  const condition = { type: "Suspended", lastTransitionTime: "2026-11-23T15:00:00Z" };
  return {
    metadata: {
      ...{ name: "web", namespace: "shop", uid: "u", resourceVersion: "1", generation },
      annotations: { [DERIVATION_ANNOTATION]: "80 % of 10 replicas", ...annotations },
      labels,
      finalizers: byHand ? [] : [GENERATOR_FINALIZER],
      ...(deleting ? { deletionTimestamp: UNTIL } : {}),
    },
    spec: { minAvailable: 8, minReadySeconds: 0, selector: { matchLabels: { app: "web" } }, ...spec },
    status: {
      summary: { totalReplicas: 10, aggregatedAvailableReplicas: 10, estimatedAvailableReplicas: 10 },
      cells: [{ cellID: "east", aggregation }],
      conditions:
        suspended === undefined
          ? []
          : [
              suspended === "True"
                ? { ...condition, status: "True", reason: "Suspended", message: "" }
                : { ...condition, status: "False", reason: "Expired", message: `The suspension ended at ${UNTIL}` },
            ],
    },
  };
}

const suspend = { enabled: true, until: UNTIL, reason: "upgrade" };
const by = (text: string) => ({ [SUSPENSION_CHANGED_BY_ANNOTATION]: text });

describe("what happened to a protector", () => {
  test.each<[string, PodProtector | undefined, PodProtector | undefined, object[]]>([
    [
      "created",
      undefined,
      protector(),
      [
        {
          reason: "ProtectorCreated",
          isWarning: false,
          message: "created: 8 pods stay available (80 % of 10 replicas)",
        },
      ],
    ],
    [
      "created again",
      undefined,
      protector({ annotations: { [RESTORED_ANNOTATION]: "it vanished" } }),
      [{ reason: "ProtectorCreated", isWarning: true, message: expect.stringContaining("again, because it vanished") }],
    ],
    [
      "created where others were",
      undefined,
      protector({ annotations: { [RESTORED_ANNOTATION]: PERHAPS_RESTORED } }),
      [
        {
          reason: "ProtectorCreated",
          isWarning: false,
          message: expect.stringMatching(/on hold at first, because noth/),
        },
      ],
    ],
    [
      "deleted by a client, and held by its finalizer",
      protector(),
      protector({ deleting: true }),
      [{ reason: "ProtectorDeleted", isWarning: true, message: expect.stringContaining("it stays in force") }],
    ],
    [
      "made by hand, deleted by a client, and held by the finalizer of another",
      protector({ byHand: true }),
      protector({ byHand: true, deleting: true }),
      [
        {
          ...{ reason: "ProtectorDeleted", isWarning: true },
          message: expect.stringMatching(/^a client asked for the deletion: it is in force until it is gone;/),
        },
      ],
    ],
    ["gone after that", protector({ deleting: true }), undefined, []],
    [
      "made by hand and deleted",
      protector({ byHand: true }),
      undefined,
      [
        {
          reason: "ProtectorDeleted",
          message: expect.stringContaining("not in force; who asked for it stands in the"),
        },
      ],
    ],
    [
      "without the finalizer, and with the label of a workload, as by force or in a copy",
      protector({ byHand: true, labels: { [SOURCE_NAME_LABEL]: "web" } }),
      undefined,
      [{ reason: "ProtectorDeleted", message: expect.stringContaining("it stays in force until it is created again") }],
    ],
    [
      "released",
      protector({ deleting: true, annotations: { [RELEASED_ANNOTATION]: "SourceDeleted 2026" } }),
      undefined,
      [{ reason: "ProtectorReleased", isWarning: false, message: expect.stringContaining("(SourceDeleted 2026)") }],
    ],
    [
      "a promise lowered, and why",
      protector(),
      protector({ generation: 2, spec: { minAvailable: 4 }, annotations: { [DERIVATION_ANNOTATION]: "80 % of 5" } }),
      [
        {
          ...{ reason: "PromiseLowered", isWarning: true, field: "minAvailable" },
          message: "minAvailable changed from 8 to 4: 80 % of 5",
        },
      ],
    ],
    [
      "a promise raised by hand, whose derivation stays",
      protector(),
      protector({ generation: 2, spec: { minAvailable: 9 } }),
      [{ reason: "PromiseRaised", isWarning: false, message: "minAvailable changed from 8 to 9" }],
    ],
    [
      "other fields",
      protector(),
      protector({ generation: 2, spec: { selector: {}, minReadySeconds: 5 } }),
      [{ reason: "SpecChanged", message: "spec.minReadySeconds, spec.selector changed", field: "minReadySeconds" }],
    ],
    [
      "suspended by the plugin",
      protector(),
      protector({ generation: 2, spec: { suspend }, annotations: by("alice 16:00") }),
      [
        {
          ...{ reason: "SuspensionStarted", isWarning: true, by: "alice 16:00, as kubectl podseidon says" },
          message: `suspended until ${UNTIL}, no deletion is refused: upgrade`,
        },
      ],
    ],
    [
      "suspended by another client after that, in one cell and without an end",
      protector({ annotations: by("alice 16:00") }),
      protector({
        ...{ generation: 2, annotations: by("alice 16:00") },
        spec: { suspend: { enabled: true, cells: ["east"] } },
      }),
      [
        {
          ...{ reason: "SuspensionStarted", field: "suspend" },
          message: "suspended in east until somebody ends it, no deletion is refused",
        },
      ],
    ],
    [
      "a suspension that is prolonged",
      protector({ spec: { suspend } }),
      protector({ generation: 2, spec: { suspend: { ...suspend, until: "2026-11-23T17:00:00Z" } } }),
      [{ reason: "SuspensionStarted", message: expect.stringMatching(/^the suspension was changed: .*17:00:00Z/) }],
    ],
    [
      "resumed",
      protector({ spec: { suspend } }),
      protector({ generation: 2, annotations: by("bob 16:01") }),
      [{ reason: "SuspensionEnded", isWarning: false, by: "bob 16:01, as kubectl podseidon says" }],
    ],
    [
      "a suspension that ends by itself",
      protector({ suspended: "True" }),
      protector({ suspended: "False" }),
      [{ reason: "SuspensionEnded", message: `The suspension ended at ${UNTIL}, as it was written` }],
    ],
    [
      "what was over is removed",
      protector({ spec: { suspend: { ...suspend, until: "2026-11-23T15:00:00Z" } } }),
      protector({ generation: 2 }),
      [],
    ],
    [
      "a hold",
      protector(),
      protector({ hold: "Restored/x1" }),
      [{ reason: "HoldStarted", isWarning: true, series: "east", message: expect.stringContaining("(Restored)") }],
    ],
    ["the end of a hold", protector({ hold: "Restored/x1" }), protector(), [{ reason: "HoldEnded", isWarning: false }]],
    [
      "a cell that is removed while it is on hold",
      protector({ hold: "Restored/x1" }),
      protector({ isRemoved: true }),
      [{ reason: "HoldEnded", message: "cell east was removed while it was on hold: its pods count no more" }],
    ],
    ["a status write", protector({ hold: "Restored/x1" }), protector({ hold: "Restored/x1" }), []],
  ])("%s", (_, before, after, expected) => {
    expect(changesOf(before, after, NOW_MS)).toMatchObject(expected);
  });
});
