import { spawn } from "node:child_process";
import { randomBytes } from "node:crypto";
import { once } from "node:events";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import { expect, test } from "vitest";
import { exclusively, lockNameOf } from "./exclusive.ts";
import { type BuildProgress, silentProgress } from "./progress.ts";

const freshName = (): string => lockNameOf(randomBytes(8).toString("hex"));

/** A promise and the functions that settle it. */
function gate(): { readonly opened: Promise<void>; readonly open: () => void } {
  const { promise, resolve } = Promise.withResolvers<void>();
  return { opened: promise, open: () => resolve() };
}

test("works of one name follow each other, works of other names do not wait", async () => {
  const name = freshName();
  const hold = gate();
  const order: string[] = [];
  const began = gate();
  const first = exclusively(name, silentProgress, async () => {
    order.push("first begins");
    began.open();
    await hold.opened;
    order.push("first ends");
  });
  await began.opened;
  const second = exclusively(name, silentProgress, async () => void order.push("second"));
  await exclusively(freshName(), silentProgress, async () => void order.push("other"));
  hold.open();
  await Promise.all([first, second]);
  expect(order).toEqual(["first begins", "other", "first ends", "second"]);
});

test("who waits sees what the holder does", async () => {
  const name = freshName();
  const seen = gate();
  const lines: string[] = [];
  const waiting: BuildProgress = {
    step: (line) => lines.push(line),
    detail(line) {
      lines.push(line);
      seen.open();
    },
  };
  const began = gate();
  const first = exclusively(name, silentProgress, async (announce) => {
    announce.detail("compiled 3 of 7");
    began.open();
    await seen.opened;
  });
  await began.opened;
  await exclusively(name, waiting, async () => {});
  await first;
  expect(lines).toEqual([
    "another process is preparing the same; waiting for it",
    "compiled 3 of 7 (in another process)",
  ]);
});

test("a failed work frees the name", async () => {
  const name = freshName();
  const failing = exclusively(name, silentProgress, () => Promise.reject(new Error("no")));
  await expect(failing).rejects.toThrow("no");
  expect(await exclusively(name, silentProgress, async () => "yes")).toBe("yes");
});

test("a holder that is killed frees the name", async () => {
  const path = randomBytes(8).toString("hex");
  const module = fileURLToPath(new URL("exclusive.ts", import.meta.url));
  const program = `
    const { exclusively, lockNameOf } = await import(${JSON.stringify(module)});
    const silent = { step() {}, detail() {} };
    await exclusively(lockNameOf(${JSON.stringify(path)}), silent, () => {
      console.log("holding");
      return new Promise(() => {});
    });`;
  const holder = spawn(process.execPath, ["--input-type=module", "--eval", program], {
    stdio: ["ignore", "pipe", "inherit"],
  });
  await once(createInterface({ input: holder.stdout }), "line");
  const waited = gate();
  const waiting: BuildProgress = { step: () => waited.open(), detail: () => {} };
  const next = exclusively(lockNameOf(path), waiting, async () => "next");
  await waited.opened;
  holder.kill("SIGKILL");
  expect(await next).toBe("next");
});
