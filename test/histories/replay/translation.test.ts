/** What a recorded order of writes leaves open, the translation does not decide. */
import { expect, test } from "vitest";
import { at } from "../checker/json.ts";
import { translate } from "./translation.ts";

type Line = Readonly<Record<string, unknown>>;

const HEAD: Line = { kind: "head", core: "core", cells: { east: "cell" }, settleMs: 1_000 };
const WEB = { app: "web" };
const CANARY = { app: "web", track: "canary" };

function pod(name: string, labels: Line, revision: number): Line {
  const metadata = { name, namespace: "default", uid: `uid-${name}`, labels };
  const status = { phase: "Running", conditions: [{ type: "Ready", status: "True" }] };
  const about = { kind: "version", cluster: "cell", resource: "pods", history: 0, key: `default/${name}` };
  return { ...about, revision, atMs: revision * 100, object: { metadata, status } };
}

function counted(name: string, labels: Line, revision: number, availableReplicas: number, position: number): Line {
  const aggregation = { availableReplicas, resourceVersion: String(position) };
  const status = { cells: [{ cellID: "east", aggregation }] };
  const spec = { minAvailable: 1, selector: { matchLabels: labels } };
  const about = { kind: "version", cluster: "core", resource: "podprotectors", history: 0, key: `default/${name}` };
  return { ...about, revision, atMs: revision * 100, object: { metadata: { uid: name, generation: 1 }, spec, status } };
}

/** Protector and position of each count that the specification is told, in its order. */
function counts(lines: readonly Line[]): readonly unknown[] {
  const history = [HEAD, ...lines, { kind: "end", atMs: 9_000 }];
  const worlds = translate(history.map((line) => JSON.stringify(line)));
  const told = worlds.flatMap(({ events }) => events.filter(({ event }) => event === "account"));
  return told.map((event) => [at(event, "protector"), at(event, "position")]);
}

const BEGIN = [
  pod("canary-0", CANARY, 3),
  counted("web", WEB, 10, 1, 3),
  counted("canary", CANARY, 11, 1, 3),
  pod("web-0", WEB, 14),
  pod("web-1", WEB, 15),
];

test("two protectors' counts that were decided one after the other may be stored the other way round", () => {
  const late = [counted("web", WEB, 16, 3, 15), counted("canary", CANARY, 17, 1, 14)];
  expect(counts([...BEGIN, ...late])).toEqual([
    ["default/canary", 1],
    ["default/web", 2],
  ]);
});

test("the writes of one protector may not, and no count goes before what its own protector was", () => {
  const back = [
    counted("canary", CANARY, 16, 1, 15),
    counted("web", WEB, 17, 3, 15),
    counted("web", WEB, 18, 2, 14),
    counted("canary", CANARY, 19, 1, 14),
  ];
  expect(counts([...BEGIN, ...back])).toEqual([
    ["default/canary", 2],
    ["default/canary", 1],
    ["default/web", 2],
    ["default/web", 1],
  ]);
});
