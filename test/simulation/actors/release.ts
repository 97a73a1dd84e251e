/**
 * Releases a protector as the generator does (docs/design.md#lost-protectors): the shipping code on a link without
 * faults.
 */

import { release } from "../../../controllers/generator/protectors/release.ts";
import { ApiClient } from "../../../shared/kube/client/api-client.ts";
import { REGISTER_LABEL } from "../../../shared/recovery/register/register-format.ts";
import { RegisterWriter } from "../../../shared/recovery/register/register-writer.ts";
import { parseConfigMap } from "../../../shared/schema/config-map.ts";
import { formatMs } from "../../../shared/schema/time.ts";
import { asObject, metadataOf, record } from "../apiserver/objects.ts";
import { RESOURCES } from "../apiserver/resources.ts";
import type { ApiServer } from "../apiserver/server.ts";
import { uidOf } from "../judge/lost-protectors.ts";
import { NAMESPACE, OWN_NAMESPACE } from "../scenario/scenario.ts";
import { parseStored } from "../truth/stored-protectors.ts";
import type { World } from "../world/world.ts";

const TIMEOUT_MS = 10_000;
/** Time until a failed write is tried again. */
const AGAIN_MS = 1_000;
const CONFIG_MAPS = RESOURCES.find(({ plural }) => plural === "configmaps");

/** Continues until the protector with this UID is deleted. */
export async function releaseProtector(world: World, core: ApiServer, name: string): Promise<void> {
  const key = `podprotectors/${NAMESPACE}/${name}`;
  const api = new ApiClient(world.plainLink(core));
  const register = new RegisterWriter({
    ...{ api, ports: world.time, namespace: OWN_NAMESPACE, timeoutMs: TIMEOUT_MS, mayWrite: () => true },
    stored: { segments: { values: () => segmentsOf(core) } },
    onDropped: () => undefined,
    onBlocked: () => undefined,
  });
  const first = core.etcd.get(key);
  if (first === undefined) return;
  for (;;) {
    const stored = core.etcd.get(key);
    if (stored === undefined || uidOf(stored) !== uidOf(first)) return;
    const time = formatMs(world.time.clock.nowMs());
    const calls = { api, timeoutMs: TIMEOUT_MS, signal: new AbortController().signal };
    const record = register.record.bind(register);
    await release({ ...calls, record }, parseStored(stored), "NotRequired", time);
    await new Promise<void>((resolve) => world.time.timers.after(AGAIN_MS, resolve));
  }
}

function segmentsOf({ etcd }: ApiServer): ReturnType<typeof parseConfigMap>[] {
  if (CONFIG_MAPS === undefined) return [];
  return etcd
    .range(`configmaps/${OWN_NAMESPACE}/`)
    .filter(({ value }) => record(metadataOf(value).labels)[REGISTER_LABEL] !== undefined)
    .map((stored) => parseConfigMap(asObject(CONFIG_MAPS, stored)));
}
