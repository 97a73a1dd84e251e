import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll } from "vitest";

/** A directory that is there until the tests of the file or `describe` have ended, or until `atTheEnd` says so. */
export function temporaryDirectory(atTheEnd: (remove: () => void) => void = afterAll): string {
  const directory = mkdtempSync(join(tmpdir(), "podseidon-test-"));
  atTheEnd(() => rmSync(directory, { recursive: true, force: true }));
  return directory;
}
