/**
 * A cell that is taken over writes what it likes into its backups. One webhook may serve other clusters, too, and must
 * not run out of memory.
 */
import { expect, test } from "vitest";
import { VirtualTime } from "../../../test/support/runtime/virtual-ports.ts";
import { protector } from "../../../test/support/webhook/fixtures.ts";
import { ApiClient } from "../../kube/client/api-client.ts";
import { listConfigMaps } from "../../kube/client/config-maps.ts";
import { CHUNK_CHARACTERS, encodeBackup, MAX_CHUNKS, readBackup } from "./backup-format.ts";
import { BackupReader } from "./backup-reader.ts";

/** Pages that a reader of a cell asks for which answers each time with these, and where it has more. */
async function readsOf(items: readonly object[], token = "again", forMs = 10) {
  const time = new VirtualTime();
  const body = JSON.stringify({ metadata: { continue: token }, items });
  let pages = 0;
  const reader = new BackupReader({
    ports: time,
    cells: [
      {
        name: "cell-1",
        transport: {
          request: async () => {
            pages++;
            return { status: 200, headers: {}, body };
          },
          stream: () => Promise.reject(new Error("nothing is watched")),
          close: () => undefined,
        },
      },
    ],
    namespace: "podseidon-system",
    cores: [],
    whenKnown: async () => {},
    onRead: () => {},
  });
  reader.start();
  await time.advance(forMs);
  reader.stop();
  return { pages, problem: reader.problemOf("cell-1") };
}

const METADATA = { name: "backup", uid: "1", resourceVersion: "1" };

/** Eight million characters. */
function texts(): Record<string, string> {
  return Object.fromEntries(Array.from({ length: 8 }, (_, key) => [`${key}`, "x".repeat(1024 * 1024)]));
}

test.each([
  ["data", [{ metadata: METADATA, data: texts() }]],
  ["annotations", [{ metadata: { ...METADATA, annotations: texts() } }]],
  ["labels", [{ metadata: { ...METADATA, labels: texts() } }]],
  ["names", [{ metadata: { ...METADATA, name: "x".repeat(8 * 1024 * 1024) } }]],
  ["keys", [{ metadata: METADATA, data: { ["x".repeat(8 * 1024 * 1024)]: "" } }]],
  [
    "empty texts",
    [{ metadata: METADATA, data: Object.fromEntries(Array.from({ length: 90_000 }, (_, k) => [k, ""])) }],
  ],
  ["empty ConfigMaps", Array.from({ length: 30_000 }, () => ({ metadata: METADATA }))],
])("backups with more %s than a cell may store are not read on, and the cell is not served", async (_, items) => {
  const { pages, problem } = await readsOf(items);
  expect(pages).toBeLessThan(20);
  expect(problem).toMatch(/cannot be read: .*more than \d+ characters/);
});

test("a cell with more backups than it may store is not served without them, as one that denies them is", async () => {
  const data = Object.fromEntries(Array.from({ length: 200_000 }, (_, key) => [key, ""]));
  const { problem } = await readsOf([{ metadata: METADATA, data }], "", 30_000);
  expect(problem).toMatch(/cannot be read/);
});

test("a cell that always says that there are more backups is asked for a hundred pages, not all", async () => {
  const { pages, problem } = await readsOf([]);
  expect(pages).toBe(100);
  expect(problem).toMatch(/cannot be read: .*more than 100 pages/);
});

test("the backups of the largest core are read, in ConfigMaps that are full", async () => {
  const each = 196;
  const text = "x".repeat(Math.floor(CHUNK_CHARACTERS / each));
  const keys = Array.from({ length: each }, (_, key) => [
    `00000000-0000-4000-8000-${`${key}`.padStart(12, "0")}`,
    text,
  ]);
  const map = { metadata: METADATA, data: Object.fromEntries(keys) };
  const { pages, problem } = await readsOf(
    Array.from({ length: MAX_CHUNKS }, () => map),
    "",
  );
  expect([pages, problem]).toEqual([1, undefined]);
});

test("of backups, what nobody reads is not kept", async () => {
  const junk = { binaryData: { a: "eA==" }, immutable: false };
  const map = { metadata: { ...METADATA, managedFields: [{}] }, data: { a: "b" } };
  const api = new ApiClient({
    request: async () => ({
      status: 200,
      headers: {},
      body: JSON.stringify({ metadata: {}, items: [{ ...map, ...junk }] }),
    }),
    stream: () => Promise.reject(new Error("nothing is watched")),
    close: () => undefined,
  });
  const listed = await listConfigMaps(api, "ns", "label", { timeoutMs: 1_000 });
  expect(listed).toEqual({ kind: "ok", object: [{ metadata: METADATA, data: map.data }] });
});

test("backups with millions of values, which take many times their characters once they are read, are left out", () => {
  const whole = protector(5);
  const junk = { ...whole, spec: { ...whole.spec, junk: Array.from({ length: 30_000 }, () => ({})) } };
  const text = encodeBackup("core", junk, "c");
  const data = { first: encodeBackup("core", whole, "c"), ...Object.fromEntries(fill(text, 200)) };
  const { protectors, unreadable } = readBackup([{ metadata: { name: "m", uid: "1", resourceVersion: "1" }, data }]);
  expect(protectors.length).toBe(100);
  expect(unreadable.length).toBe(101);
});

function* fill(text: string, count: number): Generator<[string, string]> {
  for (let key = 0; key < count; key++) yield [`k${key}`, text];
}
