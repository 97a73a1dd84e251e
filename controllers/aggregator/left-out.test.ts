/** Protectors that `--protector-selector` leaves out. */
import { expect, test } from "vitest";
import { COUNTED_CONDITION } from "../../shared/schema/annotations.ts";
import { type AggregatorHarness, bucket, counted } from "../../test/support/aggregator/aggregator-harness.ts";

const selects = ({ fleet }: Readonly<Record<string, string>>): boolean => fleet === undefined;

function label(harness: AggregatorHarness, name: string, labels: Record<string, string>): void {
  harness.core.edit(name, (object) => ({ ...object, metadata: { ...object.metadata, labels } }));
}

const GATED = {
  readinessGates: [COUNTED_CONDITION],
  waitsForGates: true,
  conditions: [
    { type: "ContainersReady", status: true, sinceMs: 1 },
    { type: "Ready", status: false, sinceMs: 1 },
  ],
};

test("a protector that is left out keeps no pod behind its counted gate", async () => {
  const harness = await counted({ selects });
  harness.core.put("other", { selector: { matchLabels: { app: "p" } } });
  label(harness, "other", { fleet: "green" });
  await harness.run(20);
  harness.cell.put("new", GATED);
  await harness.run(1_000);
  expect(harness.cell.patches).toHaveLength(1);
});

test("a protector that is left out while a reservation waits asks for nothing more", async () => {
  const harness = await counted({ selects });
  const pending = () =>
    [...harness.aggregator.coreReconcilers.values()].flatMap((one) =>
      [...one.states()].flatMap(([, it]) => it.pending),
    );
  harness.core.admit("p", "cell", bucket(harness.cell.pod("a")));
  await harness.run(100);
  expect(pending()).toHaveLength(1);
  label(harness, "p", { fleet: "green" });
  await harness.run(100_000);
  expect(pending()).toEqual([]);
  const { length } = harness.cell.gets;
  const { asked } = harness.cell.pods;
  await harness.run(600_000);
  expect([harness.cell.gets.length - length, harness.cell.pods.asked - asked]).toEqual([0, 0]);
});
