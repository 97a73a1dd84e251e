import { describe, expect, test } from "vitest";
import { accountObjects, checkCellName, isUsable } from "./cell-objects.ts";

describe("the id of a cell that joins is part of names", () => {
  test.each(["worker-2", "eu.west-1.a", "0", "a".repeat(223)])("%s is one", (cell) => {
    expect(() => checkCellName(cell)).not.toThrow();
  });

  test.each(["Worker", "worker_2", "a b", "-a", "a-", "a..b", "a.", "ä", "a/b", "", "a".repeat(224)])(
    "%s is none",
    (cell) => {
      expect(() => checkCellName(cell)).toThrow(/a DNS-1123 subdomain, at most 223/);
    },
  );

  test("and every name has at most 253 characters", () => {
    const names = accountObjects("aggregator", "a".repeat(223), "podseidon-system").map(({ name }) => name);
    expect(names.map((name) => name.split("/")[1]?.length ?? 0).filter((length) => length > 253)).toEqual([]);
  });
});

describe("a token goes on serving", () => {
  const token = (claims: object): string => {
    const owner = { namespace: "n", serviceaccount: { name: "a", uid: "a1" }, secret: { name: "s", uid: "s1" } };
    const payload = JSON.stringify({ iat: 1000, exp: 2000, "kubernetes.io": owner, ...claims });
    return `e30.${Buffer.from(payload).toString("base64url")}.x`;
  };
  const other = { namespace: "n", serviceaccount: { name: "a", uid: "a1" } };

  test.each<[string, string, string, string, number, boolean]>([
    ["that is young", token({}), "a1", "s1", 1_799_999, true],
    ["that is about to expire", token({}), "a1", "s1", 1_800_000, false],
    ["of an account that was deleted", token({}), "a2", "s1", 1_000_000, false],
    ["whose Secret was deleted", token({}), "a1", "s2", 1_000_000, false],
    ["that is bound to no Secret", token({ "kubernetes.io": other }), "a1", "s1", 1_000_000, false],
    ["of no account", token({ "kubernetes.io": undefined }), "a1", "s1", 1_000_000, false],
    ["that is none", "abc", "a1", "s1", 1_000_000, false],
  ])("%s", (_, text, account, secret, nowMs, expected) => {
    expect(isUsable(text, account, secret, nowMs)).toBe(expected);
  });
});
