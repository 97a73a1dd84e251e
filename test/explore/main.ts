/**
 * `npm run explore`: visits every state of a small world around the shipping decisions, and checks the invariants
 * (docs/design.md#invariants) in each. docs/explorer.md says what the world has.
 */
import { parseArgs } from "node:util";
import { patchSources } from "../simulation/ablation/patch-sources.ts";
import { isRule, type Rule } from "../simulation/ablation/rules.ts";
import { type Bounds, DEFAULTS } from "./bounds.ts";
import { LEFT_OUT_RULES } from "./left-out.ts";
import { searchWithout } from "./search/rule-process.ts";

const HELP = `usage: npm run explore -- [BOUNDS] [--without RULE] [--minutes M] [--threads T] [--states N]
       npm run explore -- --rules
  --cells N --pods N   cells, and ready pods of each (default 1, 2)
  --later N            pods of each cell that are created later (default 0)
  --min-available N    of the protector (default 1)
  --admissions N       disruptions that are admitted (default 2)
  --changes N          changes of pods by themselves (default 1)
  --faults N           crashes of leaders, second leaders, removed entries, edits of the spec (default 1)
  --min-ready-seconds N  with 1 pods mature when the clock ticks, once (default 0)
  --compact-threshold N  with 0 the history is packed (default 100)
  --without RULE       leave out a rule of the protocol (test/simulation/ablation/rules.ts), and tell the shortest
                       story that breaks an invariant
  --minutes M          end after so long (default 10)
  --threads T          work in so many threads (default 1)
  --states N           room for so many million states, 20 bytes each (default 16)
  --rules              leave out each rule that the explorer knows a small world for`;

process.exitCode = await main();

async function main(): Promise<number> {
  const { values } = parseArgs({
    options: {
      cells: { type: "string" },
      pods: { type: "string" },
      later: { type: "string" },
      "min-available": { type: "string" },
      admissions: { type: "string" },
      changes: { type: "string" },
      faults: { type: "string" },
      "min-ready-seconds": { type: "string" },
      "compact-threshold": { type: "string" },
      without: { type: "string", multiple: true, default: [] },
      minutes: { type: "string", default: "10" },
      threads: { type: "string", default: "1" },
      states: { type: "string", default: "16" },
      rules: { type: "boolean", default: false },
      help: { type: "boolean", default: false },
    },
  });
  if (values.help) return say([HELP]);
  if (values.rules) return rules();
  const bounds: Bounds = {
    cells: whole("cells", values.cells, DEFAULTS.cells),
    pods: whole("pods", values.pods, DEFAULTS.pods),
    later: whole("later", values.later, DEFAULTS.later),
    minAvailable: whole("min-available", values["min-available"], DEFAULTS.minAvailable),
    admissions: whole("admissions", values.admissions, DEFAULTS.admissions),
    changes: whole("changes", values.changes, DEFAULTS.changes),
    faults: whole("faults", values.faults, DEFAULTS.faults),
    minReadySeconds: whole("min-ready-seconds", values["min-ready-seconds"], DEFAULTS.minReadySeconds),
    compactThreshold: whole("compact-threshold", values["compact-threshold"], DEFAULTS.compactThreshold),
  };
  const millions = whole("states", values.states, 16);
  const limits = {
    endMs: Date.now() + whole("minutes", values.minutes, 10) * 60_000,
    threads: whole("threads", values.threads, 1),
    capacity: 2 ** Math.ceil(Math.log2(Math.max(1, millions) * 1_000_000)),
  };
  return explore(bounds, limits, rulesOf(values.without));
}

async function explore(
  bounds: Bounds,
  limits: { readonly endMs: number; readonly threads: number; readonly capacity: number },
  leftOut: readonly Rule[],
): Promise<number> {
  const startedMs = performance.now();
  const seconds = (): string => ((performance.now() - startedMs) / 1000).toFixed(1);
  patchSources(leftOut);
  const { search } = await import("./search/search.ts");
  const onLevel = (depth: number, states: number): void => {
    say([`${String(depth).padStart(3)} steps: ${states} states after ${seconds()} s`]);
  };
  const found = await search(bounds, { ...limits, leftOut, onLevel });
  say(found.story);
  if (found.violation !== undefined) say([found.violation]);
  const end = found.violation !== undefined ? "a violation" : found.isComplete ? "complete" : "not complete";
  say([`${end}: ${found.states} states, ${found.steps} steps, ${found.depth} deep, ${seconds()} s`]);
  return found.violation === undefined ? 0 : 1;
}

/** Tells for each rule the shortest story that breaks an invariant without it. */
async function rules(): Promise<number> {
  let failed = 0;
  for (const { rule, invariant, bounds } of LEFT_OUT_RULES) {
    const { violation = "nothing is broken", story, states } = await searchWithout(rule, bounds);
    const isAsExpected = violation.startsWith(`${invariant}:`);
    if (!isAsExpected) failed++;
    say([`${isAsExpected ? "ok    " : "FAILED"} ${rule}: ${violation} (${story.length} steps, ${states} states)`]);
    say(story.map((line, index) => `${String(index + 1).padStart(9)}. ${line}`));
  }
  say([`${LEFT_OUT_RULES.length} rules, ${failed} without effect`]);
  return failed === 0 ? 0 : 1;
}

function whole(name: string, text: string | undefined, otherwise: number): number {
  const value = text === undefined ? otherwise : Number(text);
  if (!Number.isSafeInteger(value) || value < 0) throw new Error(`--${name} must be a whole number, not ${text}`);
  return value;
}

function rulesOf(names: readonly string[]): readonly Rule[] {
  const unknown = names.filter((name) => !isRule(name));
  if (unknown.length > 0) throw new Error(`there is no rule ${unknown.join(", ")}`);
  return names.filter(isRule);
}

function say(lines: readonly string[]): number {
  for (const line of lines) process.stdout.write(`${line}\n`);
  return 0;
}
