import { expect, it } from "vitest";
import { HEADER, judge, row } from "./figures.ts";

it.each([
  ["no goal", undefined, 1, 1, ["", ""]],
  ["at least, reached", { least: 1.2 }, 12, 10, [">= 1.2x", "OK"]],
  ["at least, missed", { least: 1.2 }, 11, 10, [">= 1.2x", "MISSED"]],
  ["at most, reached", { most: 0.5 }, 5, 10, ["<= 0.5x", "OK"]],
  ["at most, missed", { most: 0.5 }, 6, 10, ["<= 0.5x", "MISSED"]],
  ["a bound, reached without upstream", { bound: 60 }, 60, Number.NaN, ["<= 60", "OK"]],
  ["a bound, missed", { bound: 60 }, 61, Number.NaN, ["<= 60", "MISSED"]],
  ["a ratio without upstream", { least: 1 }, 5, Number.NaN, [">= 1x", "-"]],
])("%s", (_, goal, value, upstream, expected) => {
  expect(judge(goal, value, upstream)).toEqual(expected);
});

it("makes a line of the table of a figure", () => {
  const figure = { work: "none", title: "no protector matches", name: "reviews/s", digits: 0 };
  const line = ["no protector matches", "reviews/s", "6000", "4000", "1.50x", ">= 1.2x", "OK"];
  expect(row({ ...figure, own: 6000, upstream: 4000 })).toEqual(line);
  expect(line).toHaveLength(HEADER.length);
  const alone = ["no protector matches", "reviews/s", "6000", "-", "-", ">= 1.2x", "-"];
  expect(row({ ...figure, own: 6000, upstream: Number.NaN })).toEqual(alone);
});
