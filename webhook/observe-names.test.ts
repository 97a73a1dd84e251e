import { describe, expect, test } from "vitest";
import { Metrics } from "../shared/observe/metrics.ts";
import { observeNames } from "./observe-names.ts";
import type { AdmissionRecord } from "./respond/admission-response.ts";

const NONE = { metricsByNamespace: false, metricsByUser: false };

function record(namespace: string, username: string, more: Partial<AdmissionRecord> = {}): AdmissionRecord {
  const about = { kind: "delete", durationMs: 1, cell: "cell", uid: "review", username } as const;
  return { ...about, outcome: "allowed", pod: { namespace, name: "pod", uid: "uid" }, ...more };
}

function denial(namespace: string, name: string): Partial<AdmissionRecord> {
  const decision = { kind: "lost", uid: "uid" } as const;
  return { outcome: "denied", decisions: [{ protector: { core: "core", namespace, name }, decision }] };
}

async function series(metrics: Metrics, name: string): Promise<string[]> {
  const { body } = await metrics.render();
  return body
    .split("\n")
    .filter((line) => line.startsWith(`podseidon_webhook_${name}{`))
    .sort();
}

describe("reviews are counted by what users name", () => {
  test("where it is asked for, without dry runs, all kubelets as one", async () => {
    const metrics = new Metrics();
    const finished = observeNames(metrics, { metricsByNamespace: true, metricsByUser: true });
    finished(record("shop", "alice"));
    finished(record("shop", "system:node:a"));
    finished(record("bank", "system:node:b", { outcome: "denied" }));
    finished(record("bank", "alice", { dryRun: true }));
    expect(await series(metrics, "namespace_reviews_total")).toEqual([
      'podseidon_webhook_namespace_reviews_total{namespace="bank",outcome="denied"} 1',
      'podseidon_webhook_namespace_reviews_total{namespace="shop",outcome="allowed"} 2',
    ]);
    expect(await series(metrics, "user_reviews_total")).toEqual([
      'podseidon_webhook_user_reviews_total{user="alice",outcome="allowed"} 1',
      'podseidon_webhook_user_reviews_total{user="system:node",outcome="allowed"} 1',
      'podseidon_webhook_user_reviews_total{user="system:node",outcome="denied"} 1',
    ]);
  });

  test("not otherwise", async () => {
    const metrics = new Metrics();
    observeNames(metrics, NONE)(record("shop", "alice"));
    expect((await metrics.render()).body).not.toMatch(/namespace_reviews|user_reviews/);
  });

  test("names beyond the bound are other, and the most counted have their own", async () => {
    const metrics = new Metrics();
    const finished = observeNames(metrics, { metricsByNamespace: false, metricsByUser: true });
    for (let user = 0; user < 150; user++) finished(record("shop", `user-${user}`));
    for (let again = 0; again < 3; again++) finished(record("shop", "user-149"));
    const found = await series(metrics, "user_reviews_total");
    expect(found).toHaveLength(101);
    expect(found).toContain('podseidon_webhook_user_reviews_total{user="user-149",outcome="allowed"} 4');
    expect(found).toContain('podseidon_webhook_user_reviews_total{user="other",outcome="allowed"} 50');
  });
});

test("denials are counted by protector, bounded", async () => {
  const metrics = new Metrics();
  const finished = observeNames(metrics, NONE);
  for (let name = 0; name < 510; name++) finished(record("shop", "alice", denial("shop", `p${name}`)));
  finished(record("shop", "alice", denial("shop", "p509")));
  finished(record("shop", "alice", { ...denial("shop", "p509"), dryRun: true }));
  finished(record("shop", "alice", { ...denial("shop", "p509"), outcome: "dryRunDenied" }));
  const found = await series(metrics, "denials_total");
  expect(found).toHaveLength(502);
  const labels = 'core="core",namespace="shop",protector="p509"';
  const other = 'core="other",namespace="other",protector="other"';
  expect(found).toContain(`podseidon_webhook_denials_total{${labels},enforced="true"} 2`);
  expect(found).toContain(`podseidon_webhook_denials_total{${labels},enforced="false"} 1`);
  expect(found).toContain(`podseidon_webhook_denials_total{${other},enforced="true"} 10`);
});
