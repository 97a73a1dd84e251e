/** The report in a real headless browser, light and dark, wide and narrow. At full size, where Chromium is. */

import { spawnSync } from "node:child_process";
import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { delimiter, join } from "node:path";
import { beforeAll, describe, expect, test } from "vitest";
import { reportPage } from "../../../scripts/report/page.ts";
import { Recorder } from "../../../scripts/report/record.ts";
import { temporaryDirectory } from "../../support/runtime/temporary-directory.ts";

const FULL = process.env.PODSEIDON_TEST_SIZE === "full";
const BROWSERS = ["chromium", "chromium-browser", "google-chrome"];
const browser = (process.env.PATH ?? "")
  .split(delimiter)
  .flatMap((directory) => BROWSERS.map((name) => join(directory, name)))
  .find((path) => existsSync(path));
const START_TIMEOUT_MS = 120_000;

describe.runIf(FULL && browser !== undefined)("the report in a browser", () => {
  const directory = temporaryDirectory();

  beforeAll(() => {
    const recorder = new Recorder("Ten pods in two clusters", ["east", "west"]);
    recorder.available([5, 5]);
    recorder.promised(8);
    recorder.mark("fault", "everything is deleted");
    recorder.available([4, 4]);
    const page = reportPage(recorder.finish("held", true, [{ name: "admin", admitted: 2, refused: 8, busy: 0 }]));
    writeFileSync(join(directory, "report.html"), page);
  });

  function look(...args: readonly string[]): string {
    const common = [
      "--headless=new",
      "--no-sandbox",
      "--disable-gpu",
      "--hide-scrollbars",
      `--user-data-dir=${directory}/profile`,
    ];
    const { status, stdout, stderr } = spawnSync(
      browser ?? "",
      [...common, ...args, `file://${directory}/report.html`],
      { encoding: "utf8", timeout: START_TIMEOUT_MS },
    );
    if (status !== 0) throw new Error(stderr);
    return stdout;
  }

  /** Width and height of a PNG, and how many bytes it takes: an empty page takes few. */
  function picture(name: string, ...args: readonly string[]): { width: number; height: number; bytes: Buffer } {
    const file = join(directory, `${name}.png`);
    look(`--screenshot=${file}`, ...args);
    const bytes = readFileSync(file);
    return { width: bytes.readUInt32BE(16), height: bytes.readUInt32BE(20), bytes };
  }

  test("is drawn", () => {
    const dom = look("--dump-dom");
    expect(dom.match(/<svg /g)).toHaveLength(4);
    expect(dom).toContain("Ten pods in two clusters");
  });

  test("is another picture in the dark, and fits a phone", () => {
    const light = picture("light", "--window-size=1000,1600");
    const dark = picture("dark", "--window-size=1000,1600", "--blink-settings=preferredColorScheme=0");
    const phone = picture("phone", "--window-size=500,1600");
    expect([light.width, phone.width]).toEqual([1000, 500]);
    for (const { bytes } of [light, dark, phone]) expect(bytes.length).toBeGreaterThan(10_000);
    expect(light.bytes.equals(dark.bytes)).toBe(false);
  });
});
