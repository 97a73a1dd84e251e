import { expect, test } from "vitest";
import type { ApiResult } from "../../shared/kube/client/api-result.ts";
import { PENDING_DISRUPTION_ANNOTATION } from "../../shared/schema/annotations.ts";
import { pod } from "../../test/support/webhook/fixtures.ts";
import { PendingMark } from "./pending-mark.ts";

function harness(): {
  mark: PendingMark;
  patches: unknown[];
  failures: string[];
  answer(result: ApiResult<never>): Promise<void>;
} {
  const patches: unknown[] = [];
  const failures: string[] = [];
  const waiting: ((result: ApiResult<never>) => void)[] = [];
  const mark = new PendingMark(
    {
      patch: (path, type, body) => {
        patches.push({ path, type, body });
        return new Promise((resolve) => waiting.push(resolve));
      },
    },
    (message) => failures.push(message),
  );
  return {
    mark,
    patches,
    failures,
    async answer(result) {
      waiting.shift()?.(result);
      await new Promise((resolve) => setImmediate(resolve));
    },
  };
}

test("a pod is marked once, by its UID", async () => {
  const { mark, patches, answer } = harness();
  mark.mark(pod("web-0"));
  mark.mark(pod("web-0"));
  mark.mark(pod("web-1", { annotations: { [PENDING_DISRUPTION_ANNOTATION]: "true" } }));
  expect(patches).toEqual([
    {
      path: "/api/v1/namespaces/default/pods/web-0",
      type: "application/merge-patch+json",
      body: { metadata: { uid: "uid-web-0", annotations: { [PENDING_DISRUPTION_ANNOTATION]: "true" } } },
    },
  ]);
  await answer({ kind: "conflict", message: "another pod" });
  mark.mark(pod("web-0"));
  expect(patches).toHaveLength(2);
});

test("patches in flight are bounded, and failures are reported", async () => {
  const { mark, patches, failures, answer } = harness();
  for (let count = 0; count < 100; count++) mark.mark(pod(`web-${count}`));
  expect(patches).toHaveLength(32);
  await answer({ kind: "rejected", status: 403, reason: "Forbidden", message: "may not patch pods" });
  expect(failures).toEqual(["may not patch pods"]);
});
