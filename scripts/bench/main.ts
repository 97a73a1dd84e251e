/**
 * `npm run bench -- NAME [options]`: every benchmark of the project, by name; `NAME-bench.ts` runs it. Parts of the
 * webhook's are `quota-free.ts`, `reserved-object.ts`, `hostile.ts` and `rollout.ts`. The folder `fixture` has the
 * environment (`cell-fixture.ts`, `contenders.ts`), the load (`load-generator.ts`, `review-client.ts`) and the output
 * (`figures.ts`).
 */

interface Benchmark {
  readonly about: string;
  load(): Promise<{ run(args: readonly string[]): Promise<number> }>;
}

const BENCHMARKS: Readonly<Record<string, Benchmark>> = {
  webhook: {
    about: "reviews per second, latency, writes and memory of the webhook beside upstream's",
    load: () => import("./webhook-bench.ts"),
  },
  aggregator: {
    about: "time to count, memory and latency of the aggregator beside upstream's",
    load: () => import("./aggregator-bench.ts"),
  },
  generator: {
    about: "a core cluster full of Deployments at the generator's start, the next start, and single changes",
    load: () => import("./generator-bench.ts"),
  },
  status: { about: "what the rule of status writes costs kube-apiserver", load: () => import("./status-bench.ts") },
  "cell-policy": {
    about: "what the policies that hold each cell to its own entry cost kube-apiserver of the core",
    load: () => import("./cell-policy-bench.ts"),
  },
  index: {
    about: "matching a pod among 10,000 protectors, against a linear scan",
    load: () => import("./index-bench.ts"),
  },
  soak: {
    about: "what each process holds after a long life: all of them, with churn",
    load: () => import("./soak-bench.ts"),
  },
  "cold-start": {
    about: "exec to first TLS answer and to ready, against bare node",
    load: () => import("./cold-start-bench.ts"),
  },
};

const [name, ...args] = process.argv.slice(2);
const benchmark = name === undefined ? undefined : BENCHMARKS[name];
if (benchmark === undefined) {
  const known = Object.entries(BENCHMARKS).map(([key, value]) => `  ${key.padEnd(12)} ${value.about}`);
  process.stdout.write(`usage: npm run bench -- NAME [--help] [options]\n\n${known.join("\n")}\n`);
  process.exitCode = name === undefined || name === "--help" ? 0 : 2;
} else {
  process.exitCode = await (await benchmark.load()).run(args);
}
