/** What the response to an eviction of a pod that does not exist shows of the webhook. */
import { expect, test } from "vitest";
import type { ApiResponse } from "../../../shared/kube/client/transport.ts";
import { answerFinding } from "./answer-finding.ts";

const NOT_FOUND = 'pods "podseidon-doctor-asks-about-no-pod" not found';
const OWN = 'admission webhook "bind.podseidon.kubewharf.io" denied the request: ';
const CALL = 'Internal error occurred: failed calling webhook "bind.podseidon.kubewharf.io": failed to call webhook: ';
const UNDECIDED = `${CALL}an error on the server ("cell b is unknown") has prevented the request from succeeding`;
const UNREACHED = `${CALL}Post "https://podseidon-webhook.podseidon-system.svc:443/mutate/b": connection refused`;

function response(status: number, message: string, warning?: string): ApiResponse {
  const headers = warning === undefined ? {} : { warning };
  return { status, headers, body: JSON.stringify({ kind: "Status", message }) };
}

test.each<[string, ApiResponse, string, string]>([
  ["of the webhook", response(404, OWN + NOT_FOUND), "ok", "answers as bind.podseidon.kubewharf.io"],
  [
    "of the webhook that a file on kube-apiserver's host configures",
    response(404, `admission webhook "bind.podseidon.static.k8s.io" denied the request: ${NOT_FOUND}`),
    "ok",
    "answers as bind.podseidon.static.k8s.io",
  ],
  ["of the webhook in dry-run mode", response(404, NOT_FOUND, `299 - "dry run: ${NOT_FOUND}"`), "ok", "answers, by "],
  ["of a webhook that can decide nothing", response(503, `${OWN}the core does not answer`), "problem", "the core does"],
  [
    "of another webhook, which says nothing of podseidon",
    response(403, 'admission webhook "validate.kyverno.svc-fail" denied the request: no evictions by night'),
    "unknown",
    "validate.kyverno.svc-fail",
  ],
  [
    "of a webhook whose name has podseidon's in the middle",
    response(404, `admission webhook "bind.podseidon.kubewharf.io.example.com" denied the request: ${NOT_FOUND}`),
    "unknown",
    "example.com",
  ],
  ["of RBAC", response(403, "pods is forbidden"), "unknown", "forbidden"],
  ["of an apiserver without an answer", response(500, "failed calling webhook"), "problem", "failed calling"],
  ["of an apiserver that asked nobody", response(404, NOT_FOUND), "problem", "was not asked"],
])("a response %s", (_, given, level, found) => {
  expect(answerFinding(given)).toMatchObject({ check: "webhook", level, found: expect.stringContaining(found) });
});

test.each([
  [
    "was reached and can decide nothing",
    UNDECIDED,
    "it was reached, and can decide nothing: see docs/runbooks/PodseidonReviewsFailing.md",
  ],
  ["is not reached", UNREACHED, "while it does not answer: see docs/runbooks/PodseidonWebhookDown.md"],
])("advice where the webhook %s", (_, message, advice) => {
  expect(answerFinding(response(500, message)).advice).toContain(advice);
});
