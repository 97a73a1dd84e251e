/** A thread of a search. It loads the shipping code without the rules that it is told to leave out. */
import { parentPort, workerData } from "node:worker_threads";
import { patchSources } from "../../simulation/ablation/patch-sources.ts";
import type { ExpansionTask } from "./expansion.ts";
import type { ThreadData } from "./search.ts";

const { bounds, memory, leftOut }: ThreadData = workerData;
if (leftOut.length > 0) patchSources(leftOut);
const { Expansion } = await import("./expansion.ts");
const expansion = new Expansion(bounds, memory);
parentPort?.on("message", (task: ExpansionTask) => parentPort?.postMessage(expansion.expand(task)));
