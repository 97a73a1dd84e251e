/** A report of what a test did to its environment, written to the folder PODSEIDON_REPORT_DIRECTORY if that is set. */
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { AvailabilityJudge } from "../../../scripts/demo/availability.ts";
import type { TestEnvironment } from "../../../scripts/environment/environment.ts";
import { reportPage } from "../../../scripts/report/page.ts";
import { askersOf, Recorder } from "../../../scripts/report/record.ts";

const DIRECTORY = process.env.PODSEIDON_REPORT_DIRECTORY;
const SCRAPE_EVERY_MS = 500;

/** Environment variables with which webhooks log the users that ask; empty when no report is written. */
export const REPORT_ENVIRONMENT: Readonly<Record<string, string>> =
  DIRECTORY === undefined ? {} : { PODSEIDON_LOG_LEVEL: "debug" };

interface Reported {
  readonly file: string;
  readonly title: string;
  readonly namespace: string;
  /** Label selector of the pods. */
  readonly labels: string;
  readonly promised: number;
}

/** Notes a fault in the report. */
type ReportedFault = (text: string) => void;

/** Runs `work`, and writes a report of it whether it succeeds or fails. */
export async function reported(
  environment: TestEnvironment,
  what: Reported,
  work: (fault: ReportedFault) => Promise<void>,
): Promise<void> {
  if (DIRECTORY === undefined) return await work(() => {});
  const clusters = [...new Set(environment.cells.values())];
  const recorder = new Recorder(what.title, [...environment.cells.keys()]);
  const availability = await AvailabilityJudge.watch(clusters, what.namespace, what.labels);
  availability.listen(({ available }) => recorder.available(available));
  recorder.promised(what.promised);
  const before = new Map(
    environment.webhooks.map(({ component }) => [component.name, logOf(environment, component.name).length]),
  );
  const scrape = (): Promise<void> => scrapeInto(environment, recorder);
  const timer = setInterval(() => void scrape(), SCRAPE_EVERY_MS);
  let problem: unknown;
  try {
    await scrape();
    await work((text) => recorder.mark("fault", text));
    await scrape();
    recorder.mark("held", `the lowest availability was ${availability.lowest}, ${what.promised} were promised`);
  } catch (error) {
    problem = error;
    recorder.mark("broken", String(error));
    throw error;
  } finally {
    clearInterval(timer);
    const { lowest } = availability;
    await availability.stop();
    const good = problem === undefined && lowest >= what.promised;
    const result = `the lowest availability was ${lowest}, ${what.promised} were promised`;
    const verdict = `${good ? "Held" : "Broken"}: ${result}.`;
    mkdirSync(DIRECTORY, { recursive: true });
    writeFileSync(
      join(DIRECTORY, `${what.file}.html`),
      reportPage(recorder.finish(verdict, good, askersOf(logsSince(environment, before)))),
    );
  }
}

async function scrapeInto(environment: TestEnvironment, recorder: Recorder): Promise<void> {
  const sums = { admitted: 0, refused: 0, busy: 0 };
  for (const { component } of [...environment.webhooks]) {
    // A replica that is being killed has no metrics.
    const count = (outcome: string): Promise<number> =>
      component.metric("podseidon_webhook_reviews_total", { outcome }).then(
        (value) => value ?? 0,
        () => 0,
      );
    const [admitted, refused, busy] = await Promise.all(["allowed", "denied", "busy"].map(count));
    sums.admitted += admitted ?? 0;
    sums.refused += refused ?? 0;
    sums.busy += busy ?? 0;
  }
  recorder.reviewed(sums);
}

/** Lines that the replicas have logged after their first `before` lines. */
function logsSince(environment: TestEnvironment, before: ReadonlyMap<string, number>): readonly string[] {
  return environment.webhooks.flatMap(({ component: { name } }) =>
    logOf(environment, name).slice(before.get(name) ?? 0),
  );
}

function logOf(environment: TestEnvironment, name: string): readonly string[] {
  try {
    return readFileSync(join(environment.core.directory, "product", `${name}.log`), "utf8").split("\n");
  } catch {
    return [];
  }
}
