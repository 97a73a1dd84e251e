/** The lines of a history that is replayed; `docs/spec/README.md` documents them. */
import * as v from "valibot";
import { integer, mapOf, recordOf, setOf, text } from "./literals.ts";
import type { Constants } from "./specification.ts";

const worldSchema = v.object({
  event: v.literal("world"),
  pods: v.record(v.string(), v.string()),
  young: v.optional(v.array(v.string()), []),
  unready: v.optional(v.array(v.string()), []),
  protectors: v.record(v.string(), v.object({ covers: v.array(v.string()), minAvailable: v.number() })),
  aggregators: v.record(v.string(), v.string()),
});

const oneOrMore = v.pipe(
  v.union([v.string(), v.array(v.string())]),
  v.transform((names) => (typeof names === "string" ? [names] : names)),
);

const eventSchema = v.variant("event", [
  v.object({ event: v.literal("change"), pod: v.string(), to: v.picklist(["Ready", "Unready", "Absent"]) }),
  v.object({ event: v.literal("ask"), nonce: v.string(), pod: v.string(), operation: v.picklist(["DELETE", "EVICT"]) }),
  v.object({ event: v.literal("reserve"), nonce: v.string(), protector: v.string(), allowed: v.boolean() }),
  v.object({
    event: v.literal("rollBack"),
    nonce: v.string(),
    protector: v.string(),
    unspecified: v.optional(v.boolean(), false),
  }),
  v.object({ event: v.picklist(["allow", "end", "expire"]), nonce: v.string() }),
  v.object({ event: v.literal("deny"), nonce: v.string(), protectors: v.optional(v.array(v.string())) }),
  v.object({ event: v.literal("start"), aggregator: v.string() }),
  v.object({ event: v.literal("stop"), aggregator: v.string() }),
  v.object({
    event: v.literal("commit"),
    nonce: v.optional(v.string()),
    pod: v.optional(v.string()),
    to: v.picklist(["Absent", "Terminating"]),
  }),
  v.object({
    event: v.literal("account"),
    aggregator: oneOrMore,
    protector: v.string(),
    available: v.number(),
    nonces: v.array(v.string()),
    position: v.optional(v.number()),
    weight: v.optional(v.number()),
  }),
]);

export type ReplayedWorld = v.InferOutput<typeof worldSchema>;
export type ReplayedEvent = v.InferOutput<typeof eventSchema>;
export type ProcessEvent = Extract<ReplayedEvent, { event: "start" | "stop" }>;
export type AccountEvent = Extract<ReplayedEvent, { event: "account" }>;

export interface ReplayedHistory {
  readonly world: ReplayedWorld;
  readonly events: readonly { readonly line: string; readonly event: ReplayedEvent }[];
}

/** The world is on the first line, one event on each other. Throws where a line can't be read. */
export function readReplayed(ndjson: string): ReplayedHistory {
  const [world = "", ...lines] = ndjson.split("\n").filter((line) => line !== "");
  const events = lines.map((line) => ({ line, event: v.parse(eventSchema, JSON.parse(line)) }));
  return { world: v.parse(worldSchema, JSON.parse(world)), events };
}

/** `bound`: of changes and requests. */
export function constantsOf(world: ReplayedWorld, bound: number): Constants {
  const { pods, young, unready, protectors, aggregators } = world;
  const cells = Object.entries(pods).map(([pod, cell]) => [pod, text(cell)] as const);
  const leaders = Object.entries(aggregators).map(([name, cell]) => [name, text(cell)] as const);
  const specs = Object.entries(protectors).map(([name, { covers, minAvailable }]) => {
    const spec = recordOf([
      ["covers", setOf(covers)],
      ["minAvailable", integer(minAvailable)],
    ]);
    return [name, spec] as const;
  });
  return [
    ["CELLS", setOf(Object.values(pods))],
    ["PODS", mapOf(cells)],
    ["YOUNG", setOf(young)],
    ["UNREADY", setOf(unready)],
    ["PROTECTORS", mapOf(specs)],
    ["AGGREGATORS", mapOf(leaders)],
    ["OPERATIONS", setOf(["DELETE", "EVICT"])],
    ["EVENTS", setOf(["Create", "Touch", "Fail", "Recover", "Terminate"])],
    ["MAX_CHANGES", integer(bound)],
    ["MAX_REQUESTS", integer(bound)],
    ["MAX_LOSSES", integer(0)],
    ["WITHOUT", text("")],
  ];
}
