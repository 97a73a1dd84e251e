/** `npm run bench -- index`: pods to protectors and back, against a linear scan of the same compiled selectors. */
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { type CompiledSelector, compileSelector } from "../../shared/decide/availability/selector.ts";
import { LabelIndex, type Labelled } from "../../shared/kube/selectors/label-index.ts";
import { SelectorIndex } from "../../shared/kube/selectors/set-trie.ts";
import type { LabelSelector } from "../../shared/schema/podprotector.ts";
import { readOptions } from "../options.ts";
import { quantile, table } from "./fixture/figures.ts";

const HELP = `usage: npm run bench -- index [--protectors N] [--pods N] [--samples N]

Matches pods among protectors of 4 labels: one with as many values as there are protectors, three shared. Times are per
match, of batches of 20; the goals, for matchLabels, are a median of at most 5 us and at least 20 times the speed of a
linear scan.
`;
const GOAL_MEDIAN_US = 5;
const GOAL_SPEEDUP = 20;
/** A single match is close to the clock's resolution. */
const BATCH = 20;
const NAMESPACE = "default";

interface Shape {
  readonly name: string;
  /** The goals are for this shape. */
  readonly goal: boolean;
  selector(index: number): LabelSelector;
}

const shared = (index: number): Record<string, string> => ({
  team: `team-${index % 10}`,
  tier: index % 2 === 0 ? "web" : "db",
  env: "prod",
});
const app = (index: number): string => `app-${index}`;

const SHAPES: readonly Shape[] = [
  {
    name: "matchLabels of 4 labels",
    goal: true,
    selector: (index) => ({ matchLabels: { ...shared(index), app: app(index) } }),
  },
  {
    name: "In, Exists, NotIn, DoesNotExist",
    goal: false,
    selector: (index) => ({
      matchLabels: { env: "prod" },
      matchExpressions: [
        { key: "app", operator: "In", values: [app(index), `${app(index)}-canary`] },
        { key: "team", operator: "Exists" },
        { key: "tier", operator: "NotIn", values: ["cache"] },
        { key: "legacy", operator: "DoesNotExist" },
      ],
    }),
  },
];

interface Figures {
  readonly p50Us: number;
  readonly p99Us: number;
}

/** Runs the benchmark and prints a table; 1 when a goal is missed. */
export async function run(args: readonly string[]): Promise<number> {
  const options = readOptions(args, HELP, {
    protectors: { type: "string", default: "10000" },
    pods: { type: "string", default: "20000" },
    samples: { type: "string", default: "2000" },
  });
  if (typeof options === "number") return options;
  const [protectors, podCount, samples] = [Number(options.protectors), Number(options.pods), Number(options.samples)];
  const pods = Array.from({ length: podCount }, (_, index) => podOf(index, protectors));
  let missed = false;
  const rows: string[][] = [];
  for (const shape of SHAPES) {
    const figures = benchShape(shape, pods, protectors, samples);
    const speedup = figures.scan.p50Us / figures.trie.p50Us;
    missed ||= shape.goal && (figures.trie.p50Us > GOAL_MEDIAN_US || speedup < GOAL_SPEEDUP);
    rows.push([
      shape.name,
      figures.trie.p50Us.toFixed(2),
      figures.trie.p99Us.toFixed(2),
      figures.scan.p50Us.toFixed(0),
      `${speedup.toFixed(0)}x`,
      figures.buildUs.toFixed(2),
      figures.updateUs.toFixed(2),
      `${figures.bytesEach}`,
    ]);
  }
  process.stdout.write(`${protectors} protectors, ${podCount} pods, Node ${process.version}\n\n`);
  const header = ["selectors", "match p50 us", "p99 us", "scan p50 us", "speedup", "add us", "change us", "bytes each"];
  process.stdout.write(`${table(header, rows)}\n\n${benchPodIndex(pods, protectors, samples)}\n`);
  process.stdout.write(
    `goal: median <= ${GOAL_MEDIAN_US} us, >= ${GOAL_SPEEDUP}x a linear scan: ${missed ? "MISSED" : "met"}\n`,
  );
  return missed ? 1 : 0;
}

