import { fork } from "node:child_process";
import { fileURLToPath } from "node:url";
import type { Rule } from "../../simulation/ablation/rules.ts";
import type { Bounds } from "../bounds.ts";
import type { SearchResult } from "./search.ts";

const BODY = fileURLToPath(new URL("./rule-process-body.ts", import.meta.url));

/** Searches in a process whose shipping code lacks a rule. */
export function searchWithout(rule: Rule, bounds: Bounds): Promise<SearchResult> {
  return new Promise((resolve, reject) => {
    const child = fork(BODY, [rule], { serialization: "advanced" });
    child.once("error", reject);
    child.once("exit", (code, signal) => reject(new Error(`the search without ${rule} ended with ${signal ?? code}`)));
    child.once("message", (result: SearchResult) => {
      resolve(result);
      child.kill();
    });
    child.send(bounds);
  });
}
