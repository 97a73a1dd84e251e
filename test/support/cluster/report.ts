/**
 * A report of what a test did to an estate, where somebody asks for it: PODSEIDON_REPORT_DIRECTORY is the folder to
 * write to.
 */
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { AvailabilityJudge } from "../../../scripts/demo/availability.ts";
import type { TestEnvironment } from "../../../scripts/environment/environment.ts";
import { reportPage } from "../../../scripts/report/page.ts";
import { askersOf, Recorder } from "../../../scripts/report/record.ts";

const DIRECTORY = process.env.PODSEIDON_REPORT_DIRECTORY;
const SCRAPE_EVERY_MS = 500;

/** What the webhooks of an estate need to tell who asked; nothing when no report is asked for. */
export const REPORT_ENVIRONMENT: Readonly<Record<string, string>> =
  DIRECTORY === undefined ? {} : { PODSEIDON_LOG_LEVEL: "debug" };

export interface Reported {
  readonly file: string;
  readonly title: string;
  readonly namespace: string;
  /** Selects the pods. */
  readonly labels: string;
  readonly promised: number;
}

/** Notes what is done to the clusters. */
export type ReportedFault = (text: string) => void;

/** Runs `work`; with a report of it, whatever its end, when one is asked for. */
export async function reported(
  estate: TestEnvironment,
  what: Reported,
  work: (fault: ReportedFault) => Promise<void>,
): Promise<void> {
  if (DIRECTORY === undefined) return await work(() => {});
  const clusters = [...new Set(estate.cells.values())];
  const recorder = new Recorder(what.title, [...estate.cells.keys()]);
  const availability = await AvailabilityJudge.watch(clusters, what.namespace, what.labels);
  availability.listen(({ available }) => recorder.available(available));
  recorder.promised(what.promised);
  const before = new Map(
    estate.webhooks.map(({ component }) => [component.name, logOf(estate, component.name).length]),
  );
  const scrape = (): Promise<void> => scrapeInto(estate, recorder);
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
    const verdict = `${good ? "Held" : "Broken"}: the lowest availability was ${lowest}, ${what.promised} were promised.`;
    mkdirSync(DIRECTORY, { recursive: true });
    writeFileSync(
      join(DIRECTORY, `${what.file}.html`),
      reportPage(recorder.finish(verdict, good, askersOf(logsSince(estate, before)))),
    );
  }
}

async function scrapeInto(estate: TestEnvironment, recorder: Recorder): Promise<void> {
  const sums = { admitted: 0, refused: 0, busy: 0 };
  for (const { component } of [...estate.webhooks]) {
    // A replica that is just being killed says nothing.
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

/** Lines of the replicas' logs beyond the first so many. */
function logsSince(estate: TestEnvironment, before: ReadonlyMap<string, number>): readonly string[] {
  return estate.webhooks.flatMap(({ component: { name } }) => logOf(estate, name).slice(before.get(name) ?? 0));
}

function logOf(estate: TestEnvironment, name: string): readonly string[] {
  try {
    return readFileSync(join(estate.core.directory, "product", `${name}.log`), "utf8").split("\n");
  } catch {
    return [];
  }
}
