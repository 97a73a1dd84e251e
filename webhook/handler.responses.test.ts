import { describe, expect, test } from "vitest";
import { ProtectorVersion } from "../shared/decide/state/protector-version.ts";
import { createLog } from "../shared/observe/log.ts";
import { Metrics } from "../shared/observe/metrics.ts";
import { protector } from "../test/support/webhook/fixtures.ts";
import {
  ALLOWED,
  admissionReview,
  DENIED,
  deletion,
  denial,
  eviction,
  handler,
  podJson,
  responseOf,
} from "../test/support/webhook/handler-harness.ts";
import { observeAdmissions } from "./observe-reviews.ts";
import { type Allowance, FAILURE_TAGS, type Verdict } from "./reserve/verdict.ts";

describe("responses", () => {
  test("the command that releases a lost protector names the namespace of this installation", async () => {
    const protector = { core: "core", namespace: "default", name: "web" };
    const decisions = [{ protector, decision: { kind: "lost", uid: "1-2-3" } }] as const;
    const denied: Verdict = { kind: "denied", decisions, rollBack: undefined };
    const { ask } = handler(denied, { ownNamespace: "net" });
    const command = expect.stringContaining("kubectl -n net patch configmap podseidon-released-by-hand ");
    expect(responseOf(await ask(deletion()))).toMatchObject({
      status: { message: command, details: { causes: [{ message: command }] } },
    });
  });

  test("a denial: 429, every cause, no retryAfterSeconds", async () => {
    const { ask, records } = handler(DENIED);
    expect(responseOf(await ask(deletion()))).toEqual({
      uid: "request-1",
      allowed: false,
      status: {
        code: 429,
        reason: "TooManyRequests",
        message:
          "pod default/web-0 may not be deleted now: PodProtector default/web needs 8 " +
          "available pods, 10 are available, 2 of them reserved by disruptions under way: its " +
          "capacity is at the minimum; try again when more pods are available. " +
          "More: kubectl podseidon why web-0 -n default",
        details: {
          name: "web-0",
          kind: "pods",
          causes: [
            {
              reason: "DisruptionBudget",
              message: expect.stringContaining("needs 8 available pods"),
              field: "podprotectors.podseidon.kubewharf.io/default/web",
            },
          ],
        },
      },
      auditAnnotations: {
        "reject-by-podprotector": "default/web",
        decision: "core/default/web=AtMinimum",
        review: "request-1",
      },
    });
    expect(records).toMatchObject([{ outcome: "denied" }]);
  });

  test("a denial by a thousand protectors, which one tenant can have, is no longer than one by twenty", async () => {
    const decisions = Array.from({ length: 1000 }, (_, index) => {
      const { protector, decision } = denial("Denial");
      return { protector: { ...protector, name: `budget-${index}` }, decision };
    });
    const { ask, records } = handler({ kind: "denied", decisions, rollBack: undefined });
    const { body } = await ask(deletion());
    const lines: string[] = [];
    const log = createLog({ component: "webhook", destination: { write: (line) => lines.push(line) } });
    records.forEach(observeAdmissions(new Metrics(), log));
    expect(body.length).toBeLessThan(10_000);
    expect(body).toContain("995 more deny as well");
    expect(lines.join("").length).toBeLessThan(2_500);
    expect(lines.join("")).toContain('"moreProtectors":980');
  });

  test("a denial says which available pods do not count, and why", async () => {
    const elsewhere = denial("Busy", { unreliable: 6, reserved: 0, estimated: 4 });
    const { ask } = handler({ kind: "denied", decisions: [elsewhere], rollBack: undefined });
    const message = expect.stringContaining(
      "needs 8 available pods, 10 are available, 6 of them in cells that are on hold or not counted for its " +
        "present spec yet, 0 of them reserved by disruptions that are not accounted for yet; it may once those cells",
    );
    expect(responseOf(await ask(deletion()))).toMatchObject({ status: { message } });
  });

  test.each([
    ["all busy", [denial("Busy"), denial("Busy")], 1, "busy"],
    ["one denies", [denial("Busy"), denial("Denial")], undefined, "denied"],
  ])("%s", async (_name, decisions, retryAfterSeconds, outcome) => {
    const { ask, records } = handler({ kind: "denied", decisions, rollBack: undefined });
    const response = responseOf(await ask(deletion()));
    expect(response).toMatchObject({ status: { details: { causes: [{}, {}] } } });
    expect(Reflect.get(Object(Reflect.get(Object(response.status), "details")), "retryAfterSeconds")).toBe(
      retryAfterSeconds,
    );
    expect(records).toMatchObject([{ outcome }]);
  });

  // kube-apiserver tells its client the text of an HTTP 500 only.
  test.each(FAILURE_TAGS)("%s is an HTTP 500, so that failurePolicy decides and the client is told", async (tag) => {
    const { ask, records } = handler({ kind: "failed", tag, message: "said why" });
    expect(await ask(deletion())).toEqual({ status: 500, body: "said why" });
    expect(records).toMatchObject([{ outcome: "failed", failure: tag }]);
  });

  test.each([
    ["delivered: rolled back", true, 1],
    ["not delivered: stays", false, 0],
  ])("what was reserved before a denial that was %s", async (_name, complete, times) => {
    let rolledBack = 0;
    const { ask } = handler({
      kind: "denied",
      decisions: [denial("Busy")],
      rollBack: () => {
        rolledBack++;
      },
    });
    const reply = await ask(deletion());
    expect(rolledBack).toBe(0);
    reply.delivered?.(complete);
    expect(rolledBack).toBe(times);
  });
});

