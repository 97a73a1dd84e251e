/** What the demo tells, taken down for a report. */
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import type { Cluster } from "../control-plane/cluster.ts";
import { type Asker, askersOf, type Recorder } from "../report/record.ts";
import type { Narrator } from "./narrator.ts";

/** What takes pods away is a fault as far as the pods are concerned, whoever does it for whatever reason. */
const DISRUPTS = /\b(delete|drain)\b/;

/** Says everything as `narrator` does, and marks it in the recording while there is one. */
export function recordingNarrator(narrator: Narrator, recorder: () => Recorder | undefined): Narrator {
  return {
    ...narrator,
    heading: (text) => {
      recorder()?.mark("scene", text);
      narrator.heading(text);
    },
    say: (text) => {
      recorder()?.mark("note", text);
      narrator.say(text);
    },
    command: (text) => {
      recorder()?.mark(DISRUPTS.test(text) ? "fault" : "command", DISRUPTS.test(text) ? `$ ${text}` : text);
      narrator.command(text);
    },
    verdict: (held, text) => {
      recorder()?.mark(held ? "held" : "broken", text);
      narrator.verdict(held, text);
    },
  };
}

/** Who asked for deletions, from the logs of the webhook's replicas in these clusters. */
export function askersIn(clusters: readonly Cluster[]): readonly Asker[] {
  const lines = clusters.flatMap(({ directory }) => {
    const logs = join(directory, "logs");
    const files = existsSync(logs) ? readdirSync(logs).filter((name) => name.startsWith("podseidon-webhook")) : [];
    return files.flatMap((file) => readFileSync(join(logs, file), "utf8").split("\n"));
  });
  return askersOf(lines);
}
