/**
 * `npm run demo`: three real clusters with this project, and its behaviour in accidents. `setup.ts` and `install.ts`
 * start the processes, `scenes.ts` has the accidents, `stage.ts` and `availability.ts` judge them.
 */
import { closeSync, existsSync, openSync, rmSync, writeFileSync } from "node:fs";
import { dirname, join, resolve } from "node:path";
import { messageOf } from "../../shared/runtime/errors.ts";
import { build } from "../build.ts";
import { ensureBinaries } from "../control-plane/binaries/binaries.ts";
import { VERSIONS } from "../control-plane/binaries/versions.ts";
import type { Cluster } from "../control-plane/cluster.ts";
import { theReaper } from "../control-plane/reaper.ts";
import { shellWord } from "../kubectl-podseidon/invocation/printed-commands.ts";
import { misused, readOptions } from "../options.ts";
import { reportPage } from "../report/page.ts";
import { Recorder } from "../report/record.ts";
import { examine } from "./doctor.ts";
import { NAMESPACE } from "./federation.ts";
import { LOG_LEVEL_VARIABLE } from "./kubelet.ts";
import { askersIn, narrator as createNarrator, type Narrator, recordingNarrator } from "./narrator.ts";
import { PROMISED, REPLICAS, SCENES } from "./scenes.ts";
import { AUDIT_LOG, type Demo, setUp, startClusters } from "./setup.ts";
import type { DemoStage } from "./stage.ts";

const EXIT_INTERRUPTED = 130;
const SECOND_WORKLOAD = join(import.meta.dirname, "second-workload.yaml");

const HELP = `npm run demo [-- OPTIONS]

Starts a core cluster and two worker clusters of Kubernetes, real ones, on loopback addresses; runs this project in
them; and shows what it refuses and what it lets pass. Stays up afterwards, so that you can try it yourself with
kubectl; Ctrl-C ends it and leaves nothing behind.

  --once    end after the last scene: exit code 0 when every promise held, 1 when not; the last line is a summary of
            counts
  --keep    keep the logs of all processes, and say where they are
  --report FILE
            write what happened as one HTML page: availability against the promise, answers, faults, who asked
  --help    this text
`;

interface DemoOptions {
  readonly once: boolean;
  readonly keep: boolean;
  readonly report?: string | undefined;
}

/** Plays every scene. A scene that can't continue counts as a broken promise, and ends the demo. */
async function play(stage: DemoStage): Promise<void> {
  for (const { title, play: act } of SCENES) {
    stage.narrator.heading(title);
    try {
      await act(stage);
    } catch (error) {
      stage.promise(false, `the scene could not go on: ${messageOf(error)}`);
      return;
    }
  }
}

function summary(stage: DemoStage, seconds: number): string {
  const kept = stage.promised.filter(({ held }) => held).length;
  const { availability, lowest, total } = stage;
  return [
    `RESULT ${kept === stage.promised.length ? "ok" : "failed"}: ${kept} of ${stage.promised.length} promises held`,
    `lowest availability ${lowest} of ${REPLICAS} with ${PROMISED} promised`,
    `${availability.versions} pod versions seen`,
    `${total.admitted} disruptions allowed, ${total.refused} denied, ${total.busy} told to retry`,
    `${seconds.toFixed(0)} s`,
  ].join("; ");
}

function verdict({ promised, lowest }: DemoStage): string {
  const kept = promised.filter(({ held }) => held).length;
  const broken = promised.find(({ held }) => !held);
  const told = broken === undefined ? "" : ` The first that did not: ${broken.text}.`;
  return (
    `${kept} of ${promised.length} promises held; never fewer than ${lowest} ` +
    `pods were available while ${PROMISED} were promised.${told}`
  );
}

/** Writes one kubeconfig with a context for each cluster; it is removed when the demo ends. */
async function writeKubeconfig(clusters: readonly Cluster[]): Promise<string> {
  const [core] = clusters;
  if (core === undefined) throw new Error("there is no cluster");
  const kubeconfig = clusters.map((cluster) => cluster.kubeconfig).join(":");
  const { stdout } = await core.kubectl(["config", "view", "--flatten"], { kubeconfig });
  const path = join(dirname(core.directory), "kubeconfig");
  writeFileSync(path, stdout, { mode: 0o600 });
  return path;
}

async function showState(stage: DemoStage): Promise<void> {
  stage.narrator.heading("What an operator sees");
  const commands: readonly (readonly [Cluster | undefined, readonly string[]])[] = [
    [stage.core, ["get", "podprotectors", "--all-namespaces"]],
    ...stage.workers.map((worker) => [worker, ["--namespace", NAMESPACE, "get", "pods"]] as const),
  ];
  for (const [cluster, args] of commands) {
    if (cluster === undefined) continue;
    const { stdout } = await cluster.kubectl(args);
    stage.narrator.command(`kubectl --context ${cluster.name} ${args.join(" ")}`);
    stage.narrator.quote(stdout);
  }
}

