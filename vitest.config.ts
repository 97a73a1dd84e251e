import { defineConfig } from "vitest/config";
import { BaseSequencer, type TestSpecification } from "vitest/node";

const SIMULATION_TESTS = ["test/simulation/**/*.test.ts", "test/explore/**/*.test.ts", "test/spec/**/*.test.ts"];
/** Each rule of the simulation's ablations is still found in the sources; any change of a source can break that. */
const ABLATION_SOURCES = "test/simulation/ablation/*.test.ts";
const CHECKER_TESTS = "test/histories/{checker,replay}/*.test.ts";

/** A failure that can't be repeated at will has to say everything at once. */
const chaiConfig = { truncateThreshold: 2000 };
/** Limits for what hangs, not for what is slow: a busy machine must not fail a test. */
const MINUTE_MS = 60_000;
const isFull = process.env.PODSEIDON_TEST_SIZE === "full";
/** At full size, ten rounds of one test take ten times as long. */
const CLUSTER_LIMIT_MS = (isFull ? 60 : 20) * MINUTE_MS;
/** `expect.poll` gives up after a second by default. */
const expectConfig = { poll: { timeout: 4 * MINUTE_MS } };

/** The files that take a minute and more, the longest first: one of them begun last would run alone at the end. */
const LONGEST = [
  "test/faults/components.test.ts",
  "test/faults/credentials.test.ts",
  "test/cluster/admission/node-deletion.test.ts",
  "test/cluster/topologies/join.test.ts",
  "test/cluster/loss/lost-namespaces.test.ts",
  "test/cluster/installation/rollout-ladder.test.ts",
  "test/cluster/installation/release.test.ts",
  "test/faults/wires.test.ts",
  "test/faults/list-watch.test.ts",
  "test/cluster/people/demo.test.ts",
  "test/faults/server-responses.test.ts",
  "test/cluster/people/operator-moments.test.ts",
  "test/catastrophe/burst.test.ts",
  "test/catastrophe/catastrophes.test.ts",
];

class LongestFirst extends BaseSequencer {
  override async sort(files: TestSpecification[]): Promise<TestSpecification[]> {
    const rank = ({ moduleId }: TestSpecification): number => {
      const index = LONGEST.findIndex((file) => moduleId.endsWith(file));
      return index < 0 ? LONGEST.length : index;
    };
    const sorted = await super.sort(files);
    return sorted.sort((a, b) => (a.project.name === b.project.name ? rank(a) - rank(b) : 0));
  }
}

export default defineConfig({
  test: {
    sequence: { sequencer: LongestFirst },
    projects: [
      {
        test: {
          name: "unit",
          chaiConfig,
          expect: expectConfig,
          // Files share processes: to start one and load the modules again for each file took half of the time.
          isolate: false,
          include: ["{shared,webhook,controllers,scripts}/**/*.test.ts", ABLATION_SOURCES, CHECKER_TESTS],
          testTimeout: 5 * MINUTE_MS,
          hookTimeout: 5 * MINUTE_MS,
        },
      },
      {
        test: {
          name: "simulation",
          chaiConfig,
          expect: expectConfig,
          include: SIMULATION_TESTS,
          exclude: [ABLATION_SOURCES],
          sequence: { groupOrder: 1 },
          // One file takes most of the time; the other processor runs the rest meanwhile.
          maxWorkers: 2,
          // The clusters beside it go first.
          testTimeout: 20 * MINUTE_MS,
          hookTimeout: 20 * MINUTE_MS,
        },
      },
      {
        test: {
          name: "cluster",
          chaiConfig,
          expect: expectConfig,
          include: ["test/**/*.test.ts"],
          exclude: [...SIMULATION_TESTS, CHECKER_TESTS],
          globalSetup: "test/support/cluster/binaries-setup.ts",
          // Clusters mostly wait: four files at a time keep two cores busy. At full size a file keeps them busy alone.
          maxWorkers: isFull ? 1 : 4,
          sequence: { groupOrder: 2 },
          testTimeout: CLUSTER_LIMIT_MS,
          hookTimeout: CLUSTER_LIMIT_MS,
        },
      },
    ],
  },
});
