/** The specification in `docs/spec`, as `quint` reads it, and walks of quint's own simulator through it. */
import { spawnSync } from "node:child_process";
import { mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import * as v from "valibot";
import { root } from "../../scripts/root.ts";
import { Actions } from "./actions.ts";
import { Evaluator } from "./evaluate.ts";
import { type Expression, type Module, parseResultSchema } from "./syntax.ts";
import type { Value, Values } from "./values.ts";

const QUINT = join(root, "node_modules/@informalsystems/quint/dist/src/cli.js");
const SCENARIOS = join(root, "test/spec/scenarios.qnt");

export interface Specification {
  /** The names of the small worlds. */
  readonly scenarios: readonly string[];
  /** The comments of every definition. */
  readonly comments: readonly string[];
  open(scenario: string, without?: string): OpenScenario;
  /** The protocol with these values of its constants. */
  withConstants(constants: Constants): OpenScenario;
}

export type Constants = readonly (readonly [string, Expression])[];

export interface OpenScenario {
  readonly actions: Actions;
  readonly values: Values;
}

/** Runs quint; throws with what it says when it fails. */
function quint(...args: readonly string[]): string {
  const { status, stdout, stderr } = spawnSync(process.execPath, [QUINT, ...args], { encoding: "utf8" });
  if (status !== 0) throw new Error(`quint ${args.join(" ")}\n${stdout}\n${stderr}`);
  return stdout;
}

/** Throws where quint finds a fault in its names, types or effects. */
export function loadSpecification(): Specification {
  const modules = inDirectory((directory) => {
    const file = join(directory, "parsed.json");
    quint("typecheck", SCENARIOS, `--out=${file}`);
    return v.parse(parseResultSchema, JSON.parse(readFileSync(file, "utf8"))).modules;
  });
  const protocol = modules.find(({ name }) => name === "protocol");
  if (protocol === undefined) throw new Error("no module protocol");
  const openWith = (constants: Constants): OpenScenario => {
    const evaluator = new Evaluator(protocol, constants);
    return { actions: new Actions(evaluator), values: evaluator.values };
  };
  const worlds = new Map(modules.filter((module) => module !== protocol).map((module) => [module.name, module]));
  return {
    scenarios: [...worlds.keys()],
    comments: protocol.declarations.flatMap((declaration) =>
      declaration.kind === "def" ? [declaration.doc ?? ""] : [],
    ),
    open: (scenario, without = "") => {
      const world = worlds.get(scenario);
      if (world === undefined) throw new Error(`no scenario ${scenario}`);
      return openWith(constantsOf(world, without));
    },
    withConstants: openWith,
  };
}

function constantsOf(world: Module, without: string): Constants {
  const instance = world.declarations.find((declaration) => declaration.kind === "instance");
  if (instance === undefined) throw new Error(`${world.name} is no instance of the protocol`);
  return instance.overrides.map(([{ name }, expression]) =>
    name === "WITHOUT" ? [name, { kind: "str", id: 0, value: without }] : [name, expression],
  );
}

const walkSchema = v.object({ vars: v.tuple([v.string()]), states: v.array(v.record(v.string(), v.unknown())) });

/** Random walks of quint's simulator through a scenario, each as its states. */
export function walksOfQuint(scenario: string, values: Values, count: number, steps: number): Value[][] {
  return inDirectory((directory) => {
    const options = ["--backend=typescript", `--max-samples=${count}`, `--n-traces=${count}`, `--max-steps=${steps}`];
    const out = `--out-itf=${join(directory, "walk_{seq}.json")}`;
    quint("run", SCENARIOS, `--main=${scenario}`, "--seed=0x5eed", ...options, out);
    return readdirSync(directory).map((file) => {
      const { vars, states } = v.parse(walkSchema, JSON.parse(readFileSync(join(directory, file), "utf8")));
      return states.map((state) => fromTrace(state[vars[0]], values));
    });
  });
}

const mapSchema = v.object({ "#map": v.array(v.tuple([v.unknown(), v.unknown()])) });
const setSchema = v.object({ "#set": v.array(v.unknown()) });
const tupleSchema = v.object({ "#tup": v.array(v.unknown()) });
const integerSchema = v.object({ "#bigint": v.string() });
const recordSchema = v.record(v.string(), v.unknown());

/** A value in the Informal Trace Format. */
function fromTrace(json: unknown, values: Values): Value {
  if (typeof json === "string" || typeof json === "boolean" || typeof json === "number") return json;
  if (v.is(integerSchema, json)) return Number(json["#bigint"]);
  if (v.is(setSchema, json)) return values.set(json["#set"].map((element) => fromTrace(element, values)));
  if (v.is(tupleSchema, json)) return values.tuple(json["#tup"].map((item) => fromTrace(item, values)));
  if (v.is(mapSchema, json))
    return values.map(json["#map"].map(([key, value]) => [fromTrace(key, values), fromTrace(value, values)]));
  const fields = Object.entries(v.parse(recordSchema, json)).sort(([a], [b]) => (a < b ? -1 : 1));
  return values.record(
    fields.map(([name]) => name),
    fields.map(([, value]) => fromTrace(value, values)),
  );
}

function inDirectory<T>(use: (directory: string) => T): T {
  const directory = mkdtempSync(join(tmpdir(), "podseidon-spec-"));
  try {
    return use(directory);
  } finally {
    rmSync(directory, { recursive: true, force: true });
  }
}
