import { stripVTControlCharacters } from "node:util";
import { describe, expect, test } from "vitest";
import { coloured, takesColour } from "./colour.ts";
import { plainTerminal } from "./progress.ts";

describe("colours", () => {
  test.each([
    ["web   3   4/4   ok\n", "web   3   4/4   \u001b[32mok\u001b[0m\n"],
    ["web   3   4/4   busy\n", "web   3   4/4   \u001b[33mbusy\u001b[0m\n"],
    ["web   3   2/4   below minimum\n", "web   3   2/4   \u001b[31mbelow minimum\u001b[0m\n"],
    ["UNPROTECTED: nobody is asked\n", "\u001b[31mUNPROTECTED\u001b[0m: nobody is asked\n"],
    ["Deletion:   no: it would be denied\n", "Deletion:   \u001b[31mno\u001b[0m: it would be denied\n"],
    ["FAIL   core   webhook\nok     core   clock\n", "\u001b[31mFAIL\u001b[0m   core   webhook\nok     core   clock\n"],
    ["a pod called ok is fine\n", "a pod called ok is fine\n"],
  ])("of %j", (text, painted) => {
    expect(coloured(text)).toContain(painted.split("\n")[0]);
    expect(stripVTControlCharacters(coloured(text))).toBe(text);
  });

  test("are for a terminal that wants them", () => {
    expect(takesColour(true, {})).toBe(true);
    expect(takesColour(false, {})).toBe(false);
    expect(takesColour(true, { NO_COLOR: "1" })).toBe(false);
    expect(takesColour(true, { TERM: "dumb" })).toBe(false);
  });

  test("are added after what tenants wrote is escaped", () => {
    const out: string[] = [];
    const terminal = { out: (text: string) => void out.push(text), err: () => {}, interactive: false, colours: true };
    plainTerminal(terminal).out("\u001b[31mweb   3   ok\n");
    expect(out.join("")).toBe("\\u001b[31mweb   3   \u001b[32mok\u001b[0m\n");
  });
});
