import { describe, expect, it } from "vitest";
import { Etcd } from "../apiserver/etcd.ts";
import { shardOf } from "../apiserver/shards.ts";
import { PodTruth } from "./pod-truth.ts";
import { Position } from "./position.ts";

const [LOW = "", HIGH = ""] = [0, 1].map((shard) =>
  Array.from({ length: 9 }, (_, i) => `${i}-uid`).find((uid) => shardOf(uid, 2) === shard),
);

describe("a position of several shards", () => {
  it.each([
    { before: "5", after: "5", isBehind: false },
    { before: "5", after: "4", isBehind: true },
    { before: "5,9", after: "5,9", isBehind: false },
    { before: "5,9", after: "9,8", isBehind: true },
    { before: "5,9", after: "9", isBehind: false },
    { before: "5,9", after: "8", isBehind: true },
    { before: "8", after: "9,7", isBehind: true },
    { before: "8", after: "8,9,8,9", isBehind: false },
    { before: "5,9", after: "5,5,9,9", isBehind: false },
    { before: "5,9", after: "5,5,8,9", isBehind: true },
  ])("$after after $before is behind: $isBehind", ({ before, after, isBehind }) => {
    expect(new Position(after).isBehind(new Position(before))).toBe(isBehind);
  });

  it("shows each pod as it was at the version of its own shard", () => {
    const etcd = new Etcd();
    const truth = new PodTruth(etcd);
    const ready = (uid: string, status: string): object => ({
      metadata: { uid, labels: { app: "web" } },
      status: { phase: "Running", conditions: [{ type: "Ready", status }] },
    });
    const write = (uid: string, status: string): number => {
      etcd.put(`pods/default/${uid}`, { ...ready(uid, status) });
      return etcd.revision;
    };
    const first = write(LOW, "True");
    const second = write(HIGH, "True");
    const third = write(LOW, "False");
    const wanted = { labels: { app: "web" }, minReadySeconds: 0 };
    const at = (text: string): string[] => [...truth.availableAt(new Position(text), wanted, 0)];
    expect(at(`${first},${first}`)).toEqual([LOW]);
    expect(at(`${second},${second}`)).toEqual([LOW, HIGH]);
    expect(at(`${third},${second}`)).toEqual([HIGH]);
    expect(at(`${second},${third}`)).toEqual([LOW, HIGH]);
    expect(at(`${third},${first}`)).toEqual([]);
    expect(at(`${second}`)).toEqual([LOW, HIGH]);
  });

  it("shows both pods of a name while the shard of the first is behind", () => {
    const etcd = new Etcd();
    const truth = new PodTruth(etcd);
    const ready = { phase: "Running", conditions: [{ type: "Ready", status: "True" }] };
    const made = (uid: string): number => {
      etcd.put("pods/default/web", { metadata: { uid, labels: {} }, status: ready });
      return etcd.revision;
    };
    const first = made(LOW);
    etcd.delete("pods/default/web");
    const second = made(HIGH);
    const wanted = { labels: {}, minReadySeconds: 0 };
    const at = (text: string): string[] => [...truth.availableAt(new Position(text), wanted, 0)];
    expect(at(`${first},${second}`)).toEqual([LOW, HIGH]);
    expect(at(`${second},${second}`)).toEqual([HIGH]);
    expect(at(`${first + 1},${first}`)).toEqual([]);
  });
});
