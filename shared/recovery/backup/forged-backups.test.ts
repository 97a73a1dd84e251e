/**
 * A cell that is taken over writes what it likes into its backups. One webhook may serve other clusters, too, and must
 * not run out of memory.
 */
import { expect, test } from "vitest";
import { VirtualTime } from "../../../test/support/runtime/virtual-ports.ts";
import { protector } from "../../../test/support/webhook/fixtures.ts";
import { encodeBackup, readBackup } from "./backup-format.ts";
import { BackupReader } from "./backup-reader.ts";

test("backups of more characters than a cell may store are not read on, and the cell is not served", async () => {
  const time = new VirtualTime();
  const data = Object.fromEntries(Array.from({ length: 8 }, (_, key) => [`${key}`, "x".repeat(1024 * 1024)]));
  const items = [{ metadata: { name: "backup", uid: "1", resourceVersion: "1" }, data }];
  const body = JSON.stringify({ metadata: { continue: "again" }, items });
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
    onRead: () => reader.stop(),
  });
  reader.start();
  await time.advance(10);
  expect(pages).toBe(9);
  expect(reader.problemOf("cell-1")).toMatch(/cannot be read: .*more than 67108864 characters/);
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
