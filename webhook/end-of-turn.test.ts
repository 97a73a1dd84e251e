import { expect, it } from "vitest";
import { EndOfTurn } from "./end-of-turn.ts";

it("is reached once for all who ask in one turn, after what the turn still decides", async () => {
  const endOfTurn = new EndOfTurn();
  const order: string[] = [];
  const note = (what: string) => (): void => {
    order.push(what);
  };
  const first = endOfTurn.reached();
  const decided = Promise.resolve().then(note("decided")).then(note("decided after a wait for another answer"));
  const answers = [first.then(note("first answer")), endOfTurn.reached().then(note("second answer"))];
  await Promise.all([decided, ...answers]);
  expect(order).toEqual(["decided", "decided after a wait for another answer", "first answer", "second answer"]);
  expect(endOfTurn.reached()).not.toBe(first);
});
