import { defineConfig } from "vitest/config";

/** Tests that need a control plane; everything else runs in one process without one. */
const CLUSTER_TESTS = "test/**/*.test.ts";
const SIMULATION_TESTS = "test/simulation/**/*.test.ts";

/** A failure that can't be repeated at will has to say everything at once. */
const chaiConfig = { truncateThreshold: 2000 };

export default defineConfig({
  test: {
    projects: [
      {
        test: {
          name: "unit",
          chaiConfig,
          include: ["{shared,webhook,controllers,scripts}/**/*.test.ts", SIMULATION_TESTS],
          // Against what hangs, not against what is slow: a busy machine must not fail a test.
          testTimeout: 5 * 60_000,
          hookTimeout: 5 * 60_000,
        },
      },
      {
        test: {
          name: "cluster",
          chaiConfig,
          include: [CLUSTER_TESTS],
          exclude: [SIMULATION_TESTS],
          globalSetup: "test/support/cluster/binaries-setup.ts",
          // Clusters are heavy, and mostly wait: two files at a time keep two cores busy. A thousand deletions at once are busy enough alone.
          maxWorkers: process.env.PODSEIDON_TEST_SIZE === "full" ? 1 : 2,
          sequence: { groupOrder: 1 },
          testTimeout: 10 * 60_000,
          hookTimeout: 10 * 60_000,
        },
      },
    ],
  },
});
