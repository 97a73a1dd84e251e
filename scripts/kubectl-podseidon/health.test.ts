import { expect, test } from "vitest";
import { HEALTH_STATES, type Health, healthOf } from "./health.ts";
import { coloured } from "./invocation/colour.ts";

test("a state has the colour of its health on a terminal", () => {
  const colours: Readonly<Record<Health, number>> = { trouble: 31, attention: 33, order: 32 };
  expect(HEALTH_STATES.map((state) => coloured(`web   ${state}\n`))).toEqual(
    HEALTH_STATES.map((state) => `web   \u001b[${colours[healthOf(state)]}m${state}\u001b[0m\n`),
  );
});
