import { afterEach, describe, expect, test } from "vitest";
import {
  page,
  ScriptedStream,
  ScriptedTransport,
  statusAnswer,
} from "../../../test/support/kube/scripted-transport.ts";
import { VirtualTime } from "../../../test/support/runtime/virtual-ports.ts";
import type { ApiRequest } from "../client/transport.ts";
import { ShardedReflector } from "./sharded-reflector.ts";
import { checkShardCount, shardOf, shardSelector } from "./shards.ts";

/** FNV-1a as its authors define it. */
function fnv1a(text: string): bigint {
  let hash = 0xcbf29ce484222325n;
  for (const byte of new TextEncoder().encode(text))
    hash = ((hash ^ BigInt(byte)) * 0x100000001b3n) & 0xffffffffffffffffn;
  return hash;
}

describe("the shard of an object", () => {
  test("is the range of the server's hash that its UID falls into", () => {
    expect(fnv1a("foobar")).toBe(0x85944171f73967e8n);
    for (let index = 0; index < 500; index++) {
      const uid = `${index}f3a9c${index * 7}-1111-2222-3333-${index * 31}`;
      for (const count of [1, 2, 4, 64]) expect(shardOf(uid, count)).toBe(Number((fnv1a(uid) * BigInt(count)) >> 64n));
    }
  });

  test("the selectors cover everything, without a gap", () => {
    expect([shardSelector(0, 2), shardSelector(1, 2), shardSelector(3, 4)]).toEqual([
      "shardRange(object.metadata.uid, '0x0000000000000000', '0x8000000000000000')",
      "shardRange(object.metadata.uid, '0x8000000000000000', '0x10000000000000000')",
      "shardRange(object.metadata.uid, '0xc000000000000000', '0x10000000000000000')",
    ]);
  });

  test.each([0, 3, 65, 128, 1.5, -2])("%d shards are rejected", (count) => {
    expect(() => checkShardCount(count)).toThrow(RangeError);
  });
});

interface Thing {
  readonly name: string;
  readonly uid: string;
  readonly version: string;
}
const raw = (name: string, uid: string, version: string): object => ({
  metadata: { name, uid, resourceVersion: version },
});
/** UIDs of the two halves. */
const [LOW = "", HIGH = ""] = [0, 1].map((shard) =>
  Array.from({ length: 9 }, (_, i) => `${i * 7919}-uid`).find((uid) => shardOf(uid, 2) === shard),
);

