/** A resolver in place of the machine's, which leaves lookups unanswered until the test answers them. */
import dns from "node:dns";
import { onTestFinished, vi } from "vitest";

export interface SilentResolver {
  /** The names, in the order of the lookups. */
  readonly names: readonly string[];
  /** Answers all lookups with an error; so does the end of the test. */
  readonly fail: () => void;
}

export function silentResolver(): SilentResolver {
  const names: string[] = [];
  const waiting: ((error: Error) => void)[] = [];
  const fail = (): void => {
    for (const answer of waiting.splice(0)) answer(Object.assign(new Error("getaddrinfo"), { code: "EAI_AGAIN" }));
  };
  const lookup = vi.spyOn(dns, "lookup").mockImplementation((name: string, ...rest: readonly unknown[]) => {
    names.push(name);
    const callback = rest.at(-1);
    if (typeof callback === "function") waiting.push((error) => void callback(error));
    return undefined as never;
  });
  onTestFinished(() => {
    fail();
    lookup.mockRestore();
  });
  return { names, fail };
}
