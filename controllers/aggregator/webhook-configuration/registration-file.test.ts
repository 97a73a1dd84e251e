import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, expect, test } from "vitest";
import { readDeclared } from "./configuration-keeper.ts";

const folder = mkdtempSync(join(tmpdir(), "registration-"));
const file = join(folder, "registration.yaml");
afterAll(() => rmSync(folder, { recursive: true }));

test.each(["", "---\n", "apiVersion: v1\nkind: ConfigMap\n"])(
  "a registration file without a webhook configuration is none: %j",
  async (content) => {
    writeFileSync(file, content);
    await expect(readDeclared(file, "cell-1")).rejects.toThrow(`${file} holds no webhook configuration`);
  },
);

test("without a registration file, nothing is declared by one", async () => {
  expect(await readDeclared("", "cell-1")).toEqual(new Map());
});
