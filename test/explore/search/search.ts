/**
 * Breadth first over all states of a world, so that the first violation is one of the shortest. The shipping code is
 * loaded when a search begins, so that rules can be left out before.
 */
import { Worker } from "node:worker_threads";
import type { Rule } from "../../simulation/ablation/rules.ts";
import type { Bounds } from "../bounds.ts";
import { type Broken, type Expanded, Expansion, type ExpansionTask } from "./expansion.ts";
import type { Piece } from "./frontier.ts";
import { Visited, type VisitedMemory, visitedMemory } from "./visited.ts";

export interface SearchResult {
  /** Distinct states. */
  readonly states: number;
  readonly steps: number;
  /** Steps to the states that are furthest away. */
  readonly depth: number;
  /** Every state was visited. */
  readonly isComplete: boolean;
  readonly violation: string | undefined;
  /** The shortest way to the violation, step by step. */
  readonly story: readonly string[];
}

export interface SearchOptions {
  /** Unix milliseconds. */
  readonly endMs?: number;
  /** Room for so many states, a power of two. */
  readonly capacity?: number;
  /** More than one works in threads of their own. */
  readonly threads?: number;
  /** This process has been told to leave out these rules; its threads are told the same. */
  readonly leftOut?: readonly Rule[];
  readonly onLevel?: (depth: number, states: number) => void;
}

export interface ThreadData {
  readonly bounds: Bounds;
  readonly memory: VisitedMemory;
  readonly leftOut: readonly Rule[];
}

/** Fewer pieces are not worth to be passed on. */
const PIECES_OF_THREADS = 4;

type Expand = (task: ExpansionTask) => Promise<Expanded>;

export async function search(bounds: Bounds, options: SearchOptions = {}): Promise<SearchResult> {
  const { endMs = Number.POSITIVE_INFINITY, capacity = 1 << 22, threads = 1, leftOut = [], onLevel } = options;
  const memory = visitedMemory(capacity);
  const own = new Expansion(bounds, memory);
  const workers = threads < 2 ? [] : Array.from({ length: threads }, () => startThread({ bounds, memory, leftOut }));
  const visited = new Visited(memory);
  let pieces = own.begin();
  let steps = 0;
  let depth = 0;
  let isComplete = true;
  let broken: Broken | undefined;
  while (pieces.length > 0) {
    const isShared = workers.length > 0 && pieces.length >= PIECES_OF_THREADS;
    const parts = isShared
      ? await Promise.all(workers.map((worker, index) => ask(worker)({ pieces: share(pieces, index, threads), endMs })))
      : [own.expand({ pieces, endMs })];
    steps += parts.reduce((sum, part) => sum + part.steps, 0);
    broken = parts.find((part) => part.broken !== undefined)?.broken;
    if (parts.some(({ isCut }) => isCut) || broken !== undefined) isComplete = false;
    pieces = isComplete ? parts.flatMap((part) => part.pieces) : [];
    if (pieces.length > 0) onLevel?.(++depth, visited.size);
  }
  await Promise.all(workers.map((worker) => worker.terminate()));
  const story = broken === undefined ? [] : own.tell(broken);
  return { states: visited.size, steps, depth, isComplete, violation: broken?.violation, story };
}

function startThread(workerData: ThreadData): Worker {
  return new Worker(new URL("./thread.ts", import.meta.url), { workerData });
}

function share(pieces: readonly Piece[], index: number, threads: number): readonly Piece[] {
  return pieces.filter((_, piece) => piece % threads === index);
}

function ask(worker: Worker): Expand {
  return (task) =>
    new Promise((resolve, reject) => {
      worker.removeAllListeners().once("message", resolve).once("error", reject);
      worker.postMessage(task);
    });
}