describe("a protector that does not enforce", () => {
  const id = { core: "core", namespace: "default", name: "web" };
  const version = new ProtectorVersion(protector(1), 0);
  const facts = { minAvailable: 8, available: 10, unreliable: 0, notReady: 0, reserved: 2, estimated: 8 };
  const instead = { allowed: false, kind: "Denial", cause: "AtMinimum", facts } as const;
  const decided = (reason: "NotEnforced" | "Forced"): Allowance => {
    const decision = { allowed: true, reason, write: "none", facts } as const;
    const whole = reason === "NotEnforced" ? { ...decision, instead } : decision;
    return { protector: id, decision: { kind: "allowed", decision: whole, version, written: true } };
  };

  test("allows with the text of the denial, which Events, logs and audit have as well", async () => {
    const { ask, records } = handler({ kind: "allowed", decisions: [decided("NotEnforced")] });
    expect(responseOf(await ask(deletion()))).toMatchObject({
      allowed: true,
      warnings: [expect.stringMatching(/^not enforced: pod default\/web-0 may not be deleted now: PodProtector /)],
      auditAnnotations: { "not-enforced": "core/default/web=AtMinimum", decision: "core/default/web=NotEnforced" },
    });
    expect(records).toMatchObject([{ outcome: "dryRunDenied", decisions: [{ decision: { kind: "denied" } }] }]);
  });

  test("warns beside one that was forced, and leaves that outcome", async () => {
    const { ask, records } = handler({ kind: "allowed", decisions: [decided("NotEnforced"), decided("Forced")] });
    const warnings = expect.arrayContaining([expect.stringMatching(/^not enforced: /)]);
    expect(responseOf(await ask(deletion()))).toMatchObject({ allowed: true, warnings });
    expect(records).toMatchObject([{ outcome: "forced" }]);
  });
});

describe("dry-run mode", () => {
  const dryRunMode = { dryRunMode: true };

  test("a denial becomes a warning, and the deletion is reserved", async () => {
    const { ask, asked, records } = handler([DENIED, ALLOWED], dryRunMode);
    expect(responseOf(await ask(deletion()))).toMatchObject({
      allowed: true,
      warnings: [expect.stringMatching(/^dry run: pod default\/web-0 may not be deleted now/)],
      auditAnnotations: { "dry-run": "true", "reject-by-podprotector": "default/web" },
    });
    expect(asked).toMatchObject([{ forced: false }, { forced: true }]);
    expect(records).toMatchObject([{ outcome: "dryRunDenied" }]);
  });

  test("a dry run of the request is not reserved", async () => {
    const { ask, asked } = handler(DENIED, dryRunMode);
    await ask(admissionReview({ oldObject: podJson(), dryRun: true }));
    expect(asked).toHaveLength(1);
  });

  test("a failure becomes a warning", async () => {
    const { ask } = handler({ kind: "failed", tag: "core-unavailable", message: "no core" }, dryRunMode);
    expect(responseOf(await ask(deletion()))).toMatchObject({ allowed: true, warnings: ["dry run: no core"] });
  });

  test("a failure to bind an eviction becomes a warning", async () => {
    const { ask, records } = handler(ALLOWED, dryRunMode, { kind: "failed", message: "no cell" });
    expect(responseOf(await ask(eviction(), "mutate"))).toMatchObject({
      allowed: true,
      warnings: ["dry run: no cell"],
    });
    expect(records).toMatchObject([{ kind: "bind", outcome: "dryRunDenied" }]);
  });

  test("a missing pod is still not found", async () => {
    const { ask } = handler(ALLOWED, dryRunMode, { kind: "gone" });
    expect(responseOf(await ask(eviction()))).toMatchObject({ allowed: false, status: { code: 404 } });
  });
});
