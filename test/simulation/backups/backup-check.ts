/** What has to be true of the copies once everything is quiet for long (L7). */

import type { Replica } from "../actors/replica.ts";
import { metadataOf, present, record, text } from "../apiserver/objects.ts";
import { RESOURCES } from "../apiserver/resources.ts";
import { specOf, uidOf } from "../truth/lost-protectors.ts";
import { NAMESPACE, type World } from "../world/world.ts";
import type { SimulatedBackups } from "./backups.ts";

const PODS = RESOURCES.find(({ plural }) => plural === "pods");
const ANSWER_MS = 12_000;

export async function checkCopies(world: World, { stored, gone }: SimulatedBackups): Promise<void> {
  const complain = (what: string): void => world.violation("L7", what);
  const there = new Map(
    [...world.cores.values()].flatMap(({ etcd }) => etcd.range("podprotectors/")).map((one) => [uidOf(one), one]),
  );
  for (const [cell, copies] of stored) {
    for (const uid of copies.uids()) if (!there.has(uid)) complain(`${cell} keeps a copy of ${uid}, which is gone`);
    for (const [uid, protector] of there)
      if (JSON.stringify(copies.get(uid)?.spec) !== JSON.stringify(specOf(protector)))
        complain(`${cell} has ${copies.get(uid) === undefined ? "no" : "an old"} copy of ${protector.key} (${uid})`);
  }
  for (const { isMeant, core, name } of gone.values())
    if (!isMeant) complain(`${core}/${name} has vanished, and has not come back`);
  for (const replica of world.webhooks)
    for (const cell of world.cells.keys()) await ask(world, replica, cell, complain);
}

/** By a dry run: nothing has vanished, so that nothing is refused for that. */
async function ask(world: World, replica: Replica, cell: string, complain: (what: string) => void): Promise<void> {
  const pod = world.cells.get(cell)?.server.etcd.range(`pods/${NAMESPACE}/`)[0];
  if (pod === undefined || PODS === undefined) return;
  const { name, uid } = metadataOf(pod.value);
  const what = {
    kind: { group: "", version: "v1", kind: "Pod" },
    resource: { group: "", version: "v1", resource: "pods" },
  };
  const request = {
    ...{ uid: `check-${text(uid)}`, name, namespace: NAMESPACE, operation: "DELETE", dryRun: true },
    ...{ ...what, requestKind: what.kind, requestResource: what.resource, userInfo: { username: "client" } },
    ...{ object: null, oldObject: present(PODS, pod) },
  };
  const body = JSON.stringify({ apiVersion: "admission.k8s.io/v1", kind: "AdmissionReview", request });
  let answer: string | undefined;
  void replica.handle({ cell, kind: "validate", body, timeout: "10s", isCallerGone: () => false }).then((reply) => {
    answer = reply.body;
  });
  await world.time.advance(ANSWER_MS);
  if (answer === undefined) return complain(`a replica does not answer for ${cell}`);
  const { auditAnnotations } = record(record(JSON.parse(answer)).response);
  const decision = text(record(auditAnnotations).decision) ?? "";
  if (decision.includes("Vanished")) complain(`a replica holds a pod of ${cell} back for ever: ${decision}`);
}