describe("two shards as one informer", () => {
  const sources: ShardedReflector<Thing>[] = [];
  afterEach(() => Promise.all(sources.splice(0).map((source) => source.stop())));

  async function startShards(shards = 2) {
    const time = new VirtualTime();
    const transport = new ScriptedTransport();
    const everything = page("10", [raw("a", LOW, "1"), raw("b", HIGH, "2")]);
    // A server without the feature sends every object to both shards.
    for (let shard = 0; shard < shards; shard++) transport.lists.push(everything);
    const streams = [new ScriptedStream(), new ScriptedStream()] as const;
    transport.watches.push(...streams);
    for (let shard = 2; shard < shards; shard++) transport.watches.push(new ScriptedStream());
    const source = new ShardedReflector<Thing>({
      name: "things",
      transport,
      ports: time,
      path: "/things",
      shards,
      parse: (value) => {
        const { metadata } = value as { metadata: Record<string, string> };
        return { name: metadata.name ?? "", uid: metadata.uid ?? "", version: metadata.resourceVersion ?? "" };
      },
      keyOf: (thing) => thing.name,
      uidOf: (thing) => thing.uid,
      versionOf: (thing) => thing.version,
    });
    sources.push(source);
    const told: string[] = [];
    source.subscribe({
      changed: (before, after) => told.push(`${before?.uid ?? "-"} > ${after?.uid ?? "-"}`),
      advanced: (position) => told.push(position),
    });
    source.start();
    await source.whenSynced();
    await time.settle();
    return { time, transport, streams, source, told };
  }

  test("hold all objects once, with a vector of positions, and are as current as the shard behind", async () => {
    const { time, transport, streams, source, told } = await startShards();
    expect([source.size, source.position, source.get("a")?.uid, source.get("b")?.uid]).toEqual([2, "10,10", LOW, HIGH]);
    expect(transport.requests.slice(0, 2)).toEqual([
      "LIST shardSelector=shardRange(object.metadata.uid,+'0x0000000000000000',+'0x8000000000000000')&limit=250",
      "LIST shardSelector=shardRange(object.metadata.uid,+'0x8000000000000000',+'0x10000000000000000')&limit=250",
    ]);
    told.length = 0;
    // An object of the other shard takes over the name; the two streams have no common order.
    streams[1].event("ADDED", raw("a", HIGH, "12"));
    await time.settle();
    streams[0].event("DELETED", raw("a", LOW, "11")).event("ADDED", raw("c", HIGH, "13"));
    await time.settle();
    expect(told).toEqual([`- > ${HIGH}`, "10,12", `${LOW} > -`, "11,12", "13,12"]);
    expect([source.get("a")?.uid, source.get("c"), source.positionOf(LOW), source.positionOf(HIGH)]).toEqual([
      HIGH,
      undefined,
      "13",
      "12",
    ]);
  });

  test("a name belongs to its newest object, whatever a shard behind still reports of an older one", async () => {
    const { time, streams, source } = await startShards();
    streams[1].event("ADDED", raw("a", HIGH, "13"));
    await time.settle();
    streams[0].event("MODIFIED", raw("a", LOW, "11"));
    await time.settle();
    expect(source.get("a")?.uid).toBe(HIGH);
    streams[0].event("DELETED", raw("a", LOW, "12"));
    await time.settle();
    expect(source.get("a")?.uid).toBe(HIGH);
  });

  test("a name whose newest object is deleted belongs to the object of another shard", async () => {
    const { time, streams, source } = await startShards();
    streams[1].event("ADDED", raw("a", HIGH, "13")).event("DELETED", raw("a", HIGH, "14"));
    await time.settle();
    expect(source.get("a")?.uid).toBe(LOW);
    streams[0].event("DELETED", raw("a", LOW, "12"));
    await time.settle();
    expect(source.get("a")).toBeUndefined();
  });

  test("a restore that one shard notices makes every other shard list again once", async () => {
    const { time, transport, streams, source } = await startShards();
    transport.requests.length = 0;
    const restored = page("20", [raw("a", LOW, "0"), raw("b", HIGH, "0")]);
    transport.lists.push(restored, restored, restored);
    transport.watches.push(new ScriptedStream(), new ScriptedStream(), new ScriptedStream());
    streams[0].event("ERROR", { kind: "Status", code: 410, reason: "Expired", message: "too old" });
    await time.advance(5_000);
    expect([source.get("a")?.version, source.get("b")?.version]).toEqual(["0", "0"]);
    const lists = transport.requests.filter((request) => request.includes("limit=250"));
    expect(lists.map((request) => request.replace(/shardSelector=.*'\)&/, ""))).toEqual([
      "LIST limit=250&resourceVersion=10&resourceVersionMatch=NotOlderThan",
      "LIST limit=250",
    ]);
    // The first of them proves nothing, and the other one only something about its own shard.
    expect(source.confirmedSentMs).toBeUndefined();
  });

  test("a shard that can't be listed hides no later restore from the others", async () => {
    const { time, transport, streams, source } = await startShards(4);
    const expired = { kind: "Status", code: 410, reason: "Expired", message: "too old" };
    let version = "9";
    const answer = ({ path }: ApiRequest) =>
      decodeURIComponent(path).includes("'0xc000000000000000', '0x1") ? statusAnswer(500) : page(version, []);
    transport.lists.push(...Array.from({ length: 50 }, () => answer));
    const resumed = Array.from({ length: 10 }, () => new ScriptedStream());
    transport.watches.push(...resumed);
    streams[0].event("ERROR", expired);
    await time.advance(3_000);
    expect(source.position).toBe("9,9,9,10");
    version = "8";
    resumed[0]?.event("ERROR", expired);
    await time.advance(3_000);
    expect(source.position).toBe("8,8,8,10");
  });

  test("distrust of all shards makes each list once, whatever the lists show", async () => {
    const { time, transport, source } = await startShards();
    transport.requests.length = 0;
    const restored = page("8", [raw("a", LOW, "0"), raw("b", HIGH, "0")]);
    transport.lists.push(restored, restored, restored);
    transport.watches.push(new ScriptedStream(), new ScriptedStream(), new ScriptedStream());
    source.distrustHistory();
    await time.advance(5_000);
    expect(source.position).toBe("8,8");
    expect(transport.requests.filter((request) => request.includes("limit=250"))).toHaveLength(2);
  });

  test("are heard each at its own time, and together at the time of the longest silence", async () => {
    const { time, streams, source } = await startShards();
    await time.advance(1_000);
    streams[1].event("ADDED", raw("c", HIGH, "13"));
    await time.settle();
    expect([source.heardMsOf(LOW), source.heardMsOf(HIGH), source.heardMs]).toEqual([0, 1_000, 0]);
  });

  test("all objects of a name are found while a shard is behind", async () => {
    const { time, streams, source } = await startShards();
    streams[1].event("ADDED", raw("a", HIGH, "13"));
    await time.settle();
    const found = [LOW, HIGH].map((uid) => source.find("a", (thing) => thing.uid === uid)?.uid);
    expect(found).toEqual([LOW, HIGH]);
  });
});
