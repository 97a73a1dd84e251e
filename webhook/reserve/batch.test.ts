import { expect, test } from "vitest";
import { ProtectorVersion } from "../../shared/decide/state/protector-version.ts";
import type { Bucket } from "../../shared/schema/podprotector.ts";
import { pod, protector } from "../../test/support/webhook/fixtures.ts";
import { ask, setup } from "../../test/support/webhook/writer-harness.ts";
import { dropsFields } from "./batch.ts";

const own: Bucket = { startTime: "2026-01-01T00:00:00Z", podUID: "uid-web-0", nonce: "n", podResourceVersion: "50" };
const { nonce: _, ...withoutNonce } = own;
const { podResourceVersion: __, ...withoutVersion } = own;

test.each<[string, Bucket[], boolean]>([
  ["has the fields of the reservation", [own], false],
  ["has no nonce of it", [withoutNonce], true],
  ["has no version of its pod", [withoutVersion], true],
  ["has it packed", [{ startTime: own.startTime, packed: "1;" }], false],
  ["has only others, as plain ones", [{ ...own, podUID: "uid-web-1" }], true],
])("a core drops fields where what it stored %s: %s", (_name, buckets, expected) => {
  const { time, writer } = setup(0);
  const { pending } = ask(time, writer, pod("web-0"));
  const object = protector(0);
  const cells = (object.status?.cells ?? []).map((cell) => ({ ...cell, admissionHistory: { buckets } }));
  const stored = new ProtectorVersion({ ...object, status: { ...Object(object.status), cells } }, 0);
  expect(dropsFields(stored, { writes: [pending], decisions: new Map() })).toBe(expected);
  expect(dropsFields(stored, { writes: [], decisions: new Map() })).toBe(false);
});
