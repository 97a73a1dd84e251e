/** `drain-check` of a cluster that has no webhook configuration. */
import { expect, test } from "vitest";
import { makeCell, makePod, makeProtector, NOW_MS } from "../../test/support/decide/fixtures.ts";
import { drainText, isUnprotected, planDrain } from "./drain.ts";
import type { DryRunResult } from "./question.ts";

const admitted: DryRunResult = {
  ...{ verdict: "admitted", message: "", retryAfterSeconds: undefined, causes: [], warnings: [] },
};
const pods = ["web-0", "web-1", "web-2"].map((name) => ({ pod: makePod(name), answer: admitted }));
const covered = planDrain(pods, [makeProtector([makeCell("a", 3)])], "a", NOW_MS);
const uncovered = planDrain(pods, [], "a", NOW_MS);

const answering = (message: string) => ({
  raw: async () => ({ status: 404, headers: {}, body: JSON.stringify({ message }) }),
});
const nobody = answering('pods "x" not found');
const webhook = answering('admission webhook "bind.podseidon.kubewharf.io" denied the request: pods "x" not found');

test.each<[string, typeof nobody, unknown, typeof covered, boolean]>([
  ["no webhook configuration", nobody, "none", covered, true],
  ["none, and no protector that covers a pod", nobody, "none", uncovered, false],
  ["none, and a webhook of the admission configuration", webhook, "none", covered, false],
  ["one that may not be read", nobody, undefined, covered, false],
  ["one", nobody, { webhooks: [] }, covered, false],
])(
  "a drain is not held up by a promise that nobody asks about: %s",
  async (_, cluster, configuration, lines, expected) => {
    expect(await isUnprotected(cluster, configuration, lines)).toBe(expected);
    const text = drainText("node-1", lines, 0, false, expected);
    expect(text.startsWith("UNPROTECTED: ")).toBe(expected);
  },
);
