import { expect, test } from "vitest";
import { VirtualTime } from "../../../test/support/runtime/virtual-ports.ts";
import { protector } from "../../../test/support/webhook/fixtures.ts";
import type { Transport } from "../../kube/client/transport.ts";
import { encodeBackup, VERSIONS_KEY } from "./backup-format.ts";
import { BackupReader, type BackupTarget, type CoreBackup } from "./backup-reader.ts";

/** A cell that holds these texts in one ConfigMap. */
function cellWith(data: Readonly<Record<string, string>>): Transport {
  const items = [{ metadata: { name: "backup", uid: "1", resourceVersion: "1" }, data }];
  return {
    request: async () => ({ status: 200, headers: {}, body: JSON.stringify({ metadata: {}, items }) }),
    stream: () => Promise.reject(new Error("nothing is watched")),
    close: () => undefined,
  };
}

test("the backup of one core is adopted while another core is out of reach; the cell waits for both", async () => {
  const time = new VirtualTime();
  const adopted: string[] = [];
  const coreOf = (name: string): BackupTarget => ({
    name,
    adopt: ({ entries, versions }: CoreBackup) =>
      adopted.push(`${name}: ${entries.map(({ key }) => key).join()} ${versions.join()}`),
  });
  const reached = Promise.withResolvers<void>();
  const results: string[] = [];
  const reader = new BackupReader({
    ports: time,
    cells: [
      {
        name: "cell-1",
        transport: cellWith({
          one: encodeBackup("away", protector(5, { name: "one" }), "cell-1"),
          two: encodeBackup("there", protector(5, { name: "two" }), "cell-1"),
          [VERSIONS_KEY]: JSON.stringify({ away: "7", there: "9" }),
        }),
      },
    ],
    namespace: "podseidon-system",
    cores: [coreOf("away"), coreOf("there")],
    whenKnown: (core) => (core === "away" ? reached.promise : Promise.resolve()),
    onRead: (cell, result) => results.push(`${cell} ${result}`),
  });
  reader.start();
  await time.advance(10);
  expect(adopted).toEqual(["there: default/two 9"]);
  expect(reader.problemOf("cell-1")).toMatch(/not read yet/);
  reached.resolve();
  await time.advance(10);
  expect(adopted).toEqual(["there: default/two 9", "away: default/one 7"]);
  expect(reader.problemOf("cell-1")).toBeUndefined();
  expect(results).toEqual(["cell-1 read"]);
  reader.stop();
});