function podOf(index: number, protectors: number): Labelled {
  const owner = (index * 7919) % protectors;
  return {
    namespace: NAMESPACE,
    name: `${app(owner)}-${index}`,
    labels: { ...shared(owner), app: app(owner), "pod-template-hash": `${owner % 97}c9f` },
  };
}

function benchShape(shape: Shape, pods: readonly Labelled[], protectors: number, samples: number) {
  const selectors = Array.from({ length: protectors }, (_, index) => shape.selector(index));
  const heapBefore = heapBytes();
  const index = new SelectorIndex<number>();
  const buildUs = microseconds(() => {
    for (const [key, selector] of selectors.entries()) index.set(key, NAMESPACE, selector);
  }, protectors);
  const bytesEach = Math.round((heapBytes() - heapBefore) / protectors);

  const compiled: CompiledSelector[] = selectors.map((selector) => compileSelector(selector, "matches"));
  for (const { labels } of pods.slice(0, 10)) {
    const scanned = compiled.flatMap(({ matches }, key) => (matches(labels) ? [key] : []));
    if (
      scanned.join() !==
      index
        .match(NAMESPACE, labels)
        .sort((a, b) => a - b)
        .join()
    )
      throw new Error(`the index and the scan differ on ${JSON.stringify(labels)}`);
  }

  let found = 0;
  const trie = measure(samples, BATCH, pods, ({ labels }) => {
    found += index.match(NAMESPACE, labels).length;
  });
  if (found === 0) throw new Error("no pod matched any protector: the benchmark measures nothing");
  const scan = measure(Math.ceil(samples / 20), 1, pods, ({ labels }) => {
    for (const { matches } of compiled) found += matches(labels) ? 1 : 0;
  });
  const changes = Math.min(protectors, 2000);
  const updateUs = microseconds(() => {
    for (let key = 0; key < changes; key += 1) index.set(key, NAMESPACE, shape.selector(key + protectors));
  }, changes);
  return { trie, scan, buildUs, updateUs, bytesEach };
}

/** The other direction: the pods of a protector. */
function benchPodIndex(pods: readonly Labelled[], protectors: number, samples: number): string {
  const index = new LabelIndex<Labelled>();
  const addUs = microseconds(() => {
    for (const pod of pods) index.add(pod);
  }, pods.length);
  const selectors = Array.from(
    { length: protectors },
    (_, key): LabelSelector => ({ matchLabels: { ...shared(key), app: app(key) } }),
  );
  const select = measure(samples, BATCH, selectors, (selector) => {
    for (const _ of index.select(NAMESPACE, selector));
  });
  const scan = measure(Math.ceil(samples / 100), 1, selectors, (selector) => {
    const { matches } = compileSelector(selector, "fails");
    pods.filter(({ labels }) => matches(labels));
  });
  return table(
    ["pods of a protector", "select p50 us", "p99 us", "scan p50 us", "speedup", "add us"],
    [
      [
        "matchLabels of 4 labels",
        select.p50Us.toFixed(2),
        select.p99Us.toFixed(2),
        scan.p50Us.toFixed(0),
        `${(scan.p50Us / select.p50Us).toFixed(0)}x`,
        addUs.toFixed(2),
      ],
    ],
  );
}

function measure<T>(samples: number, batch: number, inputs: readonly T[], work: (input: T) => void): Figures {
  const times: number[] = [];
  let next = 0;
  const once = (): void => {
    const input = inputs[next++ % inputs.length];
    if (input !== undefined) work(input);
  };
  for (let warm = 0; warm < samples; warm += 1) once();
  for (let sample = 0; sample < samples; sample += 1) {
    times.push(
      microseconds(() => {
        for (let one = 0; one < batch; one += 1) once();
      }, batch),
    );
  }
  return { p50Us: quantile(times, 0.5), p99Us: quantile(times, 0.99) };
}

function heapBytes(): number {
  setFlagsFromString("--expose-gc");
  runInNewContext("gc")();
  return process.memoryUsage().heapUsed;
}

function microseconds(work: () => void, divisor: number): number {
  const begin = process.hrtime.bigint();
  work();
  return Number(process.hrtime.bigint() - begin) / 1000 / divisor;
}
