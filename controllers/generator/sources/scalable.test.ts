import { readFileSync } from "node:fs";
import { join } from "node:path";
import * as v from "valibot";
import { describe, expect, test } from "vitest";
import { root } from "../../../scripts/root.ts";
import { generatorOptions } from "../controller.ts";
import { readScalables } from "./scalable.ts";

const RAY = "ray.io/v1/rayclusters";
const GROUPS =
  `${RAY}?name=.spec.groups[*].name&replicas=.spec.groups[*].replicas` +
  "&selector=ray.io/cluster={.metadata.name},ray.io/group={.spec.groups[*].name}";

describe("--scalable", () => {
  test.each([
    ["a.b/v1/cs"],
    ["a.b/v1/cs?maxUnavailable=.spec.maxUnavailable"],
    ["a.b/v1/cs?selector=app={.metadata.name}"],
    ["a.b/v1/cs?replicas=.spec.size&selector=.spec.selector"],
    ["a.b/v1/cs?replicas=.spec.shards&replicas=.spec.replicas&selector=.spec.selector"],
    [GROUPS],
    [`${GROUPS}&selector=!legacy&maxUnavailable=1`],
  ])("takes %s", (text) => {
    expect(readScalables([text]).problems).toEqual([]);
  });

  test.each([
    ["CloneSet", "expected group/version/resource such as argoproj.io/v1alpha1/rollouts, not CloneSet"],
    ["a.b/v1/cs?replicas=.x?selector=.y", /^expected group/],
    [
      "a.b/v1/cs?size=.spec.size",
      /a.b\/v1\/cs: the setting size is not one of name, replicas, selector, maxUnavailable/,
    ],
    ["a.b/v1/cs?", /the setting "" is not one of/],
    ["a.b/v1/cs?replicas=.spec..size&selector=.s", /a.b\/v1\/cs: replicas is no path such as .spec.size/],
    ["a.b/v1/cs?replicas=&selector=.s", /replicas is no path/],
    ["a.b/v1/cs?replicas=.a&name=.b&name=.c&selector=.s", "a.b/v1/cs: name is given twice"],
    ["a.b/v1/cs?replicas=.spec.size", "a.b/v1/cs: replicas needs selector"],
    ["a.b/v1/cs?name=db", /name and \[\*\] need replicas/],
    ["a.b/v1/cs?selector=.spec.groups[*].selector", /name and \[\*\] need replicas/],
    ["a.b/v1/cs?name=.g[*].n&replicas=.g[*].r&selector=.h[*].s", /at most, not .g\[\*\] and .h\[\*\]/],
    ["a.b/v1/cs?name=db&replicas=.g[*].r&selector=.g[*].s", /with \[\*\], name needs/],
    ["a.b/v1/cs?replicas=.g[*].r&selector=.g[*].s", /with \[\*\], name needs/],
    ["a.b/v1/cs?name=.g[*].n&replicas=.g[*].r&selector=.spec.s", /with \[\*\], selector needs/],
  ])("refuses %s", (text, problem) => {
    const { problems } = readScalables([text]);
    expect(problems).toEqual([typeof problem === "string" ? problem : expect.stringMatching(problem)]);
  });

  test("takes several groups of one resource, each with a name, and in one version", () => {
    const of = (name: string, version = "v1"): string =>
      `a.b/${version}/cs?${name}replicas=.spec.size&selector=.spec.selector`;
    const { resources, problems } = readScalables([of("name=a&"), of("name=b&"), RAY]);
    expect(problems).toEqual([]);
    expect(resources.map(({ groups }) => groups.length)).toEqual([2, 1]);
    expect(readScalables([of("name=a&"), of("")]).problems).toEqual([
      "cs.a.b is given several times: each must have a name of its own",
    ]);
    expect(readScalables([of("name=a&"), of("name=b&", "v2")]).problems).toEqual([
      expect.stringContaining("is given in another version, too"),
    ]);
  });

  test("takes what docs/generator.md has as examples", () => {
    const page = readFileSync(join(root, "docs/generator.md"), "utf8");
    const examples = [...page.matchAll(/"--scalable=([^"]+)"/g)].map(([, value = ""]) => value);
    expect(examples.length).toBeGreaterThan(2);
    expect(readScalables(examples).problems).toEqual([]);
  });

  test("in one text, commas before a resource separate values, those of a selector do not", () => {
    const { schema } = generatorOptions.options.scalable;
    expect(v.parse(schema, `a.b/v1/cs,${GROUPS},d.e/v1/fs`)).toEqual(["a.b/v1/cs", GROUPS, "d.e/v1/fs"]);
    expect(v.parse(schema, [GROUPS, "d.e/v1/fs"])).toEqual([GROUPS, "d.e/v1/fs"]);
    expect(v.parse(schema, "")).toEqual([]);
  });
});
