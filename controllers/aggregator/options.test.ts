import { expect, test } from "vitest";
import { parseOptions } from "../../shared/runtime/options/options.ts";
import { aggregatorOptions } from "./options.ts";

/** What the process prints before it ends; empty when it runs. */
async function refusal(...args: string[]): Promise<string> {
  const base = ["--cell-id", "a", "--core", "core=/kubeconfig"];
  const parsed = await parseOptions(aggregatorOptions, [...base, ...args], {}, async () => "");
  return parsed.kind === "exit" ? `${parsed.code}: ${parsed.text}` : "";
}

test("a cell by label selector is refused, with what to do instead", async () => {
  expect(await refusal("--pod-selector=app=web")).toMatch(
    /^2: .*--pod-selector: .*labels change.*\(--namespace, with/s,
  );
  expect(await refusal("--pod-selector=")).toBe("");
  expect(await refusal("--namespace=shop")).toBe("");
});

test("a workload of another kind is named as a resource", async () => {
  expect(await refusal("--scalable=CloneSet")).toMatch(/^2: .*--scalable: must be group\/version\/resource/s);
  expect(await refusal("--scalable=apps.kruise.io/v1alpha1/clonesets")).toBe("");
});
