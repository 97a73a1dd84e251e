/** The findings of `doctor` about the backups of protectors that an aggregator keeps in its cell. Pure. */
import * as v from "valibot";
import { readBackup, VERSIONS_KEY } from "../../../shared/recovery/backup/backup-format.ts";
import { valueAt } from "../../../shared/schema/check.ts";
import { ConfigMap } from "../../../shared/schema/config-map.ts";
import { namespacedName, type PodProtector } from "../../../shared/schema/podprotector.ts";
import { age, firstNames, plural } from "../invocation/output.ts";
import { type Finding, ok, warning } from "./findings.ts";

const CHECK = "backups";
/** An aggregator writes what it has seen of its cores twice a minute. */
const OLD_AFTER_MS = 5 * 60_000;
const MAX_NAMED = 3;
const LOSS = "what the core loses, this cell can't restore";

const Times = v.fallback(v.array(v.looseObject({ time: v.optional(v.string(), "") })), []);

/**
 * `counted` are the protectors with pods in this cluster: only they need a backup there. `maps` are the ConfigMaps with
 * backups, `nowMs` is the clock of the apiserver.
 */
export function backupFindings(
  counted: readonly PodProtector[],
  maps: readonly unknown[],
  nowMs: number,
  system: string,
): Finding[] {
  if (counted.length === 0) return [];
  const logs = `kubectl --namespace ${system} logs --selector app.kubernetes.io/name=podseidon-aggregator`;
  const advice = `does the aggregator say why? ${logs}; see docs/runbooks/PodseidonBackupsFailing.md`;
  const readable = maps.filter((raw): raw is ConfigMap => v.is(ConfigMap, raw));
  if (readable.length === 0) {
    const found = `there are none, for ${plural(counted.length, "protector")} with pods here: ${LOSS}`;
    return [warning(CHECK, found, `${advice}; an aggregator with --outlive=false keeps none`)];
  }
  const findings: Finding[] = [];
  const { unreadable } = readBackup(readable);
  const broken = new Set(unreadable.map((key) => key.split("/")[1]));
  const keys = new Set(readable.flatMap(({ data }) => Object.keys(data ?? {})).filter((key) => !broken.has(key)));
  const without = counted.filter(({ metadata }) => !keys.has(metadata.uid)).map(({ metadata }) => metadata);
  if (without.length > 0) {
    const found = `missing of ${firstNames(without.map(namespacedName), MAX_NAMED)}: ${LOSS}`;
    findings.push(warning(CHECK, found, `a new protector has one after some seconds; else: ${advice}`));
  }
  if (unreadable.length > 0) {
    const mend = `kubectl --namespace ${system} rollout restart deployment podseidon-aggregator`;
    const rest = "A key that is still there after that is of a protector that has no pods here: take it out";
    const found = `can't be read: ${firstNames(unreadable, MAX_NAMED)}`;
    findings.push(warning(CHECK, found, `${mend} writes them again. ${rest}`));
  }
  const writtenMs = Math.max(...readable.map(lastWriteMs));
  if (nowMs - writtenMs > OLD_AFTER_MS)
    findings.push(warning(CHECK, `not written since ${age(nowMs - writtenMs)}: what changed since is lost`, advice));
  if (findings.length > 0) return findings;
  return [ok(CHECK, `of ${plural(keys.size - Number(keys.has(VERSIONS_KEY)), "protector")}`)];
}

/** Unix milliseconds; infinite for an object that does not say when it was written. */
function lastWriteMs(map: ConfigMap): number {
  const written = v.parse(Times, valueAt(map, "metadata", "managedFields"));
  const known = written.map(({ time }) => Date.parse(time)).filter(Number.isFinite);
  return known.length === 0 ? Number.POSITIVE_INFINITY : Math.max(...known);
}
