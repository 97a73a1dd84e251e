/**
 * L7, after a long quiet: every protector is backed up, no backup outlasts its protector, and no replica holds back
 * pods was released.
 */

import type { Replica } from "../actors/replica.ts";
import { asObject, metadataOf, record, text } from "../apiserver/objects.ts";
import { RESOURCES } from "../apiserver/resources.ts";
import type { SimulatedBackups } from "../faults/simulated-backups.ts";
import { NAMESPACE } from "../scenario/scenario.ts";
import type { World } from "../world/world.ts";
import { specOf, uidOf } from "./lost-protectors.ts";

const PODS = RESOURCES.find(({ plural }) => plural === "pods");
const RESPONSE_MS = 12_000;

export async function checkBackups(world: World, { stored, lost }: SimulatedBackups): Promise<void> {
  const complain = (what: string): void => world.violation("L7", what);
  const there = new Map(
    [...world.cores.values()].flatMap(({ etcd }) => etcd.range("podprotectors/")).map((one) => [uidOf(one), one]),
  );
  for (const [cell, backups] of stored) {
    for (const uid of backups.uids()) if (!there.has(uid)) complain(`${cell} keeps a backup of ${uid}, which is gone`);
    for (const [uid, protector] of there)
      if (JSON.stringify(backups.get(uid)?.spec) !== JSON.stringify(specOf(protector)))
        complain(`${cell} has ${backups.get(uid) === undefined ? "no" : "an old"} backup of ${protector.key} (${uid})`);
  }
  for (const { isReleased, core, name } of lost.values())
    if (!isReleased) complain(`${core}/${name} is lost, and has not come back`);
  for (const replica of world.replicas)
    for (const cell of world.cells.keys()) await ask(world, replica, cell, complain);
}

/** Asks by a dry run. No protector is lost any more, so nothing may be denied as lost. */
async function ask(world: World, replica: Replica, cell: string, complain: (what: string) => void): Promise<void> {
  const pod = world.cells.get(cell)?.server.etcd.range(`pods/${NAMESPACE}/`)[0];
  if (pod === undefined || PODS === undefined) return;
  const { name, uid } = metadataOf(pod.value);
  const pods = {
    kind: { group: "", version: "v1", kind: "Pod" },
    resource: { group: "", version: "v1", resource: "pods" },
  };
  const request = {
    ...{ uid: `check-${text(uid)}`, name, namespace: NAMESPACE, operation: "DELETE", dryRun: true },
    ...{ ...pods, requestKind: pods.kind, requestResource: pods.resource, userInfo: { username: "client" } },
    ...{ object: null, oldObject: asObject(PODS, pod) },
  };
  const body = JSON.stringify({ apiVersion: "admission.k8s.io/v1", kind: "AdmissionReview", request });
  let decided: string | undefined;
  void replica.handle({ cell, kind: "validate", body, timeout: "10s", isCallerGone: () => false }).then((response) => {
    decided = response.body;
  });
  await world.time.advance(RESPONSE_MS);
  if (decided === undefined) return complain(`a replica does not decide for ${cell}`);
  const { auditAnnotations } = record(record(JSON.parse(decided)).response);
  const decision = text(record(auditAnnotations).decision) ?? "";
  if (decision.includes("Vanished")) complain(`a replica holds a pod of ${cell} back for ever: ${decision}`);
}
