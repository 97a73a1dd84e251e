import { expect, test } from "vitest";
import type { ApiResult } from "../../shared/kube/client/api-result.ts";
import { PENDING_DISRUPTION_ANNOTATION, PRE_ACTIVITY_PREFIX } from "../../shared/schema/annotations.ts";
import type { Pod } from "../../shared/schema/pod.ts";
import { pod } from "../../test/support/webhook/fixtures.ts";
import { PendingMark } from "./pending-mark.ts";

function harness(): {
  mark: PendingMark;
  patches: unknown[];
  failures: string[];
  answer(result: ApiResult<never>): Promise<void>;
  /** Marks the pod, which the cell has as `live`. */
  marked(asked: Pod, live?: Pod): Promise<void>;
} {
  const patches: unknown[] = [];
  const failures: string[] = [];
  const waiting: ((result: ApiResult<never>) => void)[] = [];
  let found: Pod | undefined;
  const settled = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));
  const mark = new PendingMark(
    {
      patch: (path, type, body) => {
        patches.push({ path, type, body });
        return new Promise((resolve) => waiting.push(resolve));
      },
    },
    async () => (found === undefined ? { kind: "gone" } : { kind: "found", pod: found, sentMs: 0 }),
    (message) => failures.push(message),
  );
  return {
    mark,
    patches,
    failures,
    async answer(result) {
      waiting.shift()?.(result);
      await settled();
    },
    async marked(asked, live) {
      found = live;
      mark.mark(asked);
      await settled();
    },
  };
}

const waiting = (name: string, change: Partial<Pod> = {}): Pod =>
  pod(name, { annotations: { [`${PRE_ACTIVITY_PREFIX}flush`]: "" }, ...change });

test("a pod is marked once, by its UID", async () => {
  const { patches, marked, answer } = harness();
  await marked(waiting("web-0"), waiting("web-0"));
  await marked(waiting("web-0"), waiting("web-0"));
  await marked(pod("web-1", { annotations: { [PENDING_DISRUPTION_ANNOTATION]: "true" } }), waiting("web-1"));
  expect(patches).toEqual([
    {
      path: "/api/v1/namespaces/default/pods/web-0",
      type: "application/merge-patch+json",
      body: { metadata: { uid: "uid-web-0", annotations: { [PENDING_DISRUPTION_ANNOTATION]: "true" } } },
    },
  ]);
  await answer({ kind: "conflict", message: "another pod" });
  await marked(waiting("web-0"), waiting("web-0"));
  expect(patches).toHaveLength(2);
});

test("a pod that the cell does not have so is not marked", async () => {
  const { patches, marked } = harness();
  const mark = { [PENDING_DISRUPTION_ANNOTATION]: "true" };
  await marked(waiting("web-0"), pod("web-0"));
  await marked(waiting("web-0"), waiting("web-0", { uid: "other" }));
  await marked(waiting("web-0"), waiting("web-0", { annotations: { ...waiting("web-0").annotations, ...mark } }));
  await marked(waiting("web-0"));
  expect(patches).toEqual([]);
});

test("pods in flight are bounded, and failures are reported", async () => {
  const { mark, patches, failures, marked, answer } = harness();
  await marked(waiting("web-0"), waiting("web-0"));
  for (let count = 1; count < 100; count++) mark.mark(waiting(`web-${count}`, { uid: `uid-web-${count}` }));
  await answer({ kind: "rejected", status: 403, message: "may not patch pods" });
  expect(patches).toHaveLength(1);
  expect(failures).toEqual(["may not patch pods"]);
});
