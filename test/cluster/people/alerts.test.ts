/**
 * The unit tests of the alert rules with promtool: each alert fires when it should, and not in normal operation. The
 * dashboard's queries are valid. At full size only, because promtool is built from source where it is not installed.
 */

import { spawnSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, relative } from "node:path";
import { loadAll } from "js-yaml";
import { beforeAll, describe, expect, onTestFinished, test } from "vitest";
import { field } from "../../../scripts/control-plane/api-client.ts";
import { ensureBinaries } from "../../../scripts/control-plane/binaries/binaries.ts";
import { root } from "../../../scripts/root.ts";
import { block } from "../../support/cluster/documented.ts";
import { ensurePromtool } from "../../support/cluster/test-tools.ts";
import { temporaryDirectory } from "../../support/runtime/temporary-directory.ts";

const FULL = process.env.PODSEIDON_TEST_SIZE === "full";

const MONITORING = join(root, "manifests/monitoring");
const TEAMS = readFileSync(new URL("../../../docs/how-to/alerts-per-team.md", import.meta.url), "utf8");

/** What a team hears of its workload shop/web, by the series that are there. */
const TEAM_CASES: readonly (readonly [fires: string, series: readonly (readonly [string, string])[]])[] = [
  [
    'alertname="WorkloadBelowItsPromise", label_team="blue"',
    [
      ['podseidon_protector_pods{namespace="shop",protector="web",number="available"}', "3x120"],
      ['podseidon_protector_pods{namespace="shop",protector="web",number="required"}', "4x120"],
      ['podseidon_protector_labels{namespace="shop",protector="web",label_team="blue"}', "1x120"],
    ],
  ],
  [
    'alertname="WorkloadWouldDeny"',
    [['podseidon_webhook_denials_total{namespace="shop",protector="web",enforced="false"}', "0+1x120"]],
  ],
  // All denials lie between two scrapes: the series begins with its last value.
  [
    'alertname="WorkloadWouldDeny"',
    [['podseidon_webhook_denials_total{namespace="shop",protector="web",enforced="false"}', "_x50 3x70"]],
  ],
];

test("the aggregators of an overlay serve numbers and labels of each protector by the patch of the page", async () => {
  const directory = temporaryDirectory(onTestFinished);
  const resources = relative(directory, join(root, "manifests/overlays/single-cluster"));
  const head = "apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\n";
  writeFileSync(
    join(directory, "kustomization.yaml"),
    `${head}resources: [${resources}]\n${block(TEAMS, "the flags")}`,
  );
  const { kubectl } = await ensureBinaries();
  const { stdout, stderr } = spawnSync(kubectl, ["kustomize", directory], { encoding: "utf8" });
  expect(stderr).toBe("");
  const deployments = loadAll(stdout).filter((one) => field(one, "metadata", "name") === "podseidon-aggregator");
  const args = deployments.map((one) => field(one, "spec", "template", "spec", "containers", 0, "args"));
  expect(args.find((one) => one !== undefined)).toEqual(
    expect.arrayContaining(["--protector-metrics", "--metric-labels=team"]),
  );
});

describe.runIf(FULL)("promtool", () => {
  // Builds it where it is not installed: minutes on idle cores.
  beforeAll(ensurePromtool, 1_800_000);

  test("reads every query of the dashboard", async () => {
    const dashboard = readFileSync(join(MONITORING, "dashboard.json"), "utf8");
    const queries = [...dashboard.matchAll(/"expr": ("(?:[^"\\]|\\.)*")/g)].map(([, expr = '""']) =>
      String(JSON.parse(expr)).replaceAll("$__rate_interval", "5m"),
    );
    expect(queries.length).toBeGreaterThan(20);
    const rules = queries.map((expr, index) => ({ record: `query_${index}`, expr }));
    const directory = temporaryDirectory(onTestFinished);
    try {
      // YAML is a superset of JSON.
      writeFileSync(join(directory, "queries.yaml"), JSON.stringify({ groups: [{ name: "dashboard", rules }] }));
      const args = ["check", "rules", join(directory, "queries.yaml")];
      const { status, stderr } = spawnSync(await ensurePromtool(), args, { encoding: "utf8" });
      expect([status, stderr]).toEqual([0, ""]);
    } finally {
      rmSync(directory, { recursive: true, force: true });
    }
  });

  test.each([[["check", "rules", "rules.yaml"]], [["test", "rules", "rules.test.yaml"]]])("%j", async (args) => {
    const { status, stdout, stderr } = spawnSync(await ensurePromtool(), args, { cwd: MONITORING, encoding: "utf8" });
    process.stdout.write(stdout);
    expect(stderr).toBe("");
    expect(status).toBe(0);
  });

  test("has the rules for teams fire with the namespace of the workload, each for its own reason", async () => {
    const directory = mkdtempSync(join(tmpdir(), "podseidon-teams-"));
    const tests = TEAM_CASES.map(([fires, series]) => ({
      interval: "1m",
      input_series: series.map(([name, values]) => ({ series: name, values })),
      promql_expr_test: [
        {
          expr: 'sum by (alertname, namespace, protector, label_team) (ALERTS{alertstate="firing"})',
          eval_time: "100m",
          exp_samples: [{ labels: `{${fires}, namespace="shop", protector="web"}`, value: 1 }],
        },
      ],
    }));
    const series = 'podseidon_webhook_denials_total{namespace="shop",protector="web",enforced="false"}';
    const quiet = {
      interval: "1h",
      input_series: [{ series, values: "3x48" }],
      promql_expr_test: [{ expr: "ALERTS", eval_time: "47h", exp_samples: [] }],
    };
    writeFileSync(join(directory, "rules.yaml"), block(TEAMS, "the rules"));
    const all = { rule_files: ["rules.yaml"], tests: [...tests, quiet] };
    writeFileSync(join(directory, "tests.yaml"), JSON.stringify(all));
    const args = ["test", "rules", join(directory, "tests.yaml")];
    const { status, stdout, stderr } = spawnSync(await ensurePromtool(), args, { encoding: "utf8" });
    expect([status, stderr], stdout).toEqual([0, ""]);
  });
});
