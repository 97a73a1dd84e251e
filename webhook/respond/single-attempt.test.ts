import { expect, test } from "vitest";
import {
  admissionReview,
  DENIED,
  denial,
  eviction,
  found,
  handler,
  podJson,
  responseOf,
} from "../../test/support/webhook/handler-harness.ts";
import type { Verdict } from "../reserve/verdict.ts";
import { singleAttempts } from "./single-attempt.ts";

const TAINT_EVICTION = "system:serviceaccount:kube-system:node-controller";
const POD_GC = "system:serviceaccount:kube-system:pod-garbage-collector";
const BUSY: Verdict = { kind: "denied", decisions: [denial("Busy")], rollBack: undefined };

const deletionBy = (username: string): string => admissionReview({ oldObject: podJson(), userInfo: { username } });

test.each<[string, string, Verdict, number | undefined]>([
  ["a denial to the taint eviction controller", TAINT_EVICTION, DENIED, 30],
  ["a busy denial to it", TAINT_EVICTION, BUSY, 30],
  ["a denial to anyone else", "system:serviceaccount:kube-system:replicaset-controller", DENIED, undefined],
  ["a busy denial to anyone else", "eve", BUSY, 1],
  ["a busy denial to PodGC", POD_GC, BUSY, undefined],
])("%s", async (_, username, verdict, retryAfterSeconds) => {
  const response = responseOf(await handler(verdict).ask(deletionBy(username)));
  expect(response).toMatchObject({ status: { code: 429, details: { kind: "pods", name: "web-0" } } });
  expect(Object(Reflect.get(Object(response.status), "details")).retryAfterSeconds).toBe(retryAfterSeconds);
});

test("an eviction by such a caller", async () => {
  const { ask } = handler(DENIED, {}, found());
  const response = responseOf(await ask(eviction({}, { userInfo: { username: TAINT_EVICTION } })));
  expect(response).toMatchObject({ status: { details: { retryAfterSeconds: 30 } } });
});

test("nothing else that such a caller asks is to be repeated", async () => {
  const unbound = { requireBoundEvictions: true };
  const response = responseOf(
    await handler(DENIED, unbound, found()).ask(eviction({}, { userInfo: { username: TAINT_EVICTION } })),
  );
  expect(response).toMatchObject({ status: { code: 429, reason: "TooManyRequests" } });
  expect(JSON.stringify(response)).not.toContain("retryAfterSeconds");
});

test("callers are added, and the time is chosen, in whole seconds", async () => {
  const { ask } = handler(DENIED, { singleAttempts: singleAttempts(["sweeper"], 1_500) });
  for (const user of ["sweeper", TAINT_EVICTION]) {
    expect(responseOf(await ask(deletionBy(user)))).toMatchObject({ status: { details: { retryAfterSeconds: 2 } } });
  }
});

test("0 tells no caller to come back", async () => {
  const { ask } = handler(DENIED, { singleAttempts: singleAttempts([], 0) });
  expect(JSON.stringify(responseOf(await ask(deletionBy(TAINT_EVICTION))))).not.toContain("retryAfterSeconds");
});
