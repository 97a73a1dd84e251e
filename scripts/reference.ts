/** docs/flags.md, every flag of every component, and docs/metrics.md, every metric, both from the source. */
import { globSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { aggregatorOptions } from "../controllers/aggregator/options.ts";
import { certificatesOptions } from "../controllers/certificates/controller.ts";
import { evictionRetryOptions } from "../controllers/eviction-retry/controller.ts";
import { generatorOptions } from "../controllers/generator/controller.ts";
import { updateTriggerOptions } from "../controllers/update-trigger/controller.ts";
import { initialText } from "../shared/runtime/options/option-help.ts";
import { flagName } from "../shared/runtime/options/option-sources.ts";
import type { OptionSet } from "../shared/runtime/options/options.ts";
import { webhookOptions } from "../webhook/options.ts";
import { root } from "./root.ts";

interface Program {
  readonly name: string;
  readonly summary: string;
  readonly options: OptionSet;
}

const PROGRAMS: readonly Program[] = [
  ...[webhookOptions, aggregatorOptions, generatorOptions],
  ...[updateTriggerOptions, certificatesOptions, evictionRetryOptions],
];
/** A metric's name and its help, as fields of an object or as two arguments; the help may be a constant of the file. */
const TEXT = String.raw`"[A-Z0-9][^"\n]* [^"\n]*"(?:\s+\+\s+"[^"\n]*")*`;
const NAME = `"(?<name>(?<=name: ")[a-z]+|[a-z]+(?:_[a-z]+)+)"`;
const DEFINITION = new RegExp(String.raw`${NAME},\s+(?:help:\s+)?(?<help>${TEXT}|\w*[hH]elp\b)`, "g");

const MADE = "<!-- Made by `npm run generate`. -->\n";

export function flagReference(): string {
  const sections = PROGRAMS.map(({ name, summary, options }) => {
    const rows = Object.entries(options).map(([key, one]) => {
      const value = one.isBoolean ? "" : ` ${one.valueName.replaceAll("|", "\\|")}`;
      const repeated = one.isRepeated ? " (repeatable)" : "";
      return `| \`${flagName(key)}${value}\`${repeated} | ${escaped(`${one.help}${initialText(one)}`)} |\n`;
    });
    return `\n## \`${name}\`\n\n${summary}\n\n| flag | meaning |\n| --- | --- |\n${rows.join("")}`;
  });
  return (
    `# Flags\n\n${MADE}\nWhat can be configured? Every flag of every component, with its default. Each is also an\n` +
    "environment variable (`--log-level` is `PODSEIDON_LOG_LEVEL`) and a key of the `--config` file (`logLevel`). A\n" +
    "flag overrides the environment, and the environment overrides the file.\n\nEvery component also takes " +
    "`--config FILE`, `--print-config`, `--version` and `--help`.\n" +
    sections.join("")
  );
}

interface Metric {
  readonly name: string;
  readonly help: string;
}

/** By name. Metrics that several components have are declared in `shared/`. */
function metrics(): readonly Metric[] {
  const found = globSync("{controllers,shared,webhook}/**/*.ts", { cwd: root })
    .filter((file) => !file.endsWith(".test.ts"))
    .flatMap((file) => metricsIn(readFileSync(join(root, file), "utf8")));
  return [...new Map(found.map((one) => [one.name, one])).values()].sort((a, b) => (a.name < b.name ? -1 : 1));
}

function metricsIn(source: string): readonly Metric[] {
  return [...source.matchAll(DEFINITION)].map(({ groups }) => {
    const { name = "", help = "" } = groups ?? {};
    const text = help.startsWith('"') ? help : constantIn(source, help);
    return { name: `podseidon_${name}`, help: text.replace(/"\s+\+\s+"/g, "").slice(1, -1) };
  });
}

function constantIn(source: string, name: string): string {
  return new RegExp(String.raw`const ${name} =\s+(${TEXT})`).exec(source)?.[1] ?? '""';
}

export function metricReference(): string {
  const rows = metrics().map(({ name, help }) => `| \`${name}\` | ${escaped(help)} |\n`);
  return (
    `# Metrics\n\n${MADE}\nWhat do the components measure? Every metric of the project; each process serves its own\n` +
    "at `/metrics` on port 8080, beside the usual ones of a Node.js process (`process_`, `nodejs_`).\n" +
    "[Alerts and dashboard](operations.md#alerts) come with the manifests.\n\n" +
    `| metric | meaning |\n| --- | --- |\n${rows.join("")}`
  );
}

function escaped(text: string): string {
  return text.replace(/[|<*]/g, "\\$&");
}
