import { expect, test } from "vitest";
import { Paths } from "./paths.ts";

const paths = new Paths("/webhook", new Set(["cell-1", "a.b_c", "zelle ü", "50"]));

test.each([
  ["/webhook/cell-1", { cell: "cell-1", kind: "validate", timeout: undefined }],
  ["/webhook/cell-1?timeout=10s", { cell: "cell-1", kind: "validate", timeout: "10s" }],
  ["/webhook/a.b_c/mutate?timeout=1m2.5s", { cell: "a.b_c", kind: "mutate", timeout: "1m2.5s" }],
  ["/webhook/50/gate?timeout=500ms", { cell: "50", kind: "gate", timeout: "500ms" }],
  ["/webhook/cell-1/gate/all", { cell: "cell-1", kind: "gateAll", timeout: undefined }],
])("%s is found", (url, place) => {
  expect(paths.find(url)).toEqual(place);
});

test.each([
  "/webhook/cell-2",
  "/webhook/cell-1/",
  "/webhook/cell-1/other",
  "/webhook//cell-1",
  "/webhook/cell%2D1",
  "/webhook/zelle%20%C3%BC",
  "/webhook/zelle ü",
  "/webhook/cell-1?",
  "/webhook/cell-1?timeout",
  "/webhook/cell-1?timeout=",
  "/webhook/cell-1?timeout=1%30s",
  "/webhook/cell-1?timeout=10s&dryRun=All",
  "/webhook/cell-1?other=1&timeout=10s",
  "/webhook/cell-1?timeout=10s?timeout=20s",
  "/webhook/cell-1#timeout=10s",
  "/webhook/__proto__",
  "/webhook",
  "/",
  "",
])("%s is the router's", (url) => {
  expect(paths.find(url)).toBeUndefined();
});
