/** The findings of `doctor`: each is a line with advice. Pure. */

import { X509Certificate } from "node:crypto";
import * as v from "valibot";
import { splitCertificates } from "../../../shared/certificates/ca-bundle.ts";
import { PROMISE_LESS } from "../../../shared/decide/minimum/promise-less.ts";
import { VERSION } from "../../../shared/schema/annotations.ts";
import { isRecord, valueAt } from "../../../shared/schema/check.ts";
import { podProtectorCrd } from "../../../shared/schema/crd.ts";
import { namespacedName, STALE_AFTER_MS } from "../../../shared/schema/podprotector.ts";
import { SKEW_MS } from "../invocation/cluster.ts";
import { age, firstNames, plural, table } from "../invocation/output.ts";
import type { ProtectorView } from "../view.ts";

export type Level = "ok" | "warning" | "problem" | "unknown";

export interface DoctorFinding {
  readonly cluster: string;
  readonly check: string;
  readonly level: Level;
  readonly found: string;
  /** Empty when nothing has to be done. */
  readonly advice: string;
}

export type Finding = Omit<DoctorFinding, "cluster">;

const finding =
  (level: Level) =>
  (check: string, found: string, advice: string): Finding => ({ check, level, found, advice });

export const ok = (check: string, found: string): Finding => finding("ok")(check, found, "");
export const problem = finding("problem");
export const warning = finding("warning");
export const unknown = finding("unknown");

const MARKS: Readonly<Record<Level, string>> = { ok: "ok", warning: "WARN", problem: "FAIL", unknown: "?" };

export function findingsText(findings: readonly DoctorFinding[]): string {
  const rows = findings.map(({ level, cluster, check, found }) => [MARKS[level], cluster, check, found]);
  const advised = findings.filter(({ advice }) => advice !== "");
  const todo = [...Map.groupBy(advised, ({ cluster, advice }) => `${cluster} ${advice}`).values()].map((same) => {
    const checks = new Set(same.map(({ check }) => check));
    return `- ${[same[0]?.cluster, ...checks].join(", ")}: ${same[0]?.advice}\n`;
  });
  const count = (level: Level): number => findings.filter((one) => one.level === level).length;
  const sum =
    `${plural(count("problem"), "problem")}, ${plural(count("warning"), "warning")}, ` +
    `${count("ok")} in order, ${count("unknown")} could not be checked.\n`;
  const actions = todo.length === 0 ? "" : `\nWhat to do:\n${todo.join("")}`;
  return `${table(["", "CLUSTER", "CHECK", "FOUND"], rows)}${actions}\n${sum}`;
}

const SLOW_RESERVATION_MS = 300_000;
const EXPIRES_SOON_MS = 14 * 86_400_000;

/** The clock of an apiserver against this machine's, from the `Date` of an answer. */
export function clockFinding(dateHeader: string | undefined, nowMs: number): Finding {
  const atMs = Date.parse(dateHeader ?? "");
  if (Number.isNaN(atMs)) return unknown("clock", "the apiserver sends no date", "");
  const apartMs = Math.abs(nowMs - atMs);
  if (apartMs <= SKEW_MS) return ok("clock", "agrees with this machine's");
  return warning(
    "clock",
    `${age(apartMs)} from this machine's`,
    "set both clocks (NTP); decisions do not rest on clocks, but ages, suspensions and certificates do",
  );
}

const Versions = v.fallback(
  v.array(
    v.looseObject({
      name: v.string(),
      served: v.optional(v.boolean()),
      schema: v.optional(v.looseObject({ openAPIV3Schema: v.unknown() })),
      subresources: v.optional(v.looseObject({ status: v.optional(v.unknown()) })),
    }),
  ),
  [],
);

const versionsOf = (crd: unknown) => v.parse(Versions, valueAt(crd, "spec", "versions"));

/** Every field that the schema has, as a path. */
function fieldPaths(schema: unknown, prefix = ""): string[] {
  if (!isRecord(schema)) return [];
  const properties = isRecord(schema.properties) ? schema.properties : {};
  const own = Object.entries(properties).flatMap(([name, one]) => {
    const path = `${prefix}.${name}`;
    return [path, ...fieldPaths(one, path)];
  });
  return [...own, ...fieldPaths(schema.items, `${prefix}[]`)];
}

function crdFields(crd: unknown): readonly string[] {
  return versionsOf(crd).flatMap(({ schema }) => fieldPaths(schema?.openAPIV3Schema));
}