async function stayUp(demo: Demo, narrator: Narrator, bundles: string): Promise<void> {
  const { kubectl } = await ensureBinaries();
  narrator.heading("Your turn: everything is still running");
  narrator.say("In another terminal:");
  for (const line of [
    `export KUBECONFIG=${shellWord(await writeKubeconfig(demo.clusters))}`,
    `export PATH=${shellWord(dirname(kubectl))}:${shellWord(bundles)}:$PATH`,
    `export PODSEIDON_NODE=${shellWord(process.execPath)}`,
    "export PODSEIDON_CORE_CONTEXT=core",
    "kubectl --context core get ppr --all-namespaces --watch",
    `kubectl --context worker-1 --namespace ${NAMESPACE} delete pods --all`,
    `kubectl --context worker-2 drain node-1`,
    `kubectl --context core --namespace ${NAMESPACE} scale deployment/web --replicas=4`,
    `kubectl podseidon status deployment-web --namespace ${NAMESPACE}`,
    "kubectl podseidon drain-check node-2 --context worker-1",
  ]) {
    narrator.command(line);
  }
  narrator.say("A second workload, protected by the label in its manifest; and a process that dies and comes back:");
  narrator.command(`kubectl --context core apply --filename ${shellWord(SECOND_WORKLOAD)}`);
  for (const worker of demo.stage.workers) {
    const pod = demo.stage.processOf(worker, "podseidon-aggregator");
    if (pod !== undefined) narrator.command(`kill -9 ${pod.process.pid}   # ${pod.process.name}`);
  }
  narrator.say("Logs of every process, and the audit logs with the webhook's annotations:");
  for (const { directory } of demo.clusters) narrator.command(`ls ${shellWord(join(directory, "logs"))}`);
  for (const { directory } of demo.stage.workers)
    narrator.command(`grep podseidon ${shellWord(join(directory, AUDIT_LOG))}`);
  narrator.say("Ctrl-C ends the demo and removes everything.");
  await new Promise<never>(() => setInterval(() => {}, 60_000));
}

async function run(options: DemoOptions): Promise<number> {
  let recorder: Recorder | undefined;
  const narrator = recordingNarrator(createNarrator(), () => recorder);
  const startMs = performance.now();
  narrator.heading(
    `podseidon: ${REPLICAS} pods in two clusters, of which ${PROMISED} must be available, whatever happens`,
  );
  // Allowed disruptions are in the log only at this level.
  if (options.report !== undefined) process.env[LOG_LEVEL_VARIABLE] ??= "debug";
  // Prints its own progress, because it takes minutes the first time.
  await ensureBinaries();
  // Nothing is downloaded from here on. With NODE_USE_ENV_PROXY, fetch would ask a proxy for the pods' addresses, too.
  process.env.no_proxy = "*";
  narrator.say(
    `Starting a core cluster and two worker clusters of Kubernetes ${VERSIONS.kubernetes}; bundling the project.`,
  );
  // Not in `dist`, which other processes may use.
  const bundles = join(theReaper().directory, "bundles");
  const [clusters] = await Promise.all([startClusters(), build({ outdir: bundles })]);
  const [core, ...workers] = clusters;
  let demo: Demo;
  try {
    demo = await setUp(core, workers, bundles, narrator);
  } catch (error) {
    for (const cluster of clusters) cluster.keepLogs();
    throw error;
  }
  const { stage } = demo;
  narrator.say(`${REPLICAS} pods are available, ${PROMISED} are promised: replicas ${REPLICAS}, maxUnavailable 20%.`);
  await examine(stage, bundles);
  if (options.report !== undefined) {
    recorder = new Recorder(
      `podseidon: ${REPLICAS} pods in two clusters, ${PROMISED} of them promised`,
      workers.map(({ name }) => name),
    );
    stage.record(recorder);
  }
  await play(stage);
  stage.total = await stage.reviews();
  const finished = recorder;
  recorder = undefined;
  await showState(stage);
  const good = stage.promised.every(({ held }) => held);
  if (options.keep || !good) for (const cluster of clusters) cluster.keepLogs();
  const line = summary(stage, (performance.now() - startMs) / 1000);
  if (options.report !== undefined && finished !== undefined) {
    writeFileSync(options.report, reportPage(finished.finish(verdict(stage), good, askersIn(clusters))));
    narrator.say(`The report of what happened is ${options.report}`);
  }
  if (!options.once) {
    process.stdout.write(`\n${line}\n`);
    await stayUp(demo, narrator, bundles);
  }
  await demo.stop();
  process.stdout.write(`\n${line}\n`);
  return good ? 0 : 1;
}

function checkWritable(path: string): void {
  const isNew = !existsSync(path);
  closeSync(openSync(path, "a"));
  if (isNew) rmSync(path);
}

const asked = readOptions(process.argv.slice(2), HELP, {
  once: { type: "boolean", default: false },
  keep: { type: "boolean", default: false },
  report: { type: "string" },
});
if (typeof asked === "number") process.exit(asked);
// npm runs this in the root of the clone, whatever the user's directory is.
const report = asked.report === undefined ? undefined : resolve(process.env.INIT_CWD ?? "", asked.report);
const options: DemoOptions = { ...asked, report };
try {
  // Fails now instead of at the end if the report can't be written.
  if (report !== undefined) checkWritable(report);
} catch (error) {
  process.exit(misused(`--report: ${messageOf(error)}`, HELP));
}
// The reaper ends all processes and removes all files, whenever this process exits.
for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"] as const)
  process.once(signal, () => process.exit(EXIT_INTERRUPTED));
// The reader of the output may end, like `head` does.
process.stdout.on("error", () => process.exit(EXIT_INTERRUPTED));
try {
  process.exitCode = await run(options);
} catch (error) {
  process.stderr.write(`demo: ${messageOf(error)}\n`);
  process.stdout.write("RESULT failed: the demo could not be set up\n");
  process.exitCode = 1;
}
process.exit();
