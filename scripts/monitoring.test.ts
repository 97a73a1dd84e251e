/** Alerts, runbooks and dashboard fit each other and the metrics that the code declares. */
import { globSync, readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { load } from "js-yaml";
import * as v from "valibot";
import { describe, expect, test } from "vitest";
import { CHART_WORDS } from "../shared/observe/chart-words.ts";
import { metricsOf } from "../test/support/documentation.ts";
import { SUMMED } from "./report/record.ts";
import { root } from "./root.ts";

const Rules = v.object({
  groups: v.array(
    v.object({
      name: v.string(),
      rules: v.array(
        v.object({
          alert: v.string(),
          expr: v.string(),
          for: v.optional(v.string()),
          labels: v.object({ severity: v.picklist(["critical", "warning", "info"]) }),
          annotations: v.object({ summary: v.string(), description: v.string(), runbook_url: v.string() }),
        }),
      ),
    }),
  ),
});

const text = (path: string): string => readFileSync(join(root, path), "utf8");
const alerts = v.parse(Rules, load(text("manifests/monitoring/rules.yaml"))).groups.flatMap(({ rules }) => rules);
const dashboard = text("manifests/monitoring/dashboard.json");

/** Every string literal of the sources that ship: a metric that is declared is one of them. */
const literals = new Set(
  globSync("{shared,webhook,controllers}/**/*.ts", { cwd: root })
    .filter((file) => !file.endsWith(".test.ts"))
    .flatMap((file) => [...text(file).matchAll(/"([a-z][a-z0-9_]+)"/g)].map(([, name]) => name)),
);

describe("each alert", () => {
  test.each(alerts)("$alert has a runbook that begins with its name", ({ alert, annotations }) => {
    expect(annotations.runbook_url).toBe(`docs/runbooks/${alert}.md`);
    const page = text(annotations.runbook_url);
    expect(page.startsWith(`# ${alert}\n`)).toBe(true);
    for (const heading of ["Meaning", "Impact", "Diagnosis", "Mitigation"]) expect(page).toContain(`## ${heading}\n`);
  });

  test.each(alerts)("$alert asks for metrics that exist", ({ expr }) => {
    const metrics = metricsOf(expr);
    expect(metrics.length).toBeGreaterThan(0);
    expect(metrics.filter((name) => !literals.has(name))).toEqual([]);
  });

  test("is tested to fire and not to fire", () => {
    const tests = text("manifests/monitoring/rules.test.yaml");
    for (const { alert } of alerts) {
      expect(tests).toContain(`ALERTS{alertname="${alert}", alertstate="firing"}`);
      expect(tests).toContain(`not when all is well (${alert})`);
    }
  });
});

/** A metric with what declares it: a counter, or a gauge or histogram. */
const DECLARED =
  /\b(counter|topCounter|counted|gauge\w*|histogram)(?:<[^(]*>)?\(\s*(?:\w+,\s+)?(?:\{\s+)?(?:name: )?"([a-z_]+)"/g;

test("a counter ends with total, nothing else does, and a unit is the last word", () => {
  const sources = globSync("{shared,webhook,controllers}/**/*.ts", { cwd: root }).filter(
    (file) => !file.endsWith(".test.ts"),
  );
  const declared = sources.flatMap((file) =>
    [...text(file).matchAll(DECLARED)].map(([, by = "", name = ""]) => [by, name]),
  );
  expect(declared.length).toBeGreaterThan(100);
  const wrong = declared.filter(([by = "", name = ""]) => {
    const isCounter = /^(?:counter|topCounter|counted)$/.test(by);
    const words = name.split("_");
    const units = words.slice(0, isCounter ? -2 : -1);
    return (
      isCounter !== name.endsWith("_total") ||
      units.some((word) => /^(?:seconds|bytes|ratio|total|ms|millis|milliseconds|count)$/.test(word)) ||
      /^(?:ms|millis|milliseconds|minutes|kb|mb|percent|count)$/.test(words.at(-1) ?? "")
    );
  });
  expect(wrong).toEqual([]);
});

test("the rules for teams ask for metrics, and the labels and values, that exist", () => {
  const page = text("docs/how-to/alerts-per-team.md");
  const expressions = page.split("```yaml")[3] ?? "";
  expect(metricsOf(expressions)).toEqual(["protector_labels", "protector_pods", "webhook_denials_total"]);
  expect(metricsOf(expressions).filter((name) => !literals.has(name))).toEqual([]);
  const values = [...expressions.matchAll(/(?:number|enforced)="(\w+)"/g)].map(([, value = ""]) => value);
  expect([...new Set(values)].sort()).toEqual(["available", "false", "required"]);
  expect(values.filter((value) => !literals.has(value))).toEqual([]);
  expect(text("manifests/components/prometheus-operator/service-monitor.yaml")).toContain("honorLabels: true");
});

/** What the project promises to wake somebody for. */
test.each<[string, string, string]>([
  ["a stale cell", "PodseidonCellStale", "cell_heartbeat_age_seconds"],
  ["a wrong clock", "PodseidonClockWrong", "clock_skew_seconds"],
  ["a registration that is gone", "PodseidonRegistrationMissing", "registration_ca_current"],
  ["a certificate about to expire", "PodseidonCertificateExpiring", "webhook_certificate_expiration_timestamp_seconds"],
  ["a token for a core that is not renewed", "PodseidonCoreTokenExpiring", "core_token_expiry_timestamp_seconds"],
  ["a protector that can never be satisfied", "PodseidonProtectorImpossible", "protector_trouble"],
  ["a reservation that nobody settles", "PodseidonReservationStuck", "aggregator_stuck_reservation_seconds"],
  ["a generator that can't watch", "PodseidonWatchFailing", "generator_watch_failures_total"],
  ["a generator that nobody leads", "PodseidonNoLeader", "generator_leader"],
  ["a cell whose calls are rejected", "PodseidonCallsRejected", "webhook_rejected_calls_total"],
  ["a webhook configuration that is put back", "PodseidonRegistrationChanged", "registration_restores_total"],
  ["a webhook configuration that asks about less", "PodseidonRegistrationChanged", "registration_changes_total"],
  ["a pod that stays on its tainted node", "PodseidonTaintEvictionWaiting", "eviction_retry_oldest_waiting_seconds"],
  ["an eviction retry that is gone", "PodseidonControllerGone", "eviction_retry_waiting_pods"],
  ["backups that are not current", "PodseidonBackupsFailing", "aggregator_backup_trouble"],
  ["a new certificate that can't be used", "PodseidonCertificateUnusable", "webhook_certificate_unusable"],
  ["history that can't be read", "PodseidonHistoryUnreadable", "aggregator_unreadable_history"],
  ["a kind that a flag names, and that is gone", "PodseidonScalableMissing", "generator_scalable_missing"],
  ["a cluster's budget in trouble", "PodseidonSourceNotProtected", "generator_cluster_budgets_in_trouble"],
])("%s has the alert %s on the metric %s", (_, alert, metric) => {
  const found = alerts.find((one) => one.alert === alert);
  expect(metricsOf(found?.expr ?? "")).toContain(metric);
});

/** Alertmanager routes by the namespace to the team that owns the workload. */
test.each([
  ...["PodseidonDisruptionsWaiting", "PodseidonLostProtectors", "PodseidonProtectorBelowMinimum"],
  ...["PodseidonProtectorImpossible", "PodseidonReservationStuck", "PodseidonSourceVanished"],
  ...["PodseidonPodsVanished", "PodseidonHistoryUnreadable"],
])("%s names the protector and its namespace, in labels and in words", (name) => {
  const found = alerts.find(({ alert }) => alert === name);
  expect(found?.expr).toContain("by (core, namespace, protector)");
  expect(found?.annotations.summary).toContain("{{ $labels.namespace }}/{{ $labels.protector }}");
});

/** Who is woken has to know where to look. */
test.each<[string, readonly string[], readonly string[]]>([
  ["PodseidonDefect", ["job", "instance"], ["webhook_defects_total", "watch_handler_failures_total"]],
  ["PodseidonDefect", ["job", "instance"], ["generator_handler_failures_total"]],
  ["PodseidonWatchFailing", ["job", "instance", "source"], ["watch_failures_total", "generator_watch_failures_total"]],
  ["PodseidonGatesWaiting", ["job", "instance"], ["aggregator_oldest_gate_seconds", "aggregator_gates_opened_total"]],
  ["PodseidonCellOnHold", ["core", "cell"], ["aggregator_held_protectors"]],
])("%s keeps the labels %j of each metric, and says them", (name, labels, metrics) => {
  const { expr = "", annotations } = alerts.find(({ alert }) => alert === name) ?? {};
  for (const label of labels) expect(annotations?.summary).toContain(`{{ $labels.${label} }}`);
  const sums = expr.split(/ > [\d.]+(?: or )?/).filter((part) => metrics.some((one) => metricsOf(part).includes(one)));
  expect(metricsOf(sums.join(" "))).toEqual(expect.arrayContaining([...metrics]));
  for (const sum of sums) expect(sum).toMatch(new RegExp(`^(?:sum|max) by \\(${labels.join(", ")}\\) \\(`));
});

test("a watch of one process that fails by time-outs alone is more than the alert allows", () => {
  const { expr = "" } = alerts.find(({ alert }) => alert === "PodseidonWatchFailing") ?? {};
  // 30 s for a page of a list (shared/kube/stream/list.ts), then at most 10 s (shared/kube/informer/reflector.ts).
  expect(Number(expr.split(" > ")[1])).toBeLessThan(1 / 40);
});

test("no runbook is left without its alert", () => {
  const pages = readdirSync(join(root, "docs/runbooks")).filter((name) => name !== "README.md");
  expect(pages.sort()).toEqual(alerts.map(({ alert }) => `${alert}.md`).sort());
});

test("the autoscaler asks for a metric that exists", () => {
  const [metric, ...others] = metricsOf(text("manifests/components/scale-by-reviews/kustomization.yaml"));
  expect([metric, others]).toEqual(["webhook_reviews_in_flight", []]);
  expect(literals).toContain(metric);
});

test("the dashboard asks for metrics that exist, panel by panel", () => {
  const metrics = metricsOf(dashboard);
  expect(metrics.length).toBeGreaterThan(20);
  expect(metrics.filter((name) => !literals.has(name))).toEqual([]);
  const Panels = v.object({
    panels: v.array(v.object({ id: v.number(), gridPos: v.object({ x: v.number(), y: v.number() }) })),
  });
  const { panels } = v.parse(Panels, JSON.parse(dashboard));
  expect(new Set(panels.map(({ id }) => id)).size).toBe(panels.length);
  expect(new Set(panels.map(({ gridPos: { x, y } }) => `${x}/${y}`)).size).toBe(panels.length);
});

describe("the dashboard of Grafana", () => {
  const Target = v.object({ expr: v.string(), legendFormat: v.string() });
  const Dashboard = v.object({
    templating: v.object({ list: v.array(v.object({ name: v.string() })) }),
    panels: v.array(
      v.object({
        title: v.string(),
        targets: v.optional(v.array(Target), []),
        fieldConfig: v.optional(v.object({ defaults: v.object({ unit: v.string() }) })),
      }),
    ),
  });
  const { templating, panels } = v.parse(Dashboard, JSON.parse(dashboard));

  test("has the words of the plugin's dashboard and of the report", () => {
    const words = panels.flatMap(({ title, targets }) => [title, ...targets.map((target) => target.legendFormat)]);
    expect(Object.values(CHART_WORDS).filter((word) => !words.includes(word))).toEqual([]);
  });

  test("counts a pod as gone by each outcome by which one goes, as the report does", () => {
    const gone = Object.keys(SUMMED).filter((outcome) => SUMMED[outcome] === "admitted");
    const passed = [...dashboard.matchAll(/outcome=~\\"(allowed[^\\]*)/g)].map(([, outcomes]) => outcomes);
    expect(passed).toEqual(["cell", "namespace"].map(() => gone.join("|")));
    const { expr = "" } = alerts.find(({ alert }) => alert === "PodseidonBypassUsed") ?? {};
    expect(`allowed|${/outcome=~"([^"]*)"/.exec(expr)?.[1]}`).toBe(gone.join("|"));
  });

  test("has the generator's watches, whose metric has a name of its own, beside the others", () => {
    const expr = panels.find(({ title }) => title === "Failed watches")?.targets[0]?.expr ?? "";
    expect(metricsOf(expr)).toEqual(["generator_watch_failures_total", "watch_failures_total"]);
  });

  test("shows clocks that are behind, too", () => {
    const targets = panels.find(({ title }) => title === "Clocks")?.targets ?? [];
    expect(targets.map(({ expr }) => expr.split(" ")[0])).toEqual(["max", "min"]);
  });

  test("has a rate in something per second, and groups by no label that only some targets have", () => {
    const rates = panels.filter(({ targets }) => targets.some(({ expr }) => /^sum.*\(rate\(/.test(expr)));
    expect(rates.length).toBeGreaterThan(8);
    expect(rates.filter(({ fieldConfig }) => !/^(?:reqps|ops)$/.test(fieldConfig?.defaults.unit ?? ""))).toEqual([]);
    const queries = panels.flatMap(({ targets }) => targets.map(({ expr }) => expr));
    expect(queries.filter((expr) => /by \([^)]*\b(?:pod|container|endpoint|service|node)\b/.test(expr))).toEqual([]);
  });

  test("asks, in each query, about the chosen cluster, and somewhere about each variable", () => {
    const queries = panels.flatMap(({ targets }) => targets.map(({ expr }) => expr));
    const selectors = queries.flatMap((expr) => [...expr.matchAll(/podseidon_\w+(\{[^}]*\})?/g)]);
    expect(selectors.filter(([, labels = ""]) => !labels.includes('cluster=~"$cluster"'))).toEqual([]);
    const variables = templating.list.map(({ name }) => name).filter((name) => name !== "datasource");
    expect(variables).toEqual(["cluster", "cell", "namespace"]);
    for (const name of variables) expect(queries.some((expr) => expr.includes(`${name}=~"$${name}"`))).toBe(true);
  });
});

test.each<[string, string[]]>([
  ["sum(rate(podseidon_a_seconds_bucket[5m])) / podseidon_b_total", ["a_seconds", "b_total"]],
  ["podseidon_a_seconds_sum / podseidon_a_seconds_count", ["a_seconds"]],
  ["up == 0", []],
])("the metrics of %s", (expression, expected) => {
  expect(metricsOf(expression)).toEqual(expected);
});