/** Whether protectors can be read, and their status written. */
function servesStatus(crd: unknown): boolean {
  const version = versionsOf(crd).find(({ name }) => name === VERSION);
  return version?.served !== false && version?.subresources?.status !== undefined;
}

/** Whether the core serves protectors, and keeps every field that this version writes. */
export function crdFinding(installed: unknown): Finding {
  if (installed === undefined) return problem("crd", "PodProtector is not installed", "kubectl apply -k crds");
  if (valueAt(installed, "metadata", "deletionTimestamp") !== undefined)
    return problem(
      "crd",
      "is being deleted: protectors stay in force, and no workload gets a new one",
      "it can't be taken back; complete it, and create the CRD again: docs/operations.md#backup-and-restore",
    );
  if (!servesStatus(installed))
    return problem(
      "crd",
      `does not serve ${VERSION} with its status: nothing is counted, and no available pod can be deleted`,
      "apply the CRD of this release again (kubectl apply -k crds)",
    );
  const present = new Set(crdFields(installed));
  const missing = crdFields(podProtectorCrd()).filter((path) => !present.has(path));
  if (missing.length === 0) return ok("crd", "keeps every field of this version");
  return problem(
    "crd",
    `drops ${plural(missing.length, "field")} of this version (${missing[0]} ...)`,
    "apply the CRD of this release (kubectl apply -k crds): without its fields reservations are not exact",
  );
}

const NAMED = "NAME --namespace NAMESPACE";
const MAX_NAMED = 3;

type Trouble = readonly [typeof problem, what: string, isBad: (view: ProtectorView) => boolean, advice: string];

const TROUBLES: readonly Trouble[] = [
  [
    problem,
    "below their minimum",
    ({ required, available, total }) => total > 0 && available < required,
    `kubectl podseidon status ${NAMED} shows in which cell pods are missing`,
  ],
  [
    problem,
    "without any pod",
    ({ state }) => state === "no pods match",
    `is the selector right, and do its pods run? kubectl podseidon status ${NAMED} shows what is counted`,
  ],
  [
    warning,
    "without their workload",
    ({ state }) => state === "workload vanished",
    `their pods stay protected: bring the workload back, or give it up by kubectl podseidon release ${NAMED}`,
  ],
  [
    warning,
    "waiting to be deleted",
    ({ state }) => state === "waits to be deleted",
    `their pods stay protected: scale the workload to zero, or give them up by kubectl podseidon release ${NAMED}; ` +
      "the deletion can be undone: docs/operations.md#delete-a-workload",
  ],
  [
    warning,
    "deleted without a release",
    // As with its CRD: it can't be created again now.
    ({ state, managed }) => state === "being deleted" && managed,
    "they stay in force, and are created again once that is possible: what they wait for is in the Events of " +
      `kubectl describe podprotector ${NAMED}`,
  ],
  [
    warning,
    "can never be disrupted",
    ({ state, required, available }) => state === "no disruption possible" && available >= required,
    "no node with these pods can be drained: where their owner is deleted, create the workload again, as each pod " +
      `less would go for good (docs/runbooks/PodseidonProtectorImpossible.md); otherwise ${PROMISE_LESS}`,
  ],
  [
    warning,
    "suspended",
    ({ suspended }) => suspended !== undefined,
    `kubectl podseidon resume ${NAMED} when the reason is gone; where enforcement is Off, set ` +
      "podseidon.kubewharf.io/enforcement to Enforce at the workload or its namespace (docs/generator.md)",
  ],
  [
    warning,
    "only warned of",
    ({ state }) => state === "only warns",
    "nothing denies a deletion of their pods: podseidon.kubewharf.io/enforcement of the workload or its namespace, " +
      "or --enforcement of the generator, says Warn (docs/install.md#one-cluster)",
  ],
  [
    problem,
    "not counted by any aggregator",
    ({ state }) => state === "not counted",
    "is an aggregator running in each cluster that has their pods?",
  ],
];

export function protectorFindings(views: readonly ProtectorView[]): Finding[] {
  const findings = TROUBLES.flatMap(([level, what, isBad, advice]) => {
    const bad = views.filter(isBad);
    const names = firstNames(bad.map(namespacedName), MAX_NAMED);
    return bad.length === 0 ? [] : [level("protectors", `${bad.length} ${what}: ${names}`, advice)];
  });
  if (findings.length === 0) findings.push(ok("protectors", `${plural(views.length, "protector")}, none in trouble`));
  const oldestMs = Math.max(0, ...views.map(({ oldestReservationMs }) => oldestReservationMs ?? 0));
  const count = views.reduce((sum, { reservations }) => sum + reservations.length, 0);
  findings.push(
    oldestMs > SLOW_RESERVATION_MS
      ? warning(
          "reservations",
          `${count}, the oldest since ${age(oldestMs)}`,
          `a deletion that stays undecided: see kubectl podseidon status ${NAMED}, ` +
            "and docs/runbooks/PodseidonReservationStuck.md",
        )
      : ok("reservations", count === 0 ? "none" : `${count}, the oldest since ${age(oldestMs)}`),
  );
  return findings;
}

