import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { temporaryDirectory } from "../../../test/support/runtime/temporary-directory.ts";
import { readDeclared } from "./configuration-keeper.ts";

const folder = temporaryDirectory();
const file = join(folder, "registration.yaml");

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
