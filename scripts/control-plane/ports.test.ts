import { spawn } from "node:child_process";
import { once } from "node:events";
import { join } from "node:path";
import { expect, test } from "vitest";
import { reservePort } from "./ports.ts";

const COUNT = 150;
const here = join(import.meta.dirname, "ports.ts");

/** What a process of its own is given, as long as it lives: until its standard input ends. */
async function others(): Promise<{ ports: number[]; end: () => void }> {
  const program = `
    import { reservePort } from ${JSON.stringify(here)};
    const ports = await Promise.all(Array.from({ length: ${COUNT} }, () => reservePort("127.0.0.1")));
    console.log(JSON.stringify(ports));
    process.stdin.resume();`;
  const child = spawn(process.execPath, ["--input-type=module-typescript", "-e", program], {
    stdio: ["pipe", "pipe", "inherit"],
  });
  const [text] = await once(child.stdout, "data");
  return { ports: JSON.parse(String(text)), end: () => child.stdin.end() };
}

test("processes that run side by side are never given the same port", async () => {
  const processes = await Promise.all([others(), others(), others()]);
  const own = await Promise.all(Array.from({ length: COUNT }, () => reservePort("127.0.0.1")));
  const all = [...own, ...processes.flatMap(({ ports }) => ports)];
  for (const { end } of processes) end();
  expect(new Set(all).size).toBe(4 * COUNT);
});