interface CellFacts {
  readonly heartbeatAgeMs: number | undefined;
  /** Protectors in which it is on hold. */
  readonly held: number;
  /** The longest silence. */
  readonly silentMs: number;
  readonly protectors: number;
}

export function cellFindings(views: readonly ProtectorView[]): Finding[] {
  const cells = new Map<string, CellFacts>();
  for (const { cell, heartbeatAgeMs, silentMs = 0, state } of views.flatMap((view) => view.cells)) {
    if (state === "removed") continue;
    const known = cells.get(cell) ?? { heartbeatAgeMs: undefined, held: 0, silentMs: 0, protectors: 0 };
    const newest =
      heartbeatAgeMs === undefined ? known.heartbeatAgeMs : Math.min(heartbeatAgeMs, known.heartbeatAgeMs ?? Infinity);
    cells.set(cell, {
      heartbeatAgeMs: newest,
      held: known.held + Number(state === "on hold"),
      silentMs: Math.max(known.silentMs, silentMs),
      protectors: known.protectors + 1,
    });
  }
  return [...cells].sort().map(([cell, { heartbeatAgeMs, held, silentMs, protectors }]) => {
    const check = `cell ${cell}`;
    const unheardMs = heartbeatAgeMs ?? silentMs;
    if (unheardMs > STALE_AFTER_MS) {
      return problem(
        check,
        `no heartbeat for ${age(unheardMs)}`,
        `look at the aggregator of ${cell}; if the cluster is gone for good: kubectl podseidon remove-cell ${cell} -A`,
      );
    }
    if (heartbeatAgeMs !== undefined && heartbeatAgeMs < -SKEW_MS) {
      return warning(
        check,
        `its heartbeat is ${age(-heartbeatAgeMs)} ahead`,
        `set the clock of the node that runs the aggregator of ${cell}`,
      );
    }
    if (held > 0)
      return warning(
        check,
        `on hold in ${plural(held, "protector")}`,
        "it ends by itself after the settle period; if it does not, see docs/runbooks/PodseidonCellOnHold.md",
      );
    return ok(
      check,
      `counted in ${plural(protectors, "protector")}, heartbeat ` +
        `${heartbeatAgeMs === undefined ? "not sent" : `${age(heartbeatAgeMs)} ago`}`,
    );
  });
}

/** Also of a certificate that is damaged. */
const FIRST = /-----BEGIN CERTIFICATE-----[\s\S]+?-----END CERTIFICATE-----/;

/**
 * About a certificate chain, whose first certificate is the server's or client's own; the others are of authorities.
 */
export function ownCertificateFinding(check: string, chain: string, nowMs: number): Finding {
  return certificateFinding(check, FIRST.exec(chain) ?? [], nowMs);
}

export const NO_CERTIFICATE = "there is none";

/** About authorities that are trusted together: the last one to expire counts. */
export function certificateFinding(check: string, bundles: readonly string[], nowMs: number): Finding {
  const ends: number[] = [];
  for (const pem of bundles.flatMap(splitCertificates)) {
    try {
      ends.push(new X509Certificate(pem).validToDate.getTime());
    } catch {
      return problem(check, "a certificate can't be read", "see docs/runbooks/PodseidonCertificateExpiring.md");
    }
  }
  if (ends.length === 0)
    return problem(
      check,
      NO_CERTIFICATE,
      "without it no call to the webhook succeeds; see docs/runbooks/PodseidonCertificateExpiring.md",
    );
  // The newest certificate of a CA bundle counts: the old one stays in the bundle while it is replaced.
  const leftMs = Math.max(...ends) - nowMs;
  if (leftMs <= 0)
    return problem(check, `expired ${age(-leftMs)} ago`, "renew it now: no call to the webhook succeeds");
  if (leftMs < EXPIRES_SOON_MS)
    return warning(
      check,
      `expires in ${age(leftMs)}`,
      "renew it, or look why it was not renewed by itself: docs/runbooks/PodseidonCertificateExpiring.md",
    );
  return ok(check, `valid for ${age(leftMs)}`);
}
