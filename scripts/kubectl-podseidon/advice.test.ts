/** What the product advises can be done as it is written: the plugin has each command, and the command each flag. */
import { globSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { root } from "../root.ts";
import { COMMANDS } from "./cli.ts";
import { GLOBAL_FLAGS } from "./invocation/command.ts";
import type { Flag } from "./invocation/flag.ts";

const FILES = ["{webhook,controllers,shared,scripts/kubectl-podseidon}/**/*.ts", "manifests/**/*.yaml"];
/** Words of sentences about the plugin. */
const VERBS = ["says", "asks", "version"];

interface Advice {
  readonly text: string;
  readonly command: string;
  readonly flags: readonly string[];
}

const advised = globSync(FILES, { cwd: root, exclude: (path) => path.endsWith(".test.ts") }).flatMap((path) => {
  const text = readFileSync(join(root, path), "utf8");
  return [...text.matchAll(/kubectl podseidon ([a-z][a-z-]*)((?:(?!\. )[^"`;,()\n])*)/g)].map((match): Advice => {
    const [found, command = "", rest = ""] = match;
    return { text: `${path}: ${found}`, command, flags: [...rest.matchAll(/(?<= )--?([a-zA-Z][\w-]*)/g)].map(name) };
  });
});

function name([, flag = ""]: RegExpExecArray): string {
  return flag;
}

test("every command of the plugin in a text is there, with its flags", () => {
  const wrong = advised.filter(({ command, flags }) => {
    const found = COMMANDS.find((one) => one.name === command);
    if (found === undefined) return !VERBS.includes(command);
    const known: Readonly<Record<string, Flag>> = { ...GLOBAL_FLAGS, ...found.flags };
    const shorts = Object.values(known).map(({ short }) => short);
    return flags.some((flag) => known[flag] === undefined && !shorts.includes(flag));
  });
  expect(wrong.map(({ text }) => text)).toEqual([]);
  expect(advised.length).toBeGreaterThan(40);
});
