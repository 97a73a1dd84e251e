/** What the demo says of its command line, and the commands that it prints. */
import { execFileSync, spawnSync } from "node:child_process";
import { join } from "node:path";
import { expect, test } from "vitest";
import { shellWord } from "../kubectl-podseidon/invocation/printed-commands.ts";
import { fold } from "./narrator.ts";

test.each([
  ["the head of a table whose first column has no name", "     CLUSTER   CHECK", 20, ["     CLUSTER   CHECK"]],
  ["a long line", "one two three", 7, ["one two", "three"]],
])("%s is folded with its columns", (_, text, width, lines) => {
  expect(fold(text, width)).toEqual(lines);
});

test.each(["/tmp/plain-1.2_x/bin", "/home/me/My Projects/bin", "/home/zoë's/$HOME/`id`", ""])(
  "a shell reads %j as one word",
  (word) => {
    const said = execFileSync("sh", ["-c", `printf '%s|' ${shellWord(word)}`], { encoding: "utf8" });
    expect(said).toBe(`${word}|`);
  },
);

test("a path without special characters stays as it is", () => {
  expect(shellWord("/tmp/plain-1.2_x/bin")).toBe("/tmp/plain-1.2_x/bin");
});

test.each([
  ["/nonexistent/report.html", "/"],
  // npm tells where the user stands.
  ["report.html", "/nonexistent"],
])(
  "a report that can't be written is told before anything is started: %s in %s",
  (report, INIT_CWD) => {
    const words = [join(import.meta.dirname, "main.ts"), "--once", "--report", report];
    const env = { ...process.env, INIT_CWD };
    const { status, stdout, stderr } = spawnSync(process.execPath, words, { encoding: "utf8", env, timeout: 10_000 });
    expect([status, stdout]).toEqual([2, ""]);
    expect(stderr).toMatch(/^--report: ENOENT[^\n]*\/nonexistent\/report.html/);
  },
  20_000,
);
