import { expect, it } from "vitest";
import { FlushBatcher } from "./flush-batcher.ts";

it("calls back for all that wait in one turn together, after what the turn still decides", async () => {
  const endOfTurn = new FlushBatcher();
  const order: string[] = [];
  const note = (what: string) => (): void => {
    order.push(what);
  };
  endOfTurn.after(note("called"));
  const decided = Promise.resolve().then(note("decided")).then(note("decided after a wait for another answer"));
  const answers = [endOfTurn.reached().then(note("first answer")), endOfTurn.reached().then(note("second answer"))];
  endOfTurn.after(note("called last"));
  await Promise.all([decided, ...answers]);
  const called = ["called", "called last", "first answer", "second answer"];
  expect(order).toEqual(["decided", "decided after a wait for another answer", ...called]);
});

it("calls back in the next turn for what begins to wait during a flush", async () => {
  const endOfTurn = new FlushBatcher();
  const order: string[] = [];
  const again = new Promise<void>((resolve) => {
    endOfTurn.after(() => {
      endOfTurn.after(() => {
        order.push("next turn");
        resolve();
      });
      order.push("this turn");
    });
  });
  await again;
  expect(order).toEqual(["this turn", "next turn"]);
});

it("calls back for what takes long after all others, one in each turn", async () => {
  const batcher = new FlushBatcher();
  const order: string[] = [];
  await new Promise<void>((resolve) => {
    batcher.afterOthers(() => {
      order.push("large");
      batcher.after(() => order.push("small, later"));
    });
    batcher.afterOthers(() => {
      order.push("large, too");
      resolve();
    });
    batcher.after(() => order.push("small"));
  });
  expect(order).toEqual(["small", "large", "small, later", "large, too"]);
});
